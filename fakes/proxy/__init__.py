"""A fault proxy: the fault rules of the fakes in front of a real sandbox.

Any other HTTP server will do, too.
"""

from ..errors import BadUpstream
from .proxy import FaultProxy

__all__ = ["BadUpstream", "FaultProxy"]
