"""Which transport the clients use; aiohttp is imported when the first client is made."""

from __future__ import annotations

import logging
import os
from functools import cache

from sfusion_tools.errors import ConfigError
from sfusion_tools.sandbox.transport import HttpTransport

logger = logging.getLogger(__name__)

SWITCH = "SFUSION_TRANSPORT"


def chosen_transport() -> type[HttpTransport]:
    """Return the transport that SFUSION_TRANSPORT names, else the fast one where it was tested."""
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", "public", "fast"):
        raise ConfigError(f"{SWITCH} must be public, fast or not set; found {wanted!r}")
    if wanted != "public":
        fast, problem = _fast_transport(wanted == "fast")
        if fast is not None:
            return fast
        if wanted:
            raise ConfigError(f"{SWITCH} is fast, but {problem}")
    from sfusion_tools.sandbox.public_transport import PublicTransport

    return PublicTransport


@cache
def _fast_transport(forced: bool) -> tuple[type[HttpTransport] | None, str]:
    """Return the fast transport, unless it cannot be used; then the reason, which is logged once."""
    try:
        from sfusion_tools.sandbox.fast_transport import FastTransport, missing, untested
    except ImportError as error:
        problem = str(error)
    else:
        problem = missing() or ("" if forced else untested())
        if not problem:
            return FastTransport, ""
    if not forced:
        logger.info("calls use aiohttp's ClientSession: %s", problem)
    return None, problem
