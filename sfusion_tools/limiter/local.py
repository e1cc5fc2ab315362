"""A limiter inside one process, for use without a cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from uuid import uuid4

from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.host import LimiterHost
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll
from sfusion_tools.limiter.settings import LimiterSettings, Share
from sfusion_tools.runtime import runtime

logger = logging.getLogger(__name__)


class LocalTransport:
    """Carries messages to a host in this process."""

    def __init__(self, host: LimiterHost) -> None:
        self._host = host
        self.take = host.take
        self.give_back = host.give_back

    async def exchange(self, batch: Batch) -> LimiterReply:
        return self._host.exchange(batch)

    async def wait(self, poll: Poll) -> LimiterReply:
        return await self._host.wait(poll)

    def detach(self, farewell: Batch) -> None:
        self._host.exchange(farewell)


def local_host(settings: LimiterSettings, clock: Callable[[], float] = time.monotonic) -> LimiterHost:
    """Make a limiter that only holders of the returned object share."""
    return LimiterHost(LimiterCore(settings, clock(), incarnation=uuid4().hex[:8]), clock)


def local_limiter(
    settings: LimiterSettings, clock: Callable[[], float] = time.monotonic, *, share: Share | None = None
) -> Limiter:
    """Make a private limiter for use within one event loop."""
    return Limiter(LocalTransport(local_host(settings, clock)), share=share)


def shared_host(name: str, settings: LimiterSettings, *, apply: bool) -> LimiterHost:
    """Return the limiter that all tools of this process with this ``limiter_name`` share."""
    host = runtime.shared((LimiterHost, name), lambda: local_host(settings))
    if host.settings != settings:
        settle_difference(name, host.settings, settings, host.configure if apply else None)
    return host


def settle_difference(
    name: str,
    running: LimiterSettings,
    asked: LimiterSettings,
    apply: Callable[[LimiterSettings], object] | None,
) -> None:
    """Warn that two callers want different settings of one limiter, and apply the newer ones if asked to."""
    fields = [f for f in asked.__dataclass_fields__ if getattr(asked, f) != getattr(running, f)]
    has = ", ".join(f"{f} {getattr(running, f)}" for f in fields)
    wants = ", ".join(f"{f} {getattr(asked, f)}" for f in fields)
    if apply is not None:
        apply(asked)
        logger.warning("limiter %r ran with %s; now it runs with %s, as a later caller asked", name, has, wants)
    else:
        logger.warning(
            "limiter %r already runs with %s, so %s is NOT in force here; "
            "set rate_limit_mismatch: apply in the tool config, or use `sfusion limiter --resize N`",
            name,
            has,
            wants,
        )
