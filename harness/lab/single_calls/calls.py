"""Single calls as journals tell them: what was asked, sent, executed, answered and told.

:mod:`.suite` folds them from journals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sfusion_tools.sandbox.program import COMPILED

from ....fakes.call_mark import CALL_MARK
from ...core.journal import Event, Journal
from ..client import EXIT_FIELDS, Returned, Settings, TrialAsk
from ..facts.canary import tokens_in
from ..facts.read import TextReading, exits, integers, normal_wording, read_text
from ..facts.sent import WIRE_DEFAULTS, request_fields
from ..facts.truth import ProgramTruth
from ..programs import unpacked
from .planned import (
    TEST,
    SingleCall,
    call_of_mark,
    mark_of_call,
)

PROGRAM_ENDS = {
    "ok": "ok", "wrong": "ok", "compiled": "ok", "ok_empty": "ok_empty",
    "program_error": "program_error", "timeout": "timeout", "compile_error": "compile_error",
    "compiler_timeout": "compiler_timeout",
}  # fmt: skip
"""The ends that a program comes to; of ``wrong`` the ground truth is another, of ``compiled``
there are warnings."""


def end_of_program(truth: ProgramTruth) -> str:
    """Return the end that an execution came to."""
    by_ending = {
        "stopped": "timeout",
        "not_compiled": "compile_error",
        "compiler_stopped": "compiler_timeout",
    }
    if truth.ending != "exited":
        return by_ending[truth.ending]
    if truth.exit:
        return "program_error"
    return "ok" if truth.stdout or truth.stderr else "ok_empty"


FAILED_ENDS = ("not_run", "may_have_run", "throttled", "sandbox_failed")
"""The ends of a call whose sandbox failed."""
FAIR = 1.0
"""Seconds for which a client must wait for an answer that is due, whatever it is connected by.
Chosen."""

_DOUBTFUL = frozenset({"content_type", "output"})
"""Faults that leave the result in the answer, though a client may rightly refuse such an answer."""
_HARMLESS = _DOUBTFUL | {"delay", "drip"}


@dataclass
class SentRequest:
    """One request as a fake sandbox received it, and what became of it."""

    arrived: Event
    mark: str
    """The mark in its code; a digest of the body if there is none."""
    test: str = ""
    """The number of the test, of a reward function's call."""
    execution: int | None = None
    """Which execution of its program this was, counted from 0; None if it did not begin to run."""
    faults: tuple[str, ...] = ()
    """The kinds of faults that struck it."""
    ended: float | None = None
    """When the fake was done with it; None if it never was."""
    status: int = 0
    """Of the answer; 0 without one."""
    retry_after: float | None = None
    """Seconds that the answer asked to wait."""
    dated: bool = False
    """It asked for them with a date, whose unit is a second."""
    complaint: str = ""
    """What the sandbox says of a request that it does not understand."""
    client_gone: bool = False
    """The client had disconnected when the fake was done with it."""
    events: list[Event] = field(default_factory=list)

    @property
    def at(self) -> float:
        return float(self.arrived["at"])

    @property
    def sandbox(self) -> str:
        """Return the name of the sandbox; empty if there is only one."""
        return str(self.arrived.get("sandbox", ""))

    @property
    def in_flight(self) -> int:
        """Return the requests at its sandbox when it arrived, this one included."""
        return int(self.arrived["in_flight"])

    @property
    def fields(self) -> dict[str, Any]:
        """Return the JSON of the body; empty if it is not an object."""
        found: dict[str, Any] = self.arrived.get("fields") or {}
        return found

    @property
    def lacks(self) -> list[str]:
        """Return the headers that are not as they were configured."""
        found: list[str] = self.arrived.get("lacks") or []
        return found

    @property
    def body(self) -> str:
        """Return the body as text."""
        return json.dumps(self.fields) if self.fields else str(self.arrived.get("body", ""))


@dataclass
class RunFacts:
    """What happened in one run as a whole."""

    journal: Journal
    settings: Settings
    takes: frozenset[str]
    tolerance: float
    """Seconds within which times and orders are not told apart: 0 in virtual time."""
    began: float = 0.0
    """When the client was ready."""
    ended: float = 0.0
    horizon: float = 0.0
    divided: bool = False
    """Several clients shared its calls, each with a sandbox and a limit of its own."""
    broken_off: str = ""
    """Why it could not be played to its end."""
    left: Event | None = None
    """What the client left behind."""
    raised: list[Event] = field(default_factory=list)
    """What the client's ``begin`` or ``end`` raised."""
    blocked: list[Event] = field(default_factory=list)
    """How often the client held up the event loop, and for how long."""
    left_behind: list[Event] = field(default_factory=list)
    """Calls that had not ended when nobody could wait any longer; nobody knows whether they do."""
    requests: list[SentRequest] = field(default_factory=list)
    other_requests: list[Event] = field(default_factory=list)
    """Those that ask for no work, such as pings."""
    logged: list[Event] = field(default_factory=list)
    crashes: list[Event] = field(default_factory=list)
    clock_jumps: bool = False
    unobserved: bool = False
    """No request came over the event loop."""

    @property
    def name(self) -> str:
        return str(self.journal.header["scenario"])

    @property
    def on_wall(self) -> bool:
        return self.journal.header.get("world") == "wall"

    @property
    def outages(self) -> list[tuple[float, float]]:
        """Return from when to when sandboxes were down."""
        found: list[tuple[float, float]] = []
        since: dict[str, float] = {}
        for event in self.crashes:
            sandbox = str(event.get("sandbox", ""))
            if event["event"] == "crash":
                since[sandbox] = float(event["at"])
            elif sandbox in since:
                found.append((since.pop(sandbox), float(event["at"])))
        return [*found, *((down, math.inf) for down in since.values())]

    @property
    def has_events(self) -> bool:
        """Did something happen to a sandbox or to the clock?"""
        return bool(self.crashes) or self.clock_jumps


@dataclass
class CallFacts:
    """One call with everything that is known of it."""

    planned: SingleCall
    run: RunFacts
    called: Event
    ending: Event | None = None
    endless: bool = False
    """It was cut off, because it was sent again and again."""
    lag: float = 0.0
    """Seconds for which the machine stopped at a time while it was made."""
    later: Mapping[str, Any] | None = None
    """The fields that it had returned, read again at the end, if they are not the same any more."""
    requests: list[SentRequest] = field(default_factory=list)

    @property
    def call(self) -> str:
        return self.planned.name

    @property
    def name(self) -> str:
        """Return the call with its scenario, as sentences name it."""
        return f"{self.run.name.removeprefix('judge-')} {self.call}"

    @property
    def ask(self) -> TrialAsk:
        return self.planned.ask

    @property
    def takes(self) -> frozenset[str]:
        return self.run.takes

    @property
    def evidence(self) -> list[Event]:
        """Return its events in order."""
        events = [self.called]
        for request in self.requests:
            events += request.events
        if self.ending is not None:
            events.append(self.ending)
        return sorted(events, key=lambda event: float(event["at"]))

    @property
    def asked_at(self) -> float:
        return float(self.called["at"])

    @property
    def ended_at(self) -> float | None:
        """Return when it ended; None if it had not when it, or the run, was broken off."""
        return None if self.ending is None or self.endless else float(self.ending["at"])

    @property
    def cancelled(self) -> bool:
        """Was it cancelled by its caller?"""
        return self.ending is not None and not self.endless and bool(self.ending.get("by_caller"))

    @cached_property
    def returned(self) -> Returned | None:
        """Return what came back; None if it was cancelled or did not end."""
        ending = self.ending
        if ending is None or ending["event"] != "returned" or self.endless:
            return None
        truth = self.first_truth
        text = unpacked(ending.get("pieces") or [], truth) or str(ending.get("text", ""))
        raised = "raised" in ending
        return Returned(
            text="" if raised else text,
            fields=ending.get("fields") or {},
            reward=ending.get("reward"),
            raised=text if raised else None,
            altered=str(ending.get("altered", "")),
            paused=ending.get("paused"),
        )

    @property
    def first_truth(self) -> ProgramTruth:
        """Return what the first execution of its program does."""
        return next(iter(self.planned.programs.values()), (ProgramTruth(),))[0]

    @property
    def end(self) -> str:
        """Return how it had to end; ``either`` is what the wire says, ok or failed."""
        faster = self.planned.end == "cancelled" and not self.cancelled
        if self.refused:
            return "failed"
        if self.planned.end in FAILED_ENDS and self._got_past_the_failure:
            return end_of_program(self._truths[0] if self.truth is None else self.truth)
        if self.planned.end in PROGRAM_ENDS and self._met_an_outage:
            return "failed"
        if self.planned.end != "either" and not faster:
            return PROGRAM_ENDS.get(self.planned.end, self.planned.end)
        return "ok" if self.answered is not None else "failed"

    @property
    def _got_past_the_failure(self) -> bool:
        """Did a sandbox answer it in good order, though it was planned to fail? The outage was
        over before the client had given up."""
        return self.answered is not None and not self.answered.faults

    @property
    def _met_an_outage(self) -> bool:
        """Was a sandbox down while it got no answer, though it was planned to be back?"""
        if self.answered is not None or self.requests:
            return False
        over = self.run.ended if self.ended_at is None else self.ended_at
        return any(down < over and back > self.asked_at for down, back in self.run.outages)

    @property
    def failed(self) -> bool:
        """Did the sandbox fail it?"""
        return self.end in FAILED_ENDS or self.end == "failed"

    @property
    def refused(self) -> bool:
        """Did the client take a doubtful answer for a failure: nothing of the program is told?"""
        if (
            self.answered is None
            or self.returned is None
            or not _DOUBTFUL & set(self.answered.faults)
        ):
            return False
        if self.returned.raised is not None:
            return "raises" in self.takes
        printed = self.truth is not None and bool(self.truth.stdout.strip())
        return printed and self.reading is not None and not self.reading.shown

    @property
    def attempts(self) -> Iterable[list[SentRequest]]:
        """Return its requests, those of each test of a reward function by themselves."""
        found: dict[str, list[SentRequest]] = {}
        for request in self.requests:
            found.setdefault(request.test, []).append(request)
        return found.values()

    @property
    def lost(self) -> int:
        """Return how many of its tests the sandbox lost: an attempt failed, and no other brought
        a result."""
        return sum(any(request.faults for request in sent) for sent in self._fruitless)

    @property
    def _fruitless(self) -> list[list[SentRequest]]:
        """Return the attempts at each test of which none brought a result."""
        return [
            sent
            for sent in self.attempts
            if not any(request.status == 200 and not request.faults for request in sent)
        ]

    @property
    def due(self) -> float:
        """Return after how many seconds a sandbox has the result of its program."""
        asked = {**WIRE_DEFAULTS, **request_fields(self.ask, self.run.settings)}
        asked |= self.requests[-1].fields if self.requests else {}
        run_timeout, compile_timeout = (
            max(0.0, float(asked[name])) for name in ("run_timeout", "compile_timeout")
        )
        is_compiled = asked["language"] in COMPILED
        return self._truths[0].due(run_timeout, compile_timeout, compiled=is_compiled)

    @property
    def lagged(self) -> bool:
        """Did the machine stop while it was made, and did it take so long that the client may
        rightly have given up an answer that was there?"""
        if not self.lag or self.ended_at is None:
            return False
        if self.ask.tests:
            return self.lag > FAIR
        return self.ended_at - self.asked_at >= self.due + FAIR

    @property
    def starved(self) -> bool:
        """Did it rightly give up, on a wall clock, because the sandbox answered too late or never
        read its request?"""
        if not self.run.on_wall:
            return False
        if self.lagged:
            return True
        if self.ask.tests:
            return not all(request.faults for sent in self._fruitless for request in sent)
        if self.answered is not None or self.ended_at is None:
            return False
        if any(request.faults or request.status not in (0, 200) for request in self.requests):
            return False
        began = self.requests[-2].at if len(self.requests) > 1 else self.asked_at
        return self.ended_at - began >= self.due + FAIR

    @property
    def set_aside(self) -> bool:
        """Was nothing sent to a sandbox that would have failed it, as by a client that gives
        sandboxes a rest?"""
        return self.failed and not self.requests and not self.run.has_events

    def printed_at_test(self, number: int) -> str:
        """Return what the solution of a reward function's call prints at a test."""
        return self.planned.programs[f"{self.call}{TEST}{number}"][0].stdout

    @property
    def owner(self) -> str:
        """Return the call whose program this one sends, mostly itself; empty if it sends none."""
        found = CALL_MARK.search(self.ask.code)
        return call_of_mark(found[1], self.run.name) if found else ""

    @cached_property
    def answered(self) -> SentRequest | None:
        """Return the request that brought a result of the program to the client."""
        usable = [request for request in self.requests if _brings_a_result(request)]
        return usable[-1] if usable else None

    truths: Sequence[ProgramTruth] = ()
    """What the executions of its program do, also if it is the program of another call."""

    @property
    def _truths(self) -> Sequence[ProgramTruth]:
        return self.truths or (ProgramTruth(),)

    @cached_property
    def truth(self) -> ProgramTruth | None:
        """Return what the execution did whose result the client got; None if it got none."""
        if self.answered is None or self.answered.execution is None:
            return None
        return self._truths[min(self.answered.execution, len(self._truths) - 1)]

    @cached_property
    def reading(self) -> TextReading | None:
        """Return the text compared with the truth; None if there is no text or no truth to
        compare."""
        if self.returned is None or self.returned.raised is not None or "text" not in self.takes:
            return None
        return read_text(
            self._without_foreign_words(self.returned.text), self.truth or ProgramTruth()
        )

    def _without_foreign_words(self, text: str) -> str:
        """Return a text without what the sandbox itself wrote in a failure, which may be told as
        its words. Secrets have been removed by the journal."""
        text = text.replace("<secret>", "")
        for word in tokens_in(self.ask.code):  # a request that is refused is quoted
            text = text.replace(word, "")
        for rule in self.planned.faults:
            for word in tokens_in(str(rule["what"])):
                text = text.replace(word, "")
        return text

    @property
    def raised_with_all(self) -> bool:
        """Did it raise an exception that carries the output and the exit code of its program, in
        its message or in attributes?"""
        if self.returned is None or self.returned.raised is None or self.truth is None:
            return False
        fields = self.returned.fields
        parts = [self.returned.raised]
        for value in fields.values():
            if isinstance(value, str) and value.strip() not in self.returned.raised:
                parts.append(value)
        read = read_text("\n".join(parts), self.truth)
        if self.truth.ending == "exited" and self.truth.exit:
            told = integers(read.wording) | {fields.get(name) for name in EXIT_FIELDS}
            if not told & exits(self.truth.exit):
                return False
        return not read.wrong and (not self.truth.stderr or "stderr" in read.shown)

    @cached_property
    def wording(self) -> str | None:
        """Return the client's own words, or what it raised, without canaries, ids, addresses and
        durations."""
        if self.returned is None or "text" not in self.takes:
            return None
        words = ""
        if self.returned.raised:
            read = read_text(self.returned.raised, self.truth or ProgramTruth())
            words = f"raised {read.wording}"
        elif self.reading is not None:
            words = self.reading.wording
        mark = mark_of_call(self.owner, self.run.name)
        ids = {mark, self.call, self.owner, self.ask.instance, *_SANDBOXES}
        return normal_wording(words, ids - {""})

    @property
    def right(self) -> bool | None:
        """Did the program print the ground truth? None if there is none, or no result."""
        if self.truth is None or not self.ask.truth:
            return None
        return self.truth.stdout.strip() == self.ask.truth.strip()

    def asked_fields(self) -> dict[str, Any]:
        """Return the fields of a request as they were asked for, as far as this client can be
        given them."""
        unasked = {
            "code": "code" not in self.takes,
            "stdin": bool(self.ask.tests),
            "run_timeout": self.ask.timeout is None and "default_timeout" not in self.takes,
            "compile_timeout": "compile_timeout" not in self.takes,
            "memory_limit_MB": "memory" not in self.takes,
        }
        fields = {"stdin": None, "files": {}, **request_fields(self.ask, self.run.settings)}
        return {name: value for name, value in fields.items() if not unasked.get(name)}


_SANDBOXES = ("sandbox-1", "sandbox-2")


def _brings_a_result(request: SentRequest) -> bool:
    answered = request.status == 200 and request.ended is not None and not request.client_gone
    return answered and request.execution is not None and not set(request.faults) - _HARMLESS
