"""The admin routes of a fake, under ``/__sfusion/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sfusion.fakes.errors import FaultError
from sfusion.fakes.wire.access import ADMIN, LONGEST_BODY
from sfusion.fakes.wire.app import Request
from sfusion.fakes.wire.message import Answer
from sfusion.fakes.wire.served import Served
from sfusion_tools.bounded_input import parse_json
from sfusion_tools.errors import InputError, YamlError
from sfusion_tools.exposition import CONTENT_TYPE
from sfusion_tools.marked_yaml import Marked, YamlLimits, YamlPlace, parse_marked

Route = Callable[[Request], Answer]

_LIMITS = YamlLimits(bytes=LONGEST_BODY, nodes=10_000)
_LONGEST_DETAIL = 1000


class AdminRoutes:
    """Answers admin requests about one fake, which may add routes of its own."""

    def __init__(self, fake: Served, more: Mapping[tuple[str, str], Route] | None = None) -> None:
        self._fake = fake
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "state"): self._state,
            ("GET", "faults"): self._faults,
            ("PUT", "faults"): self._set_faults,
            ("DELETE", "faults"): self._clear_faults,
            ("GET", "ledger"): self._ledger,
            ("GET", "metrics"): self._metrics,
            ("POST", "reset"): self._reset,
            **(more or {}),
        }

    def answer(self, request: Request) -> Answer:
        if request.rest is not None or len(request.body) > LONGEST_BODY:
            return replace(_problem(f"the body is larger than {LONGEST_BODY:,} bytes", 413), close=True)
        name = request.path.removeprefix(ADMIN)
        route = self._routes.get((request.method, name))
        if route is not None:
            return route(request)
        methods = sorted(method for method, route_name in self._routes if route_name == name)
        if methods:
            return Answer.json({"detail": "Method Not Allowed"}, 405, (("allow", ", ".join(methods)),))
        known = ", ".join(sorted({route_name for _, route_name in self._routes}))
        return Answer.json({"detail": f"there is no {request.path}; under {ADMIN} there are: {known}"}, 404)

    def _state(self, request: Request) -> Answer:
        return Answer.json(self._fake.state())

    def _faults(self, request: Request) -> Answer:
        return Answer.json(self._fake.faults())

    def _set_faults(self, request: Request) -> Answer:
        seed = None
        try:
            source = self._read(request.body)
            if isinstance(source.data, dict) and "seed" in source.data:
                seed = source.data.pop("seed")
                if not isinstance(seed, int) or isinstance(seed, bool):
                    raise FaultError(f"seed must be a whole number, found {seed!r}")
            rules = self._fake.read_faults(source, where="body")
        except (FaultError, YamlError) as error:
            return _problem(str(error), 422)
        self._fake.set_faults(rules, seed=seed)
        return self._faults(request)

    @staticmethod
    def _read(body: bytes) -> Marked:
        try:
            return Marked(parse_json(body, "body"), {(): YamlPlace("body", 1)})
        except InputError:
            return parse_marked(body.decode("utf-8", "replace"), "body", _LIMITS)

    def _clear_faults(self, request: Request) -> Answer:
        self._fake.set_faults([])
        return self._faults(request)

    def _ledger(self, request: Request) -> Answer:
        return Answer.json(self._fake.ledger.snapshot(calls="calls=0" not in request.query.split("&")))

    def _metrics(self, request: Request) -> Answer:
        return Answer.text(self._fake.metrics(), content_type=CONTENT_TYPE)

    def _reset(self, request: Request) -> Answer:
        self._fake.forget()
        return Answer.json(self._fake.state())


def _problem(text: str, status: int) -> Answer:
    """An error, in which what was found is not repeated at any length."""
    return Answer.json({"detail": text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + " ..."}, status)
