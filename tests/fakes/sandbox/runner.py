"""A stand-in for an executor that runs code."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.sandbox.protocol import RunCodeAnswer


class Runner:
    """An executor that would run code."""

    runs_code = True

    async def run_code(self, request: Any) -> Any:
        return RunCodeAnswer("Success")

    async def run_jupyter(self, request: Any) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass
