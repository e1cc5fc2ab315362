"""The sandboxes of single calls: programs do what their scenario says, and every request is kept
whole."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

from sfusion_tools.sandbox.program import COMPILED

from ....fakes.sandbox import FakeSandbox
from ....fakes.sandbox.program import mark_of
from ....fakes.sandbox.protocol import (
    CommandResult,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
)
from ....fakes.wire import Answer, Request
from ....fakes.wire.app import Subject
from ..facts.sent import CONTENT_TYPE, header_differences
from ..facts.truth import ProgramTruth
from ..scenarios.model import Scenario
from ..single_calls.planned import TEST, SingleCall, call_of_mark
from .recorder import Recorder
from .sandboxes import FakeSandboxes

_NOTHING = ProgramTruth()
MOST_ATTEMPTS = 100
"""Requests for one program, after which nothing is answered any more. Chosen: far more than any
client makes that gives up."""


class Programs:
    """What the programs of a scenario do, by their calls."""

    def __init__(self, scenario: str, planned: Iterable[SingleCall]) -> None:
        self._scenario = scenario
        self._truths: dict[str, Sequence[ProgramTruth]] = {}
        self._tests: dict[tuple[str, str], str] = {}
        for call in planned:
            self.add(call)

    def add(self, call: SingleCall) -> None:
        self._truths |= call.programs
        for number, (given, _) in enumerate(call.ask.tests):
            self._tests[call.name, given] = f"{call.name}{TEST}{number}"

    def call_of(self, mark: str) -> str:
        """Return the call that a mark is of, as far as it is one of this scenario."""
        return call_of_mark(mark, self._scenario)

    def test_of(self, call: str, stdin: Any) -> str | None:
        """Return the id of the test that a request with this standard input is for, if any."""
        return self._tests.get((call, stdin)) if isinstance(stdin, str) else None

    def truth(self, call: str, execution: int) -> ProgramTruth:
        """Return what an execution does, counted from 0; the last one that is known stays."""
        truths = self._truths.get(call) or self._truths.get("") or (_NOTHING,)
        return truths[min(execution, len(truths) - 1)]


class CanaryExecutor:
    """Runs nothing: a program does what its scenario says of its call."""

    runs_code = False

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._executions = Counter[str]()

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        call = self._programs.call_of(mark_of(request.code) or "")
        call = self._programs.test_of(call, request.stdin) or call
        truth = self._programs.truth(call, self._executions[call])
        self._executions[call] += 1
        compiled = None
        if request.language in COMPILED:
            compiled = await _compile(truth, request)
            if compiled.return_code != 0:
                return RunCodeAnswer("Failed", "", compiled, None)
        took = math.inf if truth.ending == "stopped" else truth.seconds
        limit = max(0.0, request.run_timeout)
        await asyncio.sleep(min(took, limit))
        if took > limit:
            ran = CommandResult("TimeLimitExceeded", limit, None, truth.stdout, truth.stderr)
        else:
            ran = CommandResult("Finished", took, truth.exit, truth.stdout, truth.stderr)
        return RunCodeAnswer("Success" if ran.return_code == 0 else "Failed", "", compiled, ran)

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
        return RunJupyterAnswer("SandboxError", "single calls have no notebooks")

    async def aclose(self) -> None:
        """Do nothing: no program runs."""


async def _compile(truth: ProgramTruth, request: RunCode) -> CommandResult:
    limit = max(0.0, request.compile_timeout)
    if truth.ending == "compiler_stopped":
        await asyncio.sleep(limit)
        return CommandResult("TimeLimitExceeded", limit, None, "", truth.stderr)
    await asyncio.sleep(min(truth.compile_seconds, limit))
    if truth.compile_seconds > limit:
        return CommandResult("TimeLimitExceeded", limit, None, "", "")
    if truth.ending == "not_compiled":
        return CommandResult("Finished", truth.compile_seconds, 1, truth.stdout, truth.stderr)
    return CommandResult("Finished", truth.compile_seconds, 0, "", truth.warnings)


class CanarySandbox(FakeSandbox):
    """A fake sandbox whose events say all that a request was."""

    def __init__(
        self,
        programs: Programs,
        *,
        part: Any,
        seed: int,
        host: str,
        note: Callable[[Mapping[str, Any]], None],
        on_cut_off: Callable[[str], None],
    ) -> None:
        self._programs = programs
        self._on_cut_off = on_cut_off
        self._note_event = note
        self._pending: Request | None = None
        self._attempts: dict[int, tuple[str, int]] = {}
        """Which attempt each request is, by its identity."""
        super().__init__(
            executor=CanaryExecutor(programs),
            profile=part.profile,
            model=part.model,
            seed=seed,
            host=host,
            journal=self._note,
        )
        visit = self.server.app.visit

        def watched(request: Request) -> Any:
            made = visit(request)
            made.describe = self._watching(made.describe, request)  # type: ignore[method-assign]
            made.answer = self._listening(made.answer, request)  # type: ignore[method-assign]
            return made

        self.server.app.visit = watched  # type: ignore[method-assign]

    def _watching(
        self, describe: Callable[[], Subject | None], request: Request
    ) -> Callable[[], Subject | None]:
        def watched() -> Subject | None:
            subject = describe()
            if subject is None:
                return None
            if not subject.work:
                facts = {"method": request.method, "path": request.path}
                self._note_event({"source": "server", "event": "other_request", **facts})
                return subject
            self._pending = request  # its event `arrived` follows at once
            call = self._programs.call_of(subject.call)
            test = self._programs.test_of(call, _fields(request).get("stdin"))
            return replace(subject, call=test or call)

        return watched

    def _listening(self, answer: Callable[[Any], Awaitable[Answer]], request: Request) -> Any:
        async def listened(execution: Any) -> Answer:
            found = await answer(execution)
            if found.status in (400, 422) and id(request) in self._attempts:
                call, attempt = self._attempts[id(request)]
                facts = {"call": call, "attempt": attempt, "text": _complaint(found)}
                self._note_event({"source": "server", "event": "complained", **facts})
            return found

        return listened

    def _note(self, event: Mapping[str, Any]) -> None:
        more: dict[str, Any] = {}
        if event["event"] == "arrived" and self._pending is not None:
            request = self._pending
            self._attempts[id(request)] = event["call"], event["attempt"]
            fields = _fields(request)
            if event["attempt"] == MOST_ATTEMPTS:
                self._cut_off(str(event["call"]))
            more = (
                {"fields": fields} if fields else {"body": request.body.decode("utf-8", "replace")}
            )
            if request.method != "POST":
                more["method"] = request.method
            if lacks := self._lacks(request):
                more["lacks"] = lacks
            if CONTENT_TYPE in lacks:
                more["content_type"] = request.headers.get("Content-Type")
        elif (asked := event.get("retry_after")) is not None:
            seconds, dated = _seconds(asked)
            more = {"retry_after": seconds, **({"dated": True} if dated else {})}
        self._note_event({**event, **more})

    def _cut_off(self, call: str) -> None:
        """Leave further requests for a program without an answer, and say so."""
        self.set_faults([{"call": call, "what": "hang"}, *self.server.plan.rules])
        self._on_cut_off(call.partition(TEST)[0])

    def _lacks(self, request: Request) -> list[str]:
        """Return the headers that are not as configured, and the content type if it is not JSON's:
        never a value, which may be a secret."""
        expected = self.server.expected_headers
        differences = header_differences(expected, request.headers)
        return [difference.field.removeprefix("header ") for difference in differences]


def _fields(request: Request) -> dict[str, Any]:
    """Return the JSON of a body; empty if it is not an object."""
    try:
        found = json.loads(request.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _complaint(answer: Answer) -> str:
    """Return what the sandbox says of a request that it does not understand."""
    problems = json.loads(answer.body)["detail"]
    if isinstance(problems, str):
        return problems
    said = []
    for problem in problems:
        place = ".".join(map(str, problem["loc"]))
        said.append(f"{place}: {problem['msg']}")
    return "; ".join(said)


def _seconds(asked: str) -> tuple[float | None, bool]:
    """Return the seconds that a Retry-After asks for, None for a date that is over, and whether it
    is a date."""
    try:
        return float(asked), False
    except ValueError:
        left = parsedate_to_datetime(asked).timestamp() - time.time()
        return (left if left > 0 else None), True


def dated(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule whose ``retry_at``, in seconds from now, is a Retry-After with an HTTP date."""
    what = rule["what"]
    if not isinstance(what, dict) or "retry_at" not in what:
        return dict(rule)
    date = formatdate(math.ceil(time.time() + what["retry_at"]), usegmt=True)
    others = {key: value for key, value in what.items() if key != "retry_at"}
    return {**rule, "what": {**others, "retry_after": date}}


class CanarySandboxes(FakeSandboxes):
    """The sandboxes of a scenario with single calls."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recorder,
        planned: Sequence[SingleCall],
        host: str = "127.0.0.1",
    ) -> None:
        self._recorder = recorder
        self._headers = scenario.headers
        self.on_cut_off: Callable[[str], None] = lambda call: None
        """Called with a call that was sent ``MOST_ATTEMPTS`` times, in any thread."""
        self.programs = Programs(scenario.scenario, planned)
        self._rules = [rule for call in planned for rule in call.faults]
        names = scenario.sandbox.names
        parts = scenario.sandbox.settings
        self._faults = [part.faults for part in parts]
        self._all = [
            CanarySandbox(
                self.programs,
                part=part,
                seed=scenario.seed,
                host=host,
                note=recorder.server_events(name if len(names) > 1 else None),
                on_cut_off=lambda call: self.on_cut_off(call),
            )
            for name, part in zip(names, parts, strict=True)
        ]

    async def begin(self) -> None:
        rules = [dated(rule) for rule in self._rules]
        for sandbox, faults in zip(self._all, self._faults, strict=True):
            sandbox.server.expected_headers = self._headers
            sandbox.set_faults([*rules, *faults])

    @property
    def busy(self) -> int:
        """Return how many requests are in flight."""
        return sum(sandbox.ledger.in_flight for sandbox in self._all)

    @property
    def open_connections(self) -> int:
        return sum(sandbox.server.open_connections for sandbox in self._all)
