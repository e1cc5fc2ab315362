"""Executors compute the answers of the server, with or without running programs."""

from __future__ import annotations

from sfusion.fakes.sandbox.executors.choice import EXECUTORS, make_executor
from sfusion.fakes.sandbox.executors.recorded import Cassette, RecordedExecutor
from sfusion.fakes.sandbox.executors.scripted import ScriptedExecutor

__all__ = ["EXECUTORS", "Cassette", "RecordedExecutor", "ScriptedExecutor", "make_executor"]
