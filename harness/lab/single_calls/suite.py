"""All single calls of a run, or of several, folded from their journals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....fakes.call_mark import CALL_MARK
from ...core.journal import Event, Journal
from ..client import UNSET, Settings
from ..facts.truth import ProgramTruth
from .calls import CallFacts, RunFacts, SentRequest
from .planned import TEST, SingleCallPart, call_of_mark, plan_call


class SuiteFacts:
    """All single calls of one run, or of several that are judged together."""

    def __init__(self, journals: Iterable[Journal]) -> None:
        self.accepted: Mapping[str, Collection[str]] | None = None
        """The wordings per end that somebody has read and found true, if they were kept."""
        self.runs: list[RunFacts] = []
        self.calls: list[CallFacts] = []
        self.estimates: list[CallFacts] = []
        """The calls of an advantage estimator, which runs no program."""
        self.unasked: list[tuple[RunFacts, SentRequest]] = []
        for journal in journals:
            if has_single_calls(journal):
                self._read(journal)
        self.takes = self.runs[0].takes if self.runs else frozenset()
        self.tolerance = max((run.tolerance for run in self.runs), default=0.0)
        self.on_wall = any(run.on_wall for run in self.runs)
        for run in self.runs:  # of one trial: what is late in one run may be late in any
            run.tolerance = self.tolerance

    @property
    def unobserved(self) -> bool:
        """Did no request of the client come over the event loop?"""
        return bool(self.runs) and self.runs[0].unobserved

    def __iter__(self) -> Iterator[CallFacts]:
        return iter(self.calls)

    def of(self, run: RunFacts) -> list[CallFacts]:
        return [call for call in self.calls if call.run is run]

    def _read(self, journal: Journal) -> None:
        run = _run_facts(journal)
        calls = _calls(run)
        self.runs.append(run)
        for call in calls.values():
            (self.calls if call.ask.batch is None else self.estimates).append(call)
        _read_requests(run)
        by_program: dict[str, list[CallFacts]] = {}
        for call in calls.values():
            if call.ask.arguments is UNSET:
                by_program.setdefault(call.owner, []).append(call)
        for request in run.requests:
            owner = _asked_by(request, by_program, run.name)
            if owner is None:
                self.unasked.append((run, request))
            else:
                owner.requests.append(request)


def has_single_calls(journal: Journal) -> bool:
    """Does a journal tell of a client whose calls were planned one by one?"""
    return any("takes" in event for event in journal.events[:3])


def _run_facts(journal: Journal) -> RunFacts:
    began = next(event for event in journal.events if event["event"] == "began")
    stated = dict(began["settings"])
    stated["urls"] = ("",) * stated["urls"]
    stated["headers"] = dict.fromkeys(stated["headers"], "")
    run = RunFacts(
        journal,
        settings=Settings(**stated),
        takes=frozenset(began["takes"]),
        tolerance=float(began.get("tolerance", 0.0)),
        horizon=float(began.get("horizon", 0.0)),
        divided=bool(began.get("divided")),
        ended=journal.last_time,
    )
    for event in journal.events:
        _read_event(run, event)
    return run


def _read_event(run: RunFacts, event: Event) -> None:
    """Keep what an event says of the run as a whole."""
    if (kept := _KEPT_EVENTS.get(str(event["event"]))) is not None:
        getattr(run, kept).append(event)
        return
    match event["event"]:
        case "client_began":
            run.began = float(event["at"])
        case "client_left":
            run.left = event
        case "broken_off" if event["source"] == "world":
            run.broken_off = f"the run was broken off after {event['after']:g} s"
            run.ended = float(event["at"])
        case "stuck":
            run.broken_off = str(event["text"])
        case "clock_jumped":
            run.clock_jumps = True
        case "unobserved":
            run.unobserved = True


_KEPT_EVENTS = {
    "client_raised": "raised",
    "left_behind": "left_behind",
    "other_request": "other_requests",
    "log": "logged",
    "loop_blocked": "blocked",
    "printed": "logged",
    "crash": "crashes",
    "restart": "crashes",
}
"""The events that a run keeps as they are, with the list in which it keeps them."""


def _calls(run: RunFacts) -> dict[str, CallFacts]:
    """Return the calls of a run by their ids."""
    header = run.journal.header
    calls: dict[str, CallFacts] = {}
    programs: dict[str, Sequence[ProgramTruth]] = {}
    for event in run.journal.events:
        name = event.get("call", "")
        match event["event"]:
            case "called" if event["source"] == "world":
                part = SingleCallPart.model_validate(event["asked"])
                planned = plan_call(part, name, seed=header["seed"], scenario=header["scenario"])
                programs |= planned.programs
                calls[name] = CallFacts(planned, run, event)
            case "returned" | "cancelled" if name in calls:
                calls[name].ending = event
            case "lagged" if name in calls:
                calls[name].lag = float(event["seconds"])
            case "cut_off" if name in calls:
                calls[name].endless = True
            case "fields_changed":
                calls[name].later = event["fields"]
    for call in calls.values():
        call.truths = programs.get(call.owner, ())
    return calls


def _read_requests(run: RunFacts) -> None:
    """Fold the events of the sandboxes into requests."""
    found: dict[tuple[Any, ...], SentRequest] = {}
    executions: dict[tuple[Any, ...], int] = {}
    for event in run.journal.events:
        if event["source"] != "server" or "attempt" not in event:
            continue
        key = event.get("sandbox"), event["call"], event["attempt"], event.get("client", 0)
        if event["event"] == "arrived":
            mark, _, test = event["call"].partition(TEST)
            request = found[key] = SentRequest(event, mark, test)
            run.requests.append(request)
        if key not in found:
            continue
        request = found[key]
        request.events.append(event)
        match event["event"]:
            case "started":
                of_program = key[0], key[1], key[3]
                request.execution = executions.get(of_program, 0)
                executions[of_program] = request.execution + 1
            case "answered" | "unanswered":
                request.ended = float(event["at"])
                request.status = event["status"]
                request.client_gone = event["client_gone"]
                request.retry_after = event.get("retry_after")
                request.dated = bool(event.get("dated"))
            case "strike":
                request.faults += (event["kind"],)
            case "complained":
                request.complaint = event["text"]


def _asked_by(
    request: SentRequest, by_program: Mapping[str, list[CallFacts]], scenario: str
) -> CallFacts | None:
    """Return the call that a request is for: the last with its program that was made by then."""
    program = request.mark
    named = CALL_MARK.search(request.body)
    if program not in by_program and named is not None:
        program = call_of_mark(named[1], scenario)  # the sandbox could not read it
    calls = by_program.get(program, [])
    earlier = [call for call in calls if call.asked_at <= request.at]
    under_way = [call for call in earlier if call.ended_at is None or call.ended_at >= request.at]
    if len(under_way) > 1:  # made together: each has sent its own, in any order
        return min(under_way, key=lambda call: len(call.requests))
    if earlier:
        return earlier[-1]
    return calls[0] if calls else None


def played_ends(facts: SuiteFacts) -> Iterator[CallFacts]:
    """Yield the calls that were made in earnest: not cancelled, broken off or starved, nor free to
    end in any way."""
    for call in facts:
        free = call.cancelled or call.planned.end == "any" or not call.ask.executes
        if call.returned is not None and not free and not call.starved:
            yield call
