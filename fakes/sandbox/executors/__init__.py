"""Executors compute the answers of the server, with or without running programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sfusion_tools.errors import near, refusal

from ...errors import SandboxSetupError
from ..gate import pass_time
from ..program import NOTHING, ProgramScript
from ..protocol import Executor, Profile
from .recorded import Cassette, RecordedExecutor
from .scripted import ScriptedExecutor, Work

__all__ = ["EXECUTORS", "Cassette", "RecordedExecutor", "ScriptedExecutor", "make_executor"]


EXECUTORS = ("none", "scripted", "python", "recorded")
"""``none`` is the default: nothing runs, and a program without a script fails."""


def make_executor(
    name: str,
    *,
    profile: Profile = "2026-07",
    scripts: Iterable[ProgramScript | Mapping[str, Any]] = (),
    cassette: Cassette | str | Path | None = None,
    work: Work = pass_time,
) -> Executor:
    """Return the executor of that name; a ``cassette`` is for recorded only."""
    match name:
        case "none" | "scripted":
            default = None if name == "none" else NOTHING
            try:
                return ScriptedExecutor(scripts, default=default, profile=profile, work=work)
            except ValidationError as error:
                why = refusal(error.errors()[0])
                raise SandboxSetupError(f"a script cannot be used: {why}") from error
        case "python":
            from .python import PythonExecutor

            return PythonExecutor(profile=profile)
        case "recorded":
            if cassette is None:
                raise SandboxSetupError(
                    "the recorded executor needs a cassette: a file of recorded answers"
                )
            return RecordedExecutor(cassette)
    raise SandboxSetupError(f"unknown executor {name!r}; {near(name, EXECUTORS)}")
