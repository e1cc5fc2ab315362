"""A stand-in for an executor that runs code."""

from __future__ import annotations

from sfusion.fakes.sandbox import ScriptedExecutor


class Runner(ScriptedExecutor):
    """Says that it runs code, and does not."""

    runs_code = True
