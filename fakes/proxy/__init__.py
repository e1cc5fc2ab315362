"""A fault proxy: the fault rules of the fakes in front of a real sandbox, or of any other HTTP server."""

from sfusion.fakes.errors import BadUpstream
from sfusion.fakes.proxy.proxy import FaultProxy

__all__ = ["BadUpstream", "FaultProxy"]
