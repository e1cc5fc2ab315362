"""Which limiter a tool uses: one client of it for each event loop, whatever becomes of the Ray session."""

from __future__ import annotations

import logging
import sys
from typing import Literal, NamedTuple

from sfusion_tools._extras import import_extra
from sfusion_tools.errors import ConfigError
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.host import LocalTransport, shared_host
from sfusion_tools.limiter.ray_limiter import ray_limiter
from sfusion_tools.limiter.settings import LimiterSettings, Share
from sfusion_tools.runtime import runtime

logger = logging.getLogger(__name__)

Kind = Literal["auto", "ray", "local"]

_warned: set[str] = set()


def ray_is_running() -> bool:
    """True when this process is part of a Ray cluster; asking does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def ray_session() -> str:
    """Return an id that changes with ``ray.shutdown()`` and ``ray.init()``; empty without Ray."""
    return str(sys.modules["ray"].get_runtime_context().get_worker_id()) if ray_is_running() else ""


class ClientKey(NamedTuple):
    kind: Kind
    name: str
    settings: str
    """Everything else that distinguishes clients, as one text: a short key makes a quick look-up."""


class LimiterChoice:
    """Gives the limiter of the running loop. Tools with equal settings share a client and so its messages."""

    def __init__(
        self,
        settings: LimiterSettings,
        *,
        kind: Kind = "auto",
        name: str,
        apply: bool = False,
        share: Share | None = None,
    ) -> None:
        if kind == "ray" and not ray_is_running():
            import_extra("ray", extra="ray", needed_by="limiter: ray")
            raise ConfigError("limiter: ray needs Ray running in this process; call ray.init() first, or use auto")
        self._settings = settings
        self._kind = kind
        self._name = name
        self._apply = apply
        self._share = share
        self._key = ClientKey(kind, name, repr((settings, apply, share)))

    def __call__(self) -> Limiter:
        kind = self._kind
        if kind == "auto":
            kind = "ray" if ray_is_running() else "local"
            if kind == "local" and self._name not in _warned:
                _warned.add(self._name)
                logger.warning(
                    "Ray is not running here, so rate_limit %d holds for this process only", self._settings.rate_limit
                )
        key = self._key
        if kind != key.kind:
            key = self._key = key._replace(kind=kind)
        return runtime.scope().get(key, lambda: self._make(kind))

    def _make(self, kind: Kind) -> Limiter:
        if kind == "ray":
            return ray_limiter(self._settings, self._name, apply=self._apply, share=self._share)
        host = shared_host(self._name, self._settings, apply=self._apply)
        return Limiter(LocalTransport(host), share=self._share)
