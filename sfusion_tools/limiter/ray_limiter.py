"""The limiter as tools use it: that of the cluster, of this machine or of this process.

That of the cluster is a named, detached Ray actor, which outlives the process that created it. Ray
is imported when one of these is used, not when this module is.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sfusion_tools._loops import in_daemon_thread, tells_real_time
from sfusion_tools.errors import (
    ConfigError,
    LimiterUnreachable,
    ProtocolMismatch,
    SessionChanged,
    import_extra,
)
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.host import (
    LocalTransport,
    local_limiter,
    settle_difference,
    shared_host,
)
from sfusion_tools.limiter.messages import PROTOCOL, Batch, LimiterReply, Poll, packed, unpacked
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings
from sfusion_tools.runtime import runtime

if TYPE_CHECKING:
    from sfusion_tools.limiter.machine import MachineLimiter

logger = logging.getLogger(__name__)

NAMESPACE = "sfusion"
"""One for all jobs: in its own namespace, every job would get a limiter of its own."""
DEFAULT_NAME = "rate-limiter"
"""That of verl's original design."""

SESSION_CHECK_SECONDS = 0.5
"""How often a call that waits for Ray looks whether its session still exists. Chosen: after
``ray.shutdown()`` nobody waits much longer, and looking is cheap."""

Kind = Literal["auto", "ray", "host", "local"]

T = TypeVar("T")

_warned: set[str] = set()


def _import_ray() -> Any:
    return import_extra("ray", extra="ray", needed_by="a limiter for the whole cluster")


class LimiterClass:
    """Creates the limiter: ``TokenBucketWorker.options(name=…, get_if_exists=True).remote(n)``.

    Ray's own class would put a named limiter into the job's namespace and end it with its creator.
    Here a named limiter is detached and shared by all jobs by default, and invalid settings raise
    at once instead of making an actor that dies later.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def options(self, **options: Any) -> LimiterClass:
        """Return the same class with these of Ray's actor options set."""
        return LimiterClass(**{**self._options, **options})

    def remote(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT) -> Any:
        """Create the actor, or find it with ``get_if_exists=True``; return its handle."""
        LimiterSettings.of(rate_limit)
        _import_ray()
        from sfusion_tools.limiter.ray_actor import actor_class

        options = dict(self._options)
        if options.get("name"):
            options = {"namespace": NAMESPACE, "lifetime": "detached", **options}
        return actor_class.options(**options).remote(rate_limit)


TokenBucketWorker = LimiterClass()


def connect(settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False) -> Any:
    """Return the cluster's limiter of that name, created if there is none.

    This blocks until it answers.
    """
    actor = TokenBucketWorker.options(name=name, get_if_exists=True).remote(asdict(settings))
    check_protocol(actor, name)
    running = _result(actor.settings.remote())
    if running != settings:

        def configure(wanted: LimiterSettings) -> None:
            _result(actor.configure.remote(wanted))

        settle_difference(name, running, settings, configure if apply else None)
    return actor


def check_protocol(actor: Any, name: str) -> None:
    """Raise ProtocolMismatch if the actor is of a version whose messages differ from ours."""
    found = _result(actor.protocol.remote())
    if found != PROTOCOL:
        version = "an older" if found < PROTOCOL else "a newer"
        raise ProtocolMismatch(
            f"limiter {name!r} of this cluster speaks protocol {found}, this sfusion speaks "
            f"{PROTOCOL}: its actor was created by {version} version and is still running. Use one "
            "version in all jobs of a cluster; when the jobs that use this limiter have ended, run "
            f"`sfusion limiter --remove --name {name}`, and the next job creates a new one"
        )


def _result(reference: Any) -> Any:
    # In an asynchronous actor, ray.get warns that it blocks the event loop. Here it would not:
    # connecting happens in its own thread.
    return reference.future().result()


def find(name: str = DEFAULT_NAME) -> Any | None:
    """Return the cluster's limiter of that name, None if there is none."""
    try:
        return _import_ray().get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def remove(name: str = DEFAULT_NAME, *, forget: bool = False) -> bool:
    """End the limiter of that name for good; return False if there is none.

    A new limiter of that name learns from the clients of this one while their leases last, unless
    ``forget`` says that none of them is left.
    """
    actor = find(name)
    from sfusion_tools.limiter.record import RecordStore

    store = RecordStore(name)
    if actor is not None:
        record = store.read()
        _import_ray().kill(actor, no_restart=True)
        if record is not None:
            store.mark_removed(record.actor)
    if forget:
        store.forget()
    return actor is not None


class RayTransport:
    """Carries messages to the cluster's limiter, which is found or created whenever it is gone.

    It never starts Ray, which most calls of Ray's would do after ``ray.shutdown()``. When this
    process has connected to Ray again, the limiter is looked up again, in the new cluster.
    """

    def __init__(
        self, settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False
    ) -> None:
        self._ray = _import_ray()
        self._settings = settings
        self._name = name
        self._apply = apply
        self._actor: Any = None
        self._session = ""

    async def exchange(self, batch: Batch) -> LimiterReply:
        self._check_session()
        if self._actor is None:
            # Ray waits for ever for a cluster that is gone; this process must be able to exit all
            # the same.
            self._actor = await self._within_session(in_daemon_thread(self._connect))
        return await self._call("exchange", batch)

    async def wait(self, poll: Poll) -> LimiterReply:
        self._check_session()
        return await self._call("wait", poll)

    def detach(self, farewell: Batch) -> None:
        """Send the message without waiting; if it is lost, the client's leases expire instead."""
        if self._actor is not None and self._session == ray_session():
            self._actor.exchange.remote(packed(farewell))

    def _check_session(self) -> None:
        session = ray_session()
        if not session:
            raise LimiterUnreachable(
                f"limiter {self._name!r}: Ray is not running in this process (any more)"
            )
        if session != self._session:
            before = self._session
            self._actor = None
            self._session = session
            if before:
                raise SessionChanged(
                    f"limiter {self._name!r}: this process has connected to Ray again"
                )

    def _connect(self) -> Any:
        try:
            return connect(self._settings, self._name, apply=self._apply)
        except (self._ray.exceptions.RayError, ValueError) as error:
            raise self._unreachable(error) from error

    async def _call(self, method: str, message: Batch | Poll) -> LimiterReply:
        actor = self._actor
        if actor is None:
            raise LimiterUnreachable(f"limiter {self._name!r} is gone")
        errors = self._ray.exceptions
        try:
            reference = getattr(actor, method).remote(packed(message))
            reply: bytes = await self._within_session(asyncio.wrap_future(reference.future()))
        except errors.RayTaskError:
            raise  # the actor is alive and raised: a defect of ours, which retrying must not hide
        except errors.RayError as error:
            if isinstance(error, errors.RayActorError) and self._actor is actor:
                self._actor = None
            raise self._unreachable(error) from error
        return unpacked(reply)  # type: ignore[no-any-return] # what the limiter packed

    async def _within_session(self, work: asyncio.Future[T]) -> T:
        """Wait for work of Ray's, which stays pending for ever when its session has ended."""
        session = self._session
        try:
            while not work.done():
                await asyncio.wait([work], timeout=SESSION_CHECK_SECONDS)
                if not work.done() and ray_session() != session:
                    raise LimiterUnreachable(f"limiter {self._name!r}: the Ray session has ended")
        except BaseException:
            if not work.get_loop().is_closed():
                work.cancel()
            raise
        return work.result()

    def _unreachable(self, error: Exception) -> LimiterUnreachable:
        first_line = str(error).partition("\n")[0]
        return LimiterUnreachable(f"limiter {self._name!r}: {first_line}")


def ray_limiter(
    settings: LimiterSettings,
    name: str = DEFAULT_NAME,
    *,
    apply: bool = False,
    share: str = "",
) -> Limiter:
    """Return a client of the cluster's limiter, for use within one event loop."""
    return Limiter(RayTransport(settings, name, apply=apply), share=share)


def ray_is_running() -> bool:
    """True when this process is part of a Ray cluster; asking does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def ray_session() -> str:
    """Return what identifies this process's connection to a Ray cluster; empty without Ray.

    A new cluster has new nodes, and a new connection to the same cluster is a new job. Asking does
    not import Ray.
    """
    if not ray_is_running():
        return ""
    context = sys.modules["ray"].get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterChoice:
    """Gives the limiter of the running loop.

    Tools with equal settings share a client and so its messages.
    """

    settings: LimiterSettings = field(kw_only=False)
    kind: Kind = "auto"
    name: str
    apply: bool = False
    share: str = ""

    def __post_init__(self) -> None:
        if self.kind == "ray" and not ray_is_running():
            import_extra("ray", extra="ray", needed_by="limiter: ray")
            raise ConfigError(
                "limiter: ray needs Ray running in this process; call ray.init() first, or use auto"
            )
        if self.kind == "host":
            from sfusion_tools.limiter.slots import check_size, slot_folder

            slot_folder()  # raises if there is no usable one
            check_size(self.settings)
            if self.share:
                raise ConfigError(
                    "limiter: host has no shares, because its processes wait in no common queue; "
                    "leave out limiter_share, or use limiter: ray"
                )

    def __call__(self) -> Limiter | MachineLimiter:
        kind = self.kind
        if kind == "auto":
            kind = "ray" if ray_is_running() else "local"
            if kind == "local" and self.name not in _warned:
                _warned.add(self.name)
                logger.warning(
                    "Ray is not running here, so rate_limit %d holds for this process only; "
                    "limiter: host shares it with all processes of this machine",
                    self.settings.rate_limit,
                )
        key = LimiterChoice, kind, self.name, self.settings, self.apply, self.share
        scope = runtime.scope()
        return scope.get(key, lambda: self._client(kind, scope.loop))

    def _client(self, kind: Kind, loop: asyncio.AbstractEventLoop) -> Limiter | MachineLimiter:
        if kind == "ray":
            return ray_limiter(self.settings, self.name, apply=self.apply, share=self.share)
        if kind == "host":
            if not tells_real_time(loop):
                # Other processes live in another time; a simulated run must not depend on them.
                return local_limiter(self.settings, loop.time)
            from sfusion_tools.limiter.machine import machine_limiter

            return machine_limiter(self.settings, self.name, apply=self.apply)
        host = shared_host(self.name, self.settings, apply=self.apply)
        return Limiter(LocalTransport(host), share=self.share)
