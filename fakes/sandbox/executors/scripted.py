"""The executor that runs nothing: a script, or a hint in the code, defines what a program does."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from sfusion_tools.output_sizes import PIPE_BYTES
from sfusion_tools.sandbox.program import COMPILED

from ...faults.pattern import PatternSearches
from ..gate import pass_time
from ..program import (
    NOTHING,
    ProgramScript,
    ScriptedProgram,
    hinted,
    mark_of,
    passed_on,
    without_mark,
)
from ..protocol import (
    DRIVER_GRACE,
    CellResult,
    CommandResult,
    Executor,
    Profile,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
)

Work = Callable[[float, float], Awaitable[float | None]]
"""Waits for the duration of a program, which a server model may stretch, at most for a limit.

Returns how long it took; None if the program was stopped at the limit.
"""

_NO_SCRIPT = (
    "sfusion: this fake runs no code, and it has no script for this program. "
    'To run programs: --executor python, FakeSandbox(executor="python") or the pytest fixture '
    "`sandbox`. To script them: docs/fake-sandbox.md. To let them succeed silently: executor "
    "scripted."
)
UNSCRIPTED = ScriptedProgram(sandbox_error=_NO_SCRIPT)
"""What becomes of a program that nothing is known about, unless a default was chosen."""

_RACE_SECONDS = 0.05
"""Programs that end sooner lose the race for their stdin (chosen).

Only in profile 2025-06, and only beside other requests.
"""
_HANDLE = 0x55D0C0FFEE00
"""The address of a transport that the message of that failure shows; any will do."""
_BLOCKING = 2 * PIPE_BYTES
"""Characters of one write from which on a program blocks: so much is read and dropped."""


class ScriptedExecutor(Executor):
    """Answers from hints in the code, else from the first matching script, else from the default.

    Without a default, a program that has neither hints nor a script fails with an error that says
    how to choose.
    """

    runs_code = False

    def __init__(
        self,
        scripts: Iterable[ProgramScript | Mapping[str, Any]] = (),
        *,
        default: ScriptedProgram | Mapping[str, Any] | None = NOTHING,
        profile: Profile = "2026-07",
        work: Work = pass_time,
    ) -> None:
        self.scripts = [_read_script(script) for script in scripts]
        if isinstance(default, Mapping):
            default = ScriptedProgram.model_validate(default)
        self.default = default
        self._exact: dict[str, int] = {}
        self._others: list[int] = []
        for place, script in enumerate(self.scripts):
            if script.exact is None or script.exact in self._exact:
                self._others.append(place)
            else:
                self._exact[script.exact] = place
        self.profile = profile
        self.work = work
        self._searches = PatternSearches()
        self._running = 0

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        """Wait for the duration of the program and return its output."""
        self._running += 1
        try:
            return await self._run(request)
        finally:
            self._running -= 1

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
        """Treat each cell as a separate program."""
        shown = "\n".join(request.cells)
        try:
            shown.encode()
            stored = stored_files(request.files)
        except ValueError as error:
            message = f"exception on running jupyter {shown[:100]}: {error} None"
            return RunJupyterAnswer("SandboxError", message)

        programs = [self.program(cell, "python") for cell in request.cells]
        for program in programs:
            if program.sandbox_error:
                return RunJupyterAnswer("SandboxError", program.sandbox_error)

        needed = sum(program.seconds for program in programs)
        limit = max(0.0, request.total_timeout + DRIVER_GRACE)
        took = await self._work(needed, limit)
        printed = f"config: \n{request.driver_config()}\n"
        if took is None:
            driver = CommandResult("TimeLimitExceeded", limit, stdout=printed, stderr="")
            return RunJupyterAnswer("Failed", driver=driver)

        for program in programs:
            stored |= _written_files(program)
        return RunJupyterAnswer(
            "Success",
            driver=CommandResult("Finished", took, 0, stdout=printed, stderr=""),
            cells=[_cell(program) for program in programs],
            files=fetched(request.fetch_files, stored),
        )

    def program(self, code: str, language: str) -> ScriptedProgram:
        """Return what this code does."""
        base = self._script(code, language) or self.default
        program = hinted(code, base or NOTHING)
        if base is None and program is NOTHING:
            return UNSCRIPTED
        return program

    def _script(self, code: str, language: str) -> ProgramScript | None:
        """Return the first script that fits."""
        if not self.scripts:
            return None
        call = mark_of(code)
        places = self._others
        exact = self._exact.get(without_mark(code)) if self._exact else None
        if exact is not None:
            places = sorted((*self._others, exact))
        for place in places:
            if self.scripts[place].fits(code, language, call, self._searches):
                return self.scripts[place]
        return None

    async def _run(self, request: RunCode) -> RunCodeAnswer:
        try:
            request.code.encode()
            stored = stored_files(request.files) if request.files else {}
            if request.language == "sql":
                raise ValueError("'sql'")
        except ValueError as error:
            message = f"exception on running code {request.code}: {error} None"
            return RunCodeAnswer("SandboxError", message)

        program = self.program(request.code, request.language)
        if program.sandbox_error:
            failed = CommandResult("Error", stderr=program.sandbox_error)
            return RunCodeAnswer("SandboxError", program.sandbox_error, run_result=failed)

        compiled = None
        if request.language in COMPILED:
            compiled = await self._compile(request, program)
            if compiled.return_code != 0:
                return RunCodeAnswer("Failed", compile_result=compiled)

        result = await self._execute(request, program)
        answer = RunCodeAnswer(
            "Success" if result.return_code == 0 else "Failed",
            compile_result=compiled,
            run_result=result,
        )
        if result.status == "Error":
            answer.status = "SandboxError"
            answer.message = result.stderr or ""
        if request.fetch_files:
            stored |= _written_files(program)
            answer.files = fetched(request.fetch_files, stored)
        return answer

    async def _compile(self, request: RunCode, program: ScriptedProgram) -> CommandResult:
        limit = max(request.compile_timeout, 0.0)
        took = await self._work(program.compile_seconds, limit)
        if took is None:
            return CommandResult("TimeLimitExceeded", limit, stdout="", stderr="")
        return CommandResult(
            "Finished",
            took,
            program.compile_exit,
            stdout="",
            stderr=program.compile_errors,
        )

    async def _execute(self, request: RunCode, program: ScriptedProgram) -> CommandResult:
        if self.profile == "2025-06" and request.stdin is not None and not program.reads_stdin:
            # Alone, a program gets its stdin before it ends; beside other requests it does not.
            await asyncio.sleep(0)
            if self._running > 1 and program.seconds < _RACE_SECONDS:
                return CommandResult.without_stdin(request.language, _HANDLE)

        limit = request.run_timeout if request.run_timeout > 0 else 0.0  # NaN is 0, too
        printed = program.printed
        is_blocked = not program.whole and len(printed) > _BLOCKING
        never_ends = is_blocked and not math.isinf(limit)
        took = await self._work(math.inf if never_ends else program.seconds, limit)
        if took is None:
            kept = passed_on(printed if is_blocked else program.early)
            return CommandResult("TimeLimitExceeded", limit, stdout=kept, stderr="")

        errors = program.errors
        code = program.exit
        raises = program.raises
        if program.memory and self._lacks_memory(request, program):
            raises = "MemoryError"
        if raises:
            errors += f"Traceback (most recent call last):\n{raises}\n"
            code = 1
        if not program.whole:
            printed = passed_on(printed)
            errors = passed_on(errors)
        return CommandResult("Finished", took, code, printed, errors)

    def _lacks_memory(self, request: RunCode, program: ScriptedProgram) -> bool:
        if request.memory_limit_MB <= 0 or self.profile == "2025-06":
            return False
        return program.memory > request.memory_limit_MB

    async def _work(self, seconds: float, limit: float) -> float | None:
        """Let a command run; None if it was stopped at its limit, by the clock."""
        if limit <= 0:
            await self.work(0.0, 0.0)
            return None
        return await self.work(seconds, limit) if seconds else 0.0


def _read_script(script: ProgramScript | Mapping[str, Any]) -> ProgramScript:
    if isinstance(script, ProgramScript):
        return script
    return ProgramScript.model_validate(script)


def _written_files(program: ScriptedProgram) -> dict[str, bytes]:
    return {name: text.encode() for name, text in program.files.items()}


def stored_files(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Decode the files of a request leniently; raises ValueError like base64."""
    return {name: base64.b64decode(text) for name, text in files.items() if text is not None}


def fetched(names: Iterable[str], stored: Mapping[str, bytes]) -> dict[str, str]:
    """Return the requested files that exist."""
    return {name: base64.b64encode(stored[name]).decode() for name in names if name in stored}


def _cell(program: ScriptedProgram) -> CellResult:
    """What a notebook shows of a cell."""
    raises = program.raises
    if not raises and program.exit:
        raises = f"SystemExit: {program.exit}"
    error: list[dict[str, Any]] = []
    if raises:
        name, _, value = raises.partition(": ")
        error = [{"traceback": [raises], "ename": name, "evalue": value}]
    return CellResult(stdout=program.printed, stderr=program.errors, error=error)
