"""The limiter: how many attempts may be in flight in a whole cluster.

``core`` holds the rules and nothing else, ``host`` keeps a core alive, ``client`` is one event loop's end of it, and
``local`` and ``ray_actor`` are the two ways between them.
"""

from sfusion_tools.limiter.client import Limiter, Permit, Transport
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.host import LimiterHost
from sfusion_tools.limiter.local import LocalTransport, local_host, local_limiter
from sfusion_tools.limiter.messages import Snapshot
from sfusion_tools.limiter.settings import LimiterSettings

__all__ = [
    "Limiter",
    "LimiterCore",
    "LimiterHost",
    "LimiterSettings",
    "LocalTransport",
    "Permit",
    "Snapshot",
    "Transport",
    "local_host",
    "local_limiter",
]
