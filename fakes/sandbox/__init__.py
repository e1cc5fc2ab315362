"""A fake Sandbox Fusion: the real server's bytes, and failures on demand."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from ..errors import CassetteError, SandboxSetupError, UnsafeBindError
    from .executors import EXECUTORS, Cassette, RecordedExecutor, ScriptedExecutor
    from .fake import FakeSandbox
    from .models import Queue, Quota, Unbounded, read_model
    from .program import ProgramScript, ScriptedProgram
    from .protocol import PROFILES, Profile

__all__ = [
    "EXECUTORS",
    "PROFILES",
    "Cassette",
    "CassetteError",
    "FakeSandbox",
    "Profile",
    "ProgramScript",
    "Queue",
    "Quota",
    "RecordedExecutor",
    "SandboxSetupError",
    "ScriptedExecutor",
    "ScriptedProgram",
    "Unbounded",
    "UnsafeBindError",
    "read_model",
]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.fakes.errors": ["CassetteError", "SandboxSetupError", "UnsafeBindError"],
        "sfusion.fakes.sandbox.executors": [
            "EXECUTORS",
            "Cassette",
            "RecordedExecutor",
            "ScriptedExecutor",
        ],
        "sfusion.fakes.sandbox.fake": ["FakeSandbox"],
        "sfusion.fakes.sandbox.models": ["Queue", "Quota", "Unbounded", "read_model"],
        "sfusion.fakes.sandbox.program": ["ProgramScript", "ScriptedProgram"],
        "sfusion.fakes.sandbox.protocol": ["PROFILES", "Profile"],
    },
)
