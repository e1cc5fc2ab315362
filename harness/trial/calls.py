"""The facts of a trial by call: what was planned, what was sent for it, what its program did,
and what was told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sfusion_tools.sandbox.program import COMPILED

from ..lab.facts.canary import tokens_in
from ..lab.facts.read import TextReading, normal_wording, read_text
from ..lab.facts.sent import WIRE_DEFAULTS
from ..lab.facts.truth import ProgramTruth
from .client import UNSET, Told
from .plan import TrialCall
from .record import PlayedCall, PlayedScene, Record, SentRequest
from .shapes.parameters import request_fields

PROGRAM_ENDS = {
    "ok": "ok", "wrong": "ok", "compiled": "ok", "ok_empty": "ok_empty", "program_error": "program_error",
    "timeout": "timeout", "compile_error": "compile_error", "compiler_timeout": "compiler_timeout",
}  # fmt: skip
"""The ends that a program comes to; of ``wrong`` the ground truth is another, of ``compiled``
there are warnings."""
FAILED_ENDS = ("not_run", "may_have_run", "throttled", "sandbox_failed")
"""The ends of a call whose sandbox failed."""

_MARK = re.compile(r"sfusion:call=([A-Za-z0-9._-]+)")
_DOUBTFUL = frozenset({"content_type", "output"})
"""Faults that leave the result in the answer, though a client may rightly refuse such an answer."""
FAIR = 1.0
"""Seconds for which a client must wait for an answer that is due, whatever it is connected by."""
_HARMLESS = _DOUBTFUL | {"delay", "drip"}


@dataclass
class CallFacts:
    """One call with everything that is known of it."""

    planned: TrialCall
    played: PlayedCall
    scene: PlayedScene
    takes: frozenset[str]
    on_wall: bool = False
    requests: list[SentRequest] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.planned.ask.call

    @property
    def told(self) -> Told | None:
        return self.played.told

    @property
    def end(self) -> str:
        """Return how it had to end; ``either`` is what the wire says, ok or failed."""
        faster = self.planned.end == "cancelled" and not self.played.cancelled
        if self.refused:
            return "failed"
        if self.planned.end != "either" and not faster:
            return PROGRAM_ENDS.get(self.planned.end, self.planned.end)
        return "ok" if self.answered is not None else "failed"

    @property
    def failed(self) -> bool:
        """Did the sandbox fail it?"""
        return self.end in FAILED_ENDS or self.end == "failed"

    @property
    def refused(self) -> bool:
        """Did the client take a doubtful answer for a failure: nothing of the program is told?"""
        if self.answered is None or self.told is None or not _DOUBTFUL & set(self.answered.faults):
            return False
        if self.told.raised is not None:
            return "raises" in self.takes
        printed = self.truth is not None and bool(self.truth.stdout.strip())
        return printed and self.reading is not None and not self.reading.shown

    @property
    def attempts(self) -> Iterable[list[SentRequest]]:
        """Return its requests, those of each test of a reward function by themselves."""
        found: dict[str, list[SentRequest]] = {}
        for one in self.requests:
            found.setdefault(one.test, []).append(one)
        return found.values()

    @property
    def lost(self) -> int:
        """Return how many of its tests the sandbox lost: an attempt failed, and no other brought
        a result."""
        return sum(any(one.faults for one in sent) for sent in self._fruitless)

    @property
    def _fruitless(self) -> list[list[SentRequest]]:
        """Return the attempts at each test of which none brought a result."""
        return [
            sent
            for sent in self.attempts
            if not any(one.status == 200 and not one.faults for one in sent)
        ]

    @property
    def due(self) -> float:
        """Return after how many seconds a sandbox has the result of its program."""
        asked = {**WIRE_DEFAULTS, **request_fields(self.planned.ask, self.scene.settings)}
        asked |= self.requests[-1].fields if self.requests else {}
        limits = (max(0.0, float(asked[name])) for name in ("run_timeout", "compile_timeout"))
        truth = self.scene.scene.programs.get(self.mark, (ProgramTruth(),))[0]
        return truth.due(*limits, compiled=asked["language"] in COMPILED)

    @property
    def starved(self) -> bool:
        """Did it rightly give up, on a wall clock, because the sandbox answered too late or
        never read its request?"""
        if self.on_wall and self.planned.ask.tests:
            return not all(one.faults for sent in self._fruitless for one in sent)
        if not self.on_wall or self.answered is not None or self.played.ended_at is None:
            return False
        if any(one.faults or one.status not in (0, 200) for one in self.requests):
            return False
        began = self.requests[-2].at if len(self.requests) > 1 else self.played.asked_at
        return self.played.ended_at - began >= self.due + FAIR

    @property
    def set_aside(self) -> bool:
        """Was nothing sent to a sandbox that would have failed it, as by a client that gives
        sandboxes a rest?"""
        return self.failed and not self.requests and not self.scene.scene.events

    @property
    def mark(self) -> str:
        found = _MARK.search(self.planned.ask.code)
        return found[1] if found else ""

    @cached_property
    def answered(self) -> SentRequest | None:
        """Return the request that brought a result of the program to the client."""
        usable = [
            one
            for one in self.requests
            if one.status == 200
            and one.execution is not None
            and one.ended is not None
            and not one.client_gone
            and not set(one.faults) - _HARMLESS
        ]
        return usable[-1] if usable else None

    @cached_property
    def truth(self) -> ProgramTruth | None:
        """Return what the execution did whose result the client got; None if it got none."""
        if self.answered is None or self.answered.execution is None:
            return None
        truths = self.scene.scene.programs.get(self.mark, (ProgramTruth(),))
        return truths[min(self.answered.execution, len(truths) - 1)]

    @cached_property
    def reading(self) -> TextReading | None:
        """Return the text compared with the truth; None if there is no text or no truth to
        compare."""
        if self.told is None or self.told.raised is not None or "text" not in self.takes:
            return None
        truth = self.truth or ProgramTruth()
        return read_text(self._without_foreign_words(self.told.text), truth)

    def _without_foreign_words(self, text: str) -> str:
        """Return a text without what the sandbox itself wrote in a failure, and without secrets:
        neither is output.

        The former may be told as its words; another check looks for the latter.
        """
        for word in tokens_in(str(dict(self.scene.settings.headers))):
            text = text.replace(word, "")
        for rule in self.scene.scene.faults:
            for word in tokens_in(str(rule["what"])) if rule.get("call") == self.mark else ():
                text = text.replace(word, "")
        return text

    @cached_property
    def wording(self) -> str | None:
        """Return the client's own words, or what it raised, without canaries, ids, addresses and
        durations."""
        if self.told is None or "text" not in self.takes:
            return None
        words = (
            f"raised {self.told.raised}"
            if self.told.raised
            else self.reading.wording
            if self.reading
            else ""
        )
        ids = {
            self.name,
            self.mark,
            self.planned.ask.instance,
            *(url[7:] for url in self.scene.settings.urls),
        }
        return normal_wording(words, ids - {""})

    @property
    def right(self) -> bool | None:
        """Did the program print the ground truth? None if there is none, or no result."""
        if self.truth is None or not self.planned.ask.truth:
            return None
        return self.truth.stdout.strip() == self.planned.ask.truth.strip()

    def asked_fields(self) -> dict[str, Any]:
        """Return the fields of a request as they were asked for, as far as this client can be
        given them."""
        ask, takes = self.planned.ask, self.takes
        unasked = {
            "code": "code" not in takes,
            "stdin": bool(ask.tests),
            "run_timeout": ask.timeout is None and "default_timeout" not in takes,
            "compile_timeout": "compile_timeout" not in takes,
            "memory_limit_MB": "memory" not in takes,
        }
        fields = {"stdin": None, "files": {}, **request_fields(ask, self.scene.settings)}
        return {name: value for name, value in fields.items() if not unasked.get(name)}


class TrialFacts:
    """All calls of a record, scene by scene."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.takes = record.takes
        self.tolerance = record.tolerance
        self.on_wall = record.stage == "wall"
        self.accepted: Mapping[str, Collection[str]] | None = None
        """The wordings per end that somebody has read and found true, if they were kept."""
        self.scenes: dict[str, list[CallFacts]] = {}
        self.unasked: list[tuple[str, SentRequest]] = []
        for name, played in record.scenes.items():
            planned = {one.ask.call: one for one in played.scene.calls}
            calls = [
                CallFacts(planned[one.ask.call], one, played, record.takes, self.on_wall)
                for one in played.calls
            ]
            self.scenes[name] = calls
            by_mark: dict[str, list[CallFacts]] = {}
            for call in calls:
                if call.planned.ask.arguments is UNSET:
                    by_mark.setdefault(call.mark, []).append(call)
            for request in played.requests:
                mark = request.mark
                if mark not in by_mark and (
                    named := _MARK.search(request.body.decode("utf-8", "replace"))
                ):
                    mark = named[1]  # the sandbox could not read it
                owners = by_mark.get(mark, [])
                earlier = [one for one in owners if one.played.asked_at <= request.at]
                if owners:
                    (earlier or owners)[-1 if earlier else 0].requests.append(request)
                else:
                    self.unasked.append((name, request))

    def __iter__(self) -> Iterator[CallFacts]:
        for calls in self.scenes.values():
            yield from calls

    def of(self, *scenes: str) -> list[CallFacts]:
        return [call for name in scenes for call in self.scenes.get(name, [])]
