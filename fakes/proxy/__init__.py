"""A fault proxy: the fault rules of the fakes in front of a real sandbox, or of any other HTTP
server."""

from ..errors import BadUpstream
from .proxy import FaultProxy

__all__ = ["BadUpstream", "FaultProxy"]
