"""Executors: what stands behind the wire and makes answers, with or without running anything."""

from __future__ import annotations

from fakes.sandbox.executors.choice import EXECUTORS, make_executor
from fakes.sandbox.executors.recorded import Cassette, RecordedExecutor
from fakes.sandbox.executors.scripted import ScriptedExecutor

__all__ = ["EXECUTORS", "Cassette", "RecordedExecutor", "ScriptedExecutor", "make_executor"]
