"""A fault proxy in front of a real sandbox."""

from __future__ import annotations

import os
from typing import Any

from sfusion_tools.sandbox.endpoints import proxy_for

from ....fakes.proxy import FaultProxy


def proxy_in_front_of(url: str, **options: Any) -> FaultProxy:
    """The proxy reaches the sandbox as the tool would: through an HTTP proxy if the environment
    sets one."""
    return FaultProxy(url, trust_env=proxy_for(url, os.environ) is not None, **options)
