"""Which limiter a tool uses, with one client of it for each event loop of this process."""

from __future__ import annotations

import logging
import sys
from typing import Literal

from sfusion_tools._extras import import_extra
from sfusion_tools._loops import PerLoop
from sfusion_tools.errors import ConfigError
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.local import LocalTransport, shared_host
from sfusion_tools.limiter.ray_limiter import ray_limiter
from sfusion_tools.limiter.settings import LimiterSettings

logger = logging.getLogger(__name__)

Kind = Literal["auto", "ray", "local"]

_clients: PerLoop[dict[tuple[str, str, LimiterSettings, bool], Limiter]] = PerLoop(dict)
_warned: set[str] = set()


def ray_is_running() -> bool:
    """True when this process is part of a Ray cluster; asking does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


class LimiterChoice:
    """Gives the limiter of the running loop. Tools with equal settings share a client and so its messages."""

    def __init__(self, settings: LimiterSettings, *, kind: Kind = "auto", name: str, apply: bool = False) -> None:
        if kind == "ray" and not ray_is_running():
            import_extra("ray", extra="ray", needed_by="limiter: ray")
            raise ConfigError("limiter: ray needs Ray running in this process; call ray.init() first, or use auto")
        self._settings = settings
        self._kind = kind
        self._name = name
        self._apply = apply

    def __call__(self) -> Limiter:
        kind = self._kind
        if kind == "auto":
            kind = "ray" if ray_is_running() else "local"
            if kind == "local" and self._name not in _warned:
                _warned.add(self._name)
                logger.warning(
                    "Ray is not running here, so rate_limit %d holds for this process only", self._settings.rate_limit
                )
        clients = _clients.get()
        key = (kind, self._name, self._settings, self._apply)
        limiter = clients.get(key)
        if limiter is None:
            limiter = clients[key] = self._ray() if kind == "ray" else self._local()
        return limiter

    def _ray(self) -> Limiter:
        return ray_limiter(self._settings, self._name, apply=self._apply)

    def _local(self) -> Limiter:
        return Limiter(LocalTransport(shared_host(self._name, self._settings, apply=self._apply)))
