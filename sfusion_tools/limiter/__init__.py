"""The limiter of attempts in flight, for one process, a machine or a whole Ray cluster.

``core`` and ``client_core`` hold the rules of the limiter and of its clients. ``host`` adds a clock
and a lock to the one, ``client`` an event loop to the other. ``host`` also connects a client to a
host in this process, and ``ray_limiter`` to one in a Ray actor. ``slots`` and ``machine`` are the
limiter of a machine, which has neither clients nor a host: its permits are locks of the kernel.
"""

from __future__ import annotations

from sfusion_tools._lazy import on_first_use as _on_first_use

TYPE_CHECKING = False  # as in sfusion_tools/_lazy.py
if TYPE_CHECKING:
    from sfusion_tools.limiter.client import Limiter, Transport
    from sfusion_tools.limiter.core import LimiterCore
    from sfusion_tools.limiter.host import LimiterHost, LocalTransport, local_host, local_limiter
    from sfusion_tools.limiter.messages import Snapshot
    from sfusion_tools.limiter.permit import Permit, PermitSource
    from sfusion_tools.limiter.settings import LimiterSettings

__all__ = [
    "Limiter",
    "LimiterCore",
    "LimiterHost",
    "LimiterSettings",
    "LocalTransport",
    "Permit",
    "PermitSource",
    "Snapshot",
    "Transport",
    "local_host",
    "local_limiter",
]

# Server models and settings use one module of this package; its client needs asyncio.
__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion_tools.limiter.client": ["Limiter", "Transport"],
        "sfusion_tools.limiter.core": ["LimiterCore"],
        "sfusion_tools.limiter.host": [
            "LimiterHost",
            "LocalTransport",
            "local_host",
            "local_limiter",
        ],
        "sfusion_tools.limiter.messages": ["Snapshot"],
        "sfusion_tools.limiter.permit": ["Permit", "PermitSource"],
        "sfusion_tools.limiter.settings": ["LimiterSettings"],
    },
)
