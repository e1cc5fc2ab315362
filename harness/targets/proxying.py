"""A fault proxy before a real sandbox."""

from __future__ import annotations

import os
from typing import Any

from sfusion.fakes.proxy import FaultProxy
from sfusion_tools.sandbox.proxy import proxy_for


def proxy_in_front_of(url: str, **options: Any) -> FaultProxy:
    """A fault proxy that reaches the sandbox as the tool would: through an HTTP proxy where one is set."""
    return FaultProxy(url, trust_env=proxy_for(url, os.environ) is not None, **options)
