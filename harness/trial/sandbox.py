"""The sandbox of a trial: the fake on real wire, whose programs do what the plan says and which
keeps every request."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

from sfusion_tools.sandbox.program import COMPILED

from ...fakes.sandbox import FakeSandbox
from ...fakes.sandbox.program import mark_of
from ...fakes.sandbox.protocol import (
    CommandResult,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
)
from ...fakes.wire import Answer, Request
from ...fakes.wire.app import Subject
from ..lab.facts.truth import ProgramTruth
from .plan import TEST, Scene
from .record import SentRequest

NOTHING = ProgramTruth()


class CanaryExecutor:
    """Runs nothing: a program does what the plan says of its mark, another thing on each execution
    if it says so."""

    runs_code = False

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._executions = Counter[str]()

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        mark = mark_of(request.code) or ""
        mark = self._scene.test_of(mark, request.stdin) or mark
        truths = self._scene.programs.get(mark, (NOTHING,))
        truth = truths[min(self._executions[mark], len(truths) - 1)]
        self._executions[mark] += 1
        compiled = await _compile(truth, request) if request.language in COMPILED else None
        if compiled is not None and compiled.return_code != 0:
            return RunCodeAnswer("Failed", "", compiled, None)
        took, limit = (
            (float("inf") if truth.ending == "stopped" else truth.seconds),
            max(0.0, request.run_timeout),
        )
        await asyncio.sleep(min(took, limit))
        if took > limit:
            ran = CommandResult("TimeLimitExceeded", limit, None, truth.stdout, truth.stderr)
        else:
            ran = CommandResult("Finished", took, truth.exit, truth.stdout, truth.stderr)
        return RunCodeAnswer("Success" if ran.return_code == 0 else "Failed", "", compiled, ran)

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
        return RunJupyterAnswer("SandboxError", "a trial has no notebooks")

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
    failed = truth.ending == "not_compiled"
    stdout, stderr = (truth.stdout, truth.stderr) if failed else ("", truth.warnings)
    return CommandResult("Finished", truth.compile_seconds, int(failed), stdout, stderr)


def _stdin(request: Request) -> Any:
    try:
        return json.loads(request.body).get("stdin")
    except (ValueError, AttributeError):
        return None


def _dated(what: Any) -> Any:
    """Write ``retry_at``, seconds from now, as a Retry-After with an HTTP date."""
    if not isinstance(what, Mapping) or "retry_at" not in what:
        return what
    date = formatdate(math.ceil(time.time() + what["retry_at"]), usegmt=True)
    return {**{key: value for key, value in what.items() if key != "retry_at"}, "retry_after": date}


def _complaint(problem: Mapping[str, Any]) -> str:
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _seconds(asked: str) -> tuple[float | None, bool]:
    """Return the seconds that a Retry-After asks for, none if it is a date that is over, and
    whether it is a date."""
    try:
        return float(asked), False
    except ValueError:
        left = parsedate_to_datetime(asked).timestamp() - time.time()
        return (left if left > 0 else None), True


class TrialSandbox(FakeSandbox):
    """A fake sandbox that writes every request for work into ``requests``, the others into
    ``others``."""

    def __init__(
        self,
        number: int,
        scene: Scene,
        seed: int,
        requests: list[SentRequest],
        others: list[SentRequest],
    ) -> None:
        self._number, self._scene = number, scene
        self._requests, self._others = requests, others
        self._open: dict[tuple[str, int], SentRequest] = {}
        self._executions = Counter[str]()
        self._pending: Request | None = None
        rules = [
            {key: _dated(value) for key, value in rule.items() if key != "sandbox"}
            for rule in scene.faults
            if rule.get("sandbox", number) == number
        ]
        super().__init__(
            executor=CanaryExecutor(scene), faults=rules, seed=seed, journal=self._note
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
            if subject is not None and subject.work:
                self._pending = request  # its event `arrived` follows at once
                if (test := self._scene.test_of(subject.call, _stdin(request))) is not None:
                    subject = replace(subject, call=test)  # faults and attempts are those of a test
            elif subject is not None:
                self._others.append(self._sent(self.server.now(), subject.call, request))
            return subject

        return watched

    def _listening(self, answer: Callable[[Any], Awaitable[Answer]], request: Request) -> Any:
        async def listened(execution: Any) -> Answer:
            found = await answer(execution)
            if found.status in (400, 422):
                problems = json.loads(found.body)["detail"]
                text = (
                    problems if isinstance(problems, str) else "; ".join(map(_complaint, problems))
                )
                for sent in self._requests:
                    sent.complaint = text if sent.body is request.body else sent.complaint
            return found

        return listened

    def _sent(self, at: float, mark: str, request: Request) -> SentRequest:
        headers = {name.lower(): value for name, value in request.headers.items()}
        mark, _, test = mark.partition(TEST)
        return SentRequest(
            at, mark, self._number, request.method, request.path, headers, request.body, test
        )

    def _note(self, event: Mapping[str, Any]) -> None:
        if "call" not in event:
            return
        key = event["call"], event["attempt"]
        match event["event"]:
            case "arrived":
                assert self._pending is not None
                self._open[key] = sent = self._sent(event["at"], event["call"], self._pending)
                sent.in_flight = event["in_flight"]
                self._requests.append(sent)
            case "started":
                self._open[key].execution = self._executions[event["call"]]
                self._executions[event["call"]] += 1
            case "answered" | "unanswered" if key in self._open:
                sent = self._open[key]
                sent.ended, sent.status, sent.client_gone = (
                    event["at"],
                    event["status"],
                    event["client_gone"],
                )
                if (asked := event.get("retry_after")) is not None:
                    sent.retry_after, sent.dated = _seconds(asked)
            case "strike" if key in self._open:
                self._open[key].faults += (event["kind"],)
