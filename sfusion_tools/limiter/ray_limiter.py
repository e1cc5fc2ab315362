"""The cluster's limiter as callers use it: a named, detached Ray actor that outlives the process that created it.

Ray is imported when one of these is used, not when this module is.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sfusion_tools._extras import import_extra
from sfusion_tools._loops import in_daemon_thread
from sfusion_tools.errors import LimiterUnreachable
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.local import settle_difference
from sfusion_tools.limiter.messages import Batch, LimiterReply
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings, Share

NAMESPACE = "sfusion"
"""One for all jobs: in its own namespace, every job would get a limiter of its own."""
DEFAULT_NAME = "rate-limiter"


def _import_ray() -> Any:
    return import_extra("ray", extra="ray", needed_by="a limiter for the whole cluster")


class LimiterClass:
    """Creates the limiter, as in ``TokenBucketWorker.options(name=…, get_if_exists=True).remote(n)``.

    Ray's own class would put a named limiter into the job's namespace and end it with its creator. Here a named
    limiter is detached and shared by all jobs by default, and invalid settings raise at once instead of making an
    actor that dies later.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def options(self, **options: Any) -> LimiterClass:
        """Return the same class with these of Ray's actor options set."""
        return LimiterClass(**{**self._options, **options})

    def remote(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT, successor: bool = False) -> Any:
        """Create the actor, or find it with ``get_if_exists=True``; return its handle."""
        LimiterSettings.of(rate_limit)
        _import_ray()
        from sfusion_tools.limiter.ray_actor import actor_class

        options = dict(self._options)
        if options.get("name"):
            options = {"namespace": NAMESPACE, "lifetime": "detached", **options}
        return actor_class.options(**options).remote(rate_limit, successor)


TokenBucketWorker = LimiterClass()


def connect(
    settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False, successor: bool = False
) -> Any:
    """Return the cluster's limiter of that name, created if there is none; block until it answers."""
    actor = TokenBucketWorker.options(name=name, get_if_exists=True).remote(asdict(settings), successor)
    running = _result(actor.settings.remote())
    if running != settings:
        configure = (lambda wanted: _result(actor.configure.remote(wanted))) if apply else None
        settle_difference(name, running, settings, configure)
    return actor


def _result(reference: Any) -> Any:
    # In an asynchronous actor, ray.get warns that it blocks the event loop. Here it would not: connecting happens
    # in its own thread.
    return reference.future().result()


def find(name: str = DEFAULT_NAME) -> Any | None:
    """Return the cluster's limiter of that name, None if there is none."""
    try:
        return _import_ray().get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def remove(name: str = DEFAULT_NAME) -> bool:
    """End the limiter of that name for good; return False if there is none."""
    actor = find(name)
    if actor is None:
        return False
    from sfusion_tools.limiter.ray_actor import PersistedState

    _import_ray().kill(actor, no_restart=True)
    PersistedState(name).delete()
    return True


class RayTransport:
    """Carries messages to the cluster's limiter; finds it, or creates a new one, whenever it is gone."""

    def __init__(self, settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False) -> None:
        self._ray = _import_ray()
        self._settings = settings
        self._name = name
        self._apply = apply
        self._actor: Any = None
        self._had_one = False

    async def exchange(self, batch: Batch) -> LimiterReply:
        if self._actor is None:
            # Ray waits for ever for a cluster that is gone; this process must be able to exit all the same.
            self._actor = await in_daemon_thread(self._connect)
            self._had_one = True
        return await self._call("exchange", batch)

    async def wait(self, client: str, epoch: int, at_most: float) -> LimiterReply:
        return await self._call("wait", client, epoch, at_most)

    def detach(self, client: str) -> None:
        """Send the message without waiting; if it is lost, the client's leases expire instead."""
        if self._actor is not None and self._ray.is_initialized():
            self._actor.exchange.remote(Batch(client, detach=True))

    def _connect(self) -> Any:
        try:
            # A limiter that replaces a dead one must not grant before it knows what the surviving clients hold.
            return connect(self._settings, self._name, apply=self._apply, successor=self._had_one)
        except (self._ray.exceptions.RayError, ValueError) as error:
            raise self._unreachable(error) from error

    async def _call(self, method: str, *args: Any) -> LimiterReply:
        actor = self._actor
        if actor is None:
            raise LimiterUnreachable(f"limiter {self._name!r} is gone")
        errors = self._ray.exceptions
        try:
            reply: LimiterReply = await getattr(actor, method).remote(*args)
        except errors.RayTaskError:
            raise  # the actor is alive and raised: a defect of ours, which retrying must not hide
        except errors.RayError as error:
            if isinstance(error, errors.RayActorError) and self._actor is actor:
                self._actor = None
            raise self._unreachable(error) from error
        return reply

    def _unreachable(self, error: Exception) -> LimiterUnreachable:
        first_line = str(error).partition("\n")[0]
        return LimiterUnreachable(f"limiter {self._name!r}: {first_line}")


def ray_limiter(
    settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False, share: Share | None = None
) -> Limiter:
    """Return a client of the cluster's limiter, for use within one event loop."""
    return Limiter(RayTransport(settings, name, apply=apply), share=share)
