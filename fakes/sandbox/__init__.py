"""A fake Sandbox Fusion: the real server's bytes, and failures on demand."""

from __future__ import annotations

from sfusion.fakes.errors import CassetteError, SandboxSetupError, UnsafeBindError
from sfusion.fakes.sandbox.executors import EXECUTORS, Cassette, RecordedExecutor, ScriptedExecutor
from sfusion.fakes.sandbox.fake import FakeSandbox
from sfusion.fakes.sandbox.models import Queue, Quota, Unbounded, read_model
from sfusion.fakes.sandbox.program import ProgramScript, ScriptedProgram
from sfusion.fakes.sandbox.protocol import PROFILES, Profile

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
