"""Which transport the calls of this process use: ``SFUSION_TRANSPORT``, or the fast one where it
was tested."""

from __future__ import annotations

import logging
import os
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

from sfusion_tools.errors import ConfigError

if TYPE_CHECKING:
    from sfusion_tools.sandbox.public_transport import PublicTransport

logger = logging.getLogger(__name__)

SWITCH = "SFUSION_TRANSPORT"
fast_if_possible: ContextVar[bool] = ContextVar("fast_if_possible", default=False)
"""Set in simulated runs: they must not depend on whether a version of aiohttp has been tested."""


def chosen_transport() -> type[PublicTransport]:
    """Return the transport that SFUSION_TRANSPORT names.

    If it names none, the fast one where it was tested, or may be tried.
    """
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", "public", "fast"):
        raise ConfigError(f"{SWITCH} must be public, fast or not set; found {wanted!r}")
    if wanted != "public":
        untested_too = wanted == "fast" or fast_if_possible.get()
        fast, problem = _fast_transport(untested_too)
        if fast is not None:
            return fast
        if wanted == "fast":
            raise ConfigError(f"{SWITCH} is fast, but {problem}")
    from sfusion_tools.sandbox.public_transport import PublicTransport

    return PublicTransport


@cache
def _fast_transport(untested_too: bool) -> tuple[type[PublicTransport] | None, str]:
    """Return the fast transport, or None and the reason, which is logged once.

    With ``untested_too`` also for a version of aiohttp that it was not tested with.
    """
    try:
        from sfusion_tools.sandbox.fast_transport import FastTransport, missing, untested
    except ImportError as error:
        problem = str(error)
    else:
        problem = missing()
        if not problem and not untested_too:
            problem = untested()
        if not problem:
            return FastTransport, ""
    if not untested_too:
        logger.info("calls use aiohttp's ClientSession: %s", problem)
    return None, problem
