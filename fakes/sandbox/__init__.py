"""A fake Sandbox Fusion: the real server's bytes, and failures on command."""

from __future__ import annotations

from fakes.sandbox.errors import CassetteError, SandboxSetupError, UnsafeBindError
from fakes.sandbox.executors import EXECUTORS, Cassette, RecordedExecutor, ScriptedExecutor
from fakes.sandbox.fake import FakeSandbox
from fakes.sandbox.models import Queue, Quota, Unbounded, read_model
from fakes.sandbox.profile import PROFILES, Profile
from fakes.sandbox.program import Program, Script

__all__ = [
    "EXECUTORS",
    "PROFILES",
    "Cassette",
    "CassetteError",
    "FakeSandbox",
    "Profile",
    "Program",
    "Queue",
    "Quota",
    "RecordedExecutor",
    "SandboxSetupError",
    "Script",
    "ScriptedExecutor",
    "Unbounded",
    "UnsafeBindError",
    "read_model",
]
