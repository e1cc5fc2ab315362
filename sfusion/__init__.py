"""Test and emulation harness for reinforcement learning with a code sandbox (Sandbox Fusion).

In a checkout, ``sfusion/harness``, ``sfusion/fakes`` and ``sfusion/scenarios`` are links to the folders of the same
name at the top of the repository; in a wheel they are the folders themselves. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfusion.fakes.proxy import FaultProxy
    from sfusion.fakes.sandbox import FakeSandbox
    from sfusion.fakes.sglang import FakeSGLang, FakeSGLangServer
    from sfusion_tools._version import __version__

__all__ = ["FakeSGLang", "FakeSGLangServer", "FakeSandbox", "FaultProxy", "__version__"]

_HOMES = {
    "FakeSGLang": "sfusion.fakes.sglang",
    "FakeSGLangServer": "sfusion.fakes.sglang",
    "FakeSandbox": "sfusion.fakes.sandbox",
    "FaultProxy": "sfusion.fakes.proxy",
    "__version__": "sfusion_tools._version",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sfusion' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
