"""The client of Sandbox Fusion: every program ends with a typed outcome.

The names below are imported on first use, so that what needs no network can be used without
aiohttp.
"""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from sfusion_tools.record import Attempt
    from sfusion_tools.sandbox.client import SandboxClient
    from sfusion_tools.sandbox.fleet import Fleet
    from sfusion_tools.sandbox.program import LANGUAGES, Bounds, Program
    from sfusion_tools.sandbox.result import CallResult
    from sfusion_tools.sandbox.retry import RetryPolicy

__all__ = [
    "LANGUAGES",
    "Attempt",
    "Bounds",
    "CallResult",
    "Fleet",
    "Program",
    "RetryPolicy",
    "SandboxClient",
]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion_tools.record": ["Attempt"],
        "sfusion_tools.sandbox.client": ["SandboxClient"],
        "sfusion_tools.sandbox.fleet": ["Fleet"],
        "sfusion_tools.sandbox.program": ["LANGUAGES", "Bounds", "Program"],
        "sfusion_tools.sandbox.result": ["CallResult"],
        "sfusion_tools.sandbox.retry": ["RetryPolicy"],
    },
)
