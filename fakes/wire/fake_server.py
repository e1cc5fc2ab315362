"""Running a fake, inside a running loop or beside synchronous code.

Here are its options, its admin routes and its metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self, TypedDict, TypeVar

from sfusion_tools._loops import LoopThread
from sfusion_tools._version import __version__
from sfusion_tools.bounded_input import parse_json
from sfusion_tools.errors import InputError, YamlError
from sfusion_tools.exposition import CONTENT_TYPE, MetricFamily, by_label, render, single
from sfusion_tools.marked_yaml import Marked, YamlLimits, YamlPlace, parse_marked

from ..errors import FaultError, WireError
from ..faults import Rule, read_rules
from ..faults.lifecycle import without_operations
from .access import ADMIN, LONGEST_BODY, Access
from .app import App, Request
from .events import EventSink
from .ledger import Ledger
from .message import Answer
from .server import WireServer

T = TypeVar("T")
Route = Callable[[Request], Answer]


class ServerOptions(TypedDict, total=False):
    """The keywords that every fake with a server takes."""

    faults: Iterable[Rule | Mapping[str, Any]]
    seed: int
    """Of every random decision; 0 by default."""
    host: str
    port: int
    """0, the default, is any free port."""
    token: str | None
    require_token: bool
    """Every request but the ping needs the token."""
    allow_remote: bool
    """It may listen where other machines can reach it."""
    allow_hosts: Iterable[str]
    """Further names of the server."""
    allow_origins: Iterable[str]
    """Web pages that may use it."""
    journal: EventSink | None
    """Receives what happens, event by event."""
    access_log: Callable[[str], None] | None
    """Receives a line per request."""


_GRACE = 5.0
"""Seconds for requests in flight when a server is stopped (chosen)."""
_SHORT_GRACE = 1.0
"""The same at the end of a ``with`` block: whoever leaves it waits for nothing more."""


class FakeServer:
    """Base of every fake with a server.

    ``async with`` uses the running loop, ``with`` a thread; either way ``url`` answers when the
    block is entered, and nothing is left running when it ends.
    """

    def __init__(self, server: WireServer) -> None:
        self.server = server
        self._thread: LoopThread | None = None

    async def start(self) -> Self:
        """Listen, on the running loop."""
        await self.server.start()
        return self

    async def stop(self, grace: float = _GRACE) -> None:
        """Stop listening; requests in flight get ``grace`` seconds to finish."""
        await self.server.stop(grace)
        if self.server.request_log is not None:
            self.server.request_log.flush()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop(grace=_SHORT_GRACE)

    def __enter__(self) -> Self:
        self._thread = LoopThread(type(self).__name__)
        try:
            self._thread.run(self.start())
        except BaseException:
            self._thread.close()
            self._thread = None
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        thread = self._thread
        self._thread = None
        if thread is None:
            return
        try:
            thread.run(self.stop(grace=_SHORT_GRACE))
        finally:
            thread.close()

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def token(self) -> str | None:
        """The token that admin requests must carry, None if they need none."""
        return self.server.access.token

    @property
    def ledger(self) -> Ledger:
        """What arrived, what was executed and what was answered."""
        return self.server.ledger

    def crash(self, *, restart_after: float | None = None) -> None:
        """Crash now: the port is closed, connections are reset, work is cancelled."""
        self._do(lambda: self.server.crash(restart_after=restart_after))

    def restart(self) -> None:
        """Listen again after a crash, on the same port."""
        self._do(lambda: self.server.keep(self.server.restart()))

    def wedge(
        self, *, ping: Literal["alive", "dead"] = "alive", seconds: float | None = None
    ) -> None:
        """From now on accept requests and never answer."""
        self._do(lambda: self.server.wedge(ping=ping, seconds=seconds))

    def unwedge(self) -> None:
        self._do(self.server.unwedge)

    def state(self) -> dict[str, Any]:
        """Settings and current state."""
        server = self.server
        return {
            "url": self.url,
            **self._settings(),
            "seed": server.plan.seed,
            "faults": [rule.name for rule in server.plan.rules],
            "running": server.running,
            "wedged": server.wedged_by is not None,
            "in_flight": server.ledger.in_flight,
            "executing": server.ledger.executing,
        }

    def _settings(self) -> dict[str, Any]:
        """What a fake has been told, for ``state``."""
        return {}

    def metrics(self) -> str:
        """The state and the counts of the ledger as a page for Prometheus."""
        return render(self._do(self._families))

    def _families(self) -> list[MetricFamily]:
        """The metrics; called in the loop of the server, whose clock measures the uptime."""
        server = self.server
        ledger = self.ledger
        this = [({"kind": type(self).__name__, "version": __version__}, 1.0)]
        families = [
            MetricFamily("sfusion_server_info", "gauge", "What serves this page.", this),
            single(
                "sfusion_server_uptime_seconds",
                "gauge",
                "Seconds since it began to listen, in its own time.",
                server.now() - server.started,
            ),
            _requests_family(ledger),
            by_label(
                "sfusion_server_faults_total",
                "counter",
                "Strikes of fault rules.",
                "rule",
                self._strikes(),
            ),
            single(
                "sfusion_server_in_flight",
                "gauge",
                "Requests for work in flight.",
                ledger.in_flight,
            ),
            single(
                "sfusion_server_connections_total",
                "counter",
                "Connections accepted.",
                ledger.connections,
            ),
            single(
                "sfusion_server_open_connections",
                "gauge",
                "Open connections.",
                server.open_connections,
            ),
            single(
                "sfusion_server_wedged",
                "gauge",
                "1 while it is wedged.",
                server.wedged_by is not None,
            ),
        ]
        if ledger.executing is not None:  # a proxy cannot know
            families += [
                single(
                    "sfusion_server_executing",
                    "gauge",
                    "Requests whose work is being done.",
                    ledger.executing,
                ),
                single(
                    "sfusion_server_executions_total",
                    "counter",
                    "Executions that began.",
                    ledger.started,
                ),
            ]
        return families

    def _strikes(self) -> Mapping[str, int]:
        return self.ledger.strikes

    def faults(self) -> dict[str, Any]:
        """The rules in force, as they could be written in YAML, and how often each has struck."""
        plan = self.server.plan
        return {
            "seed": plan.seed,
            "faults": [rule.as_data() for rule in plan.rules],
            "strikes": plan.strikes(),
        }

    def read_faults(self, source: object, *, where: str = "faults") -> list[Rule]:
        """Read rules that this fake can have."""
        return without_operations(read_rules(source, where=where), where=where)

    def set_faults(
        self, faults: Iterable[Rule | Mapping[str, Any]], *, seed: int | None = None
    ) -> None:
        """Replace all fault rules; their counters and clocks start again."""
        rules = self.read_faults(faults)
        self._do(lambda: self._replace_faults(rules, seed))

    def _replace_faults(self, rules: list[Rule], seed: int | None = None) -> None:
        self.server.set_faults(rules, seed=seed)

    def clear_faults(self) -> None:
        self.set_faults([])

    def forget(self) -> None:
        """Clear the ledger and restart the counters and clocks of the faults."""
        self._do(self._forget)

    def _forget(self) -> None:
        self.ledger.clear()
        self._replace_faults(list(self.server.plan.rules))

    def _do(self, action: Callable[[], T]) -> T:
        """Run something in the loop of the server: here, or in its thread."""
        if self._thread is None:
            self._refuse_without_loop()
            return action()
        if self._thread.is_current():
            return action()
        return self._thread.run(_later(action))

    def _refuse_without_loop(self) -> None:
        """A server without a thread of its own lives in the loop of its caller."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            name = type(self).__name__
            raise WireError(
                f"this {name} is not running here: use `with {name}() as fake:`, or call this in "
                f"the event loop of `async with {name}()`; {name}(faults=[…]) sets faults before "
                "it starts"
            ) from None


def _requests_family(ledger: Ledger) -> MetricFamily:
    """How many requests of each method and route ended with which status."""
    samples = []
    for (method, route, status), count in sorted(ledger.answers.items()):
        labels = {
            "method": method,
            "route": route,
            "status": str(status) if status else "none",
        }
        samples.append((labels, float(count)))
    return MetricFamily(
        "sfusion_server_requests_total",
        "counter",
        "Requests that ended; status none: without an answer.",
        samples,
    )


_ACCESS_OPTIONS = ("token", "require_token", "allow_remote", "allow_hosts", "allow_origins")
_SERVER_OPTIONS = ("host", "port", "seed", "journal", "access_log")


def server_of(
    fake: FakeServer,
    app: App,
    rules: Iterable[Rule],
    options: ServerOptions,
    *,
    runs_code: bool = False,
    realm: str = "sfusion",
    routes: Mapping[tuple[str, str], Route] | None = None,
    kind: type[WireServer] = WireServer,
    **more: Any,
) -> WireServer:
    """Make the server of a fake.

    ``routes`` are admin routes of its own, ``more`` are arguments of its ``kind``.
    """
    unknown = options.keys() - ServerOptions.__annotations__.keys()
    if unknown:
        raise TypeError(
            f"{type(fake).__name__} got an unexpected keyword argument {min(unknown)!r}"
        )
    access = Access(
        options.get("host", "127.0.0.1"),
        runs_code=runs_code,
        realm=realm,
        **_given(options, _ACCESS_OPTIONS),
    )
    return kind(
        app,
        rules=rules,
        access=access,
        admin=AdminRoutes(fake, routes or {}).answer,
        **_given(options, _SERVER_OPTIONS),
        **more,
    )


def _given(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the options of these names that were given."""
    return {name: options[name] for name in names if name in options}


async def _later(action: Callable[[], T]) -> T:
    return action()


_LIMITS = YamlLimits(bytes=LONGEST_BODY, nodes=10_000)
"""Of the rules that an admin request may set (nodes: chosen, far more than rules need)."""


class AdminRoutes:
    """Answers admin requests about one fake, which may add routes of its own."""

    def __init__(self, fake: FakeServer, more: Mapping[tuple[str, str], Route]) -> None:
        self._fake = fake
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "state"): lambda _: Answer.json(fake.state()),
            ("GET", "faults"): lambda _: Answer.json(fake.faults()),
            ("PUT", "faults"): self._set_faults,
            ("DELETE", "faults"): lambda _: self._replace_faults([]),
            ("GET", "ledger"): self._ledger,
            ("GET", "metrics"): lambda _: Answer.text(fake.metrics(), content_type=CONTENT_TYPE),
            ("POST", "reset"): self._reset,
            **more,
        }

    def answer(self, request: Request) -> Answer:
        if request.rest is not None or len(request.body) > LONGEST_BODY:
            too_large = _problem(f"the body is larger than {LONGEST_BODY:,} bytes", 413)
            return replace(too_large, close=True)

        name = request.path.removeprefix(ADMIN)
        route = self._routes.get((request.method, name))
        if route is not None:
            return route(request)

        methods = sorted(method for method, route_name in self._routes if route_name == name)
        if methods:
            allowed = (("allow", ", ".join(methods)),)
            return Answer.json({"detail": "Method Not Allowed"}, 405, allowed)
        known = ", ".join(sorted({route_name for _, route_name in self._routes}))
        detail = f"there is no {request.path}; under {ADMIN} there are: {known}"
        return Answer.json({"detail": detail}, 404)

    def _set_faults(self, request: Request) -> Answer:
        try:
            source = self._read(request.body)
            seed = _take_seed(source.data)
            rules = self._fake.read_faults(source, where="body")
        except (FaultError, YamlError) as error:
            return _problem(str(error), 422)
        return self._replace_faults(rules, seed)

    def _replace_faults(self, rules: list[Rule], seed: int | None = None) -> Answer:
        self._fake.set_faults(rules, seed=seed)
        return Answer.json(self._fake.faults())

    @staticmethod
    def _read(body: bytes) -> Marked:
        try:
            return Marked(parse_json(body, "body"), {(): YamlPlace("body", 1)})
        except InputError:
            return parse_marked(body.decode("utf-8", "replace"), "body", _LIMITS)

    def _ledger(self, request: Request) -> Answer:
        with_calls = "calls=0" not in request.query.split("&")
        return Answer.json(self._fake.ledger.snapshot(calls=with_calls))

    def _reset(self, request: Request) -> Answer:
        self._fake.forget()
        return Answer.json(self._fake.state())


def _take_seed(data: Any) -> int | None:
    """Take the seed out of a body that has one beside its rules; raise FaultError."""
    if not isinstance(data, dict) or "seed" not in data:
        return None
    seed = data.pop("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise FaultError(f"seed must be a whole number, found {seed!r}")
    return seed


_LONGEST_DETAIL = 1000
"""Characters of an error (chosen: enough for any rule that somebody wrote by hand)."""


def _problem(text: str, status: int) -> Answer:
    """An error, in which what was found is not repeated at any length."""
    if len(text) > _LONGEST_DETAIL:
        text = text[:_LONGEST_DETAIL] + " ..."
    return Answer.json({"detail": text}, status)


def queue_family(waiting: int) -> MetricFamily:
    return single(
        "sfusion_server_queue", "gauge", "Requests that wait until others are done.", waiting
    )
