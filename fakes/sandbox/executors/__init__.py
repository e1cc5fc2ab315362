"""Executors: what stands behind the wire and makes answers, with or without running anything."""

from __future__ import annotations

from sfusion.fakes.sandbox.executors.choice import EXECUTORS, make_executor
from sfusion.fakes.sandbox.executors.recorded import Cassette, RecordedExecutor
from sfusion.fakes.sandbox.executors.scripted import ScriptedExecutor

__all__ = ["EXECUTORS", "Cassette", "RecordedExecutor", "ScriptedExecutor", "make_executor"]
