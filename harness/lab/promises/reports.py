"""Promises about what a tool sends, what it reports about a call, and what it keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ...core.events import ReturnedEvent, SandboxEvent
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from ..facts.sent import WIRE_DEFAULTS, field_differences
from ..facts.truth import ProgramTruth
from ..single_calls.suite import SuiteFacts
from .base import Promise
from .findings import Findings
from .leaving import find_held_instances
from .readings import read_calls
from .single_call_requests import find_differences
from .single_call_results import find_untrue_metrics

_NOTHING_MORE: dict[str, Any] = {"stdin": None, "files": {}}
_BROKE = range(500, 600)
"""Statuses of HTTP of a server that failed."""
_SLACK = 1e-3
"""Seconds by which a reported wait may differ from the events in virtual time: chosen, above the
rounding of both."""
_REAL_SLACK = 1.0
"""The same where time is real: chosen, because a busy machine may stop anything between two
events."""


class SentAsAsked(Promise):
    """Every request carries what its call asked for: the code byte for byte, its language, the
    timeout of the call or the config, the config's memory limit, compiler timeout and headers, as
    JSON. Judged at the sandbox, for keys in the tool's config."""

    needs = "ending"
    sentences: ClassVar = {
        "field": "call {call} was sent with {field} {found}, asked for was {expected}",
        "code": "call {call} was sent with other code than it was given",
        "header": "call {call} was sent without the header {field} as configured",
        "nothing": "no request was sent for a call whose arguments are known",
        "held": "{judged:request}, all as asked",
        "not_sent": "call {call} was sent without {field}, asked for was {expected}",
        "unreadable": "call {call} was sent with a body that is not a JSON object: {body}",
        "unasked": "a request came that no call asked for, with the body {body}",
        "rejected": "call {call} was refused by the sandbox with {status}: {complaint}",
        "refused": "call {call}: arguments {arguments} were sent to the sandbox as a program",
        "limits_nothing": "call {call}: its timeout of {asked:g} s limits nothing: "
        "the sandbox may take {sent:g} s, and the client waited for {waited:.0f} s",
        "route": "call {call} was sent to {method} {path} instead of POST /run_code",
    }
    of_single_calls = "Every request carries the exact code, fields, headers and content type."
    unseen = "no request came"
    identity = ("field",)

    def find(self, facts: SuiteFacts) -> Findings:
        return find_differences(facts)

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for call in run.made:
            asked = None if call.called is None else call.called.get("asked")
            if not asked:
                continue
            wanted = {**run.began.get("asks", {}), **asked}
            usual = {key: value for key, value in wanted.items() if value != WIRE_DEFAULTS.get(key)}
            expected = {key: value for key, value in wanted.items() if value is not None}
            expected |= _NOTHING_MORE
            for request in call.of_server("arrived"):
                if "sent" not in request:
                    continue
                if request["sent"] == usual and "lacks" not in request:
                    yield None  # most requests are like this, and need no comparison
                else:
                    yield self._difference(call, request, expected)

    def _difference(
        self, call: CallEvents, request: SandboxEvent, expected: dict[str, Any]
    ) -> Verdict | None:
        """Return the first thing in which a request is not as it was asked for."""
        for differing in field_differences(expected, request["sent"]):
            return self.broken(
                "code" if differing.field == "code" else "field",
                [request],
                call=call.call,
                field=differing.field,
                found=differing.found,
                expected=differing.expected,
            )
        if request.get("lacks"):
            return self.broken("header", [request], call=call.call, field=request["lacks"][0])
        return None


class MetricsAreTrue(Promise):
    """The metrics of a call match the wire: its exit code, the number of its attempts, how long it
    waited for permits, and whether its program may have run. Attempts and waits are those of our
    own client."""

    needs = "ending"
    sentences: ClassVar = {
        "exit": "call {call} ended with exit code {true}, reported is {told}",
        "attempts": "call {call} made {true:attempt}, reported are {told}",
        "waited": "call {call} waited {true:.4g} s for permits, reported are {told:.4g} s",
        "denied": "the program of call {call} began to run, but the client reports that it did not",
        "nothing": "the tool reports none of this",
        "held": "{judged:call}, all as reported",
        "shared": "{call}: the fields that it returned were changed later: {before} became {after}",
        "executions": "{call}: {field} says {told}, but its program was run {true:time}",
        "status": "{call}: {field} says {told}, but the last answer had {true}",
        "time": "{call}: {field} says {told:.3f} s, but on the wire it was {true:.3f} s",
    }
    identity = ("field",)
    of_single_calls = "The metrics of a call are its own and match what was sent and received."
    unseen = (
        "no result has fields beside its text, such as `attempts`, `total_s` or `permit_wait_s`"
    )

    def find(self, facts: SuiteFacts) -> Findings:
        return find_untrue_metrics(facts)

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        truths = {read.call.call: read.truth for read in read_calls(run)}
        slack = _SLACK if run.journal.header.get("world") == "sim" else _REAL_SLACK
        for call in run.made:
            returned = call.returned
            if returned is None:
                continue
            wrong = _wrong_exit(returned.get("exit"), truths.get(call.call))
            if wrong is None and run.has_client:
                wrong = _contradiction(call, returned, slack)
            if wrong is not None:
                kind, facts = wrong
                yield self.broken_by(call, kind, **facts)
            elif returned.get("exit") is not None or (run.has_client and "attempts" in returned):
                yield None


_Untrue = tuple[str, dict[str, Any]]
"""The kind of a sentence about a metric, and its parameters."""


def _wrong_exit(told: int | None, truth: ProgramTruth | None) -> _Untrue | None:
    """Return how the reported exit code differs from that of the program."""
    if told is None or truth is None or truth.ending != "exited" or told == truth.exit:
        return None
    return "exit", {"true": truth.exit, "told": told}


def _contradiction(call: CallEvents, returned: ReturnedEvent, slack: float) -> _Untrue | None:
    """Return how what is reported about attempts differs from the events of the client."""
    made = len(call.of_client("attempt_started"))
    if returned.get("attempts", made) != made:
        return "attempts", {"true": made, "told": returned["attempts"]}
    waited = _waited(call)
    told = returned.get("waited")
    if waited is not None and told is not None and abs(told - waited) > slack * (1 + waited):
        return "waited", {"true": waited, "told": told}
    ended = call.of_client("call_ended")
    denies = bool(ended) and not ended[-1].get("executions", 1)
    return ("denied", {}) if denies and _ran(call) else None


def _ran(call: CallEvents) -> bool:
    """Did the program of a call begin to run, as far as a client can know?

    A gateway that refuses what has run misleads everybody.
    """
    refused = {attempt_of(answer) for answer in call.answers if _is_refusal(answer["status"])}
    return any(attempt_of(start) not in refused for start in call.of_server("started"))


def _is_refusal(status: int) -> bool:
    return status == 503 or status not in (200, *_BROKE)


def _waited(call: CallEvents) -> float | None:
    """Return how long a call waited for its permits, by the client's own events.

    None if it did not end with an attempt.
    """
    total = 0.0
    since: float | None = None
    for event in call.client:
        match event["event"]:
            case "call_started":
                since = event["at"]
            case "backing_off":
                since = event["at"] + event["seconds"]
            case "permit_granted" if since is not None:
                total = total + event["at"] - since
                since = None
    return total if since is None and call.client else None


class InstancesReleased(Promise):
    """A tool keeps nothing of a released instance. Judged by its own dicts, lists and sets at the
    end of a run in virtual time."""

    needs = "ending"
    sentences: ClassVar = {
        "kept": (
            "at the end the tool of {worker} keeps {kept} of {released} released "
            "instances, first {first}"
        ),
        "nothing": "nobody looked into the tools",
        "held": "{judged:instance} released, none kept",
        "still_held": (
            "after {run} the client still holds {held:instance} that were released, such as {first}"
        ),
    }
    of_single_calls = "The client holds nothing of a released instance."
    unseen = "no run was played to its end"

    def find(self, facts: SuiteFacts) -> Findings:
        return find_held_instances(facts)

    def check(self, run: RunEvents) -> Verdict:
        looked = run.of_world("looked_inside")
        wrong = [self._kept(event) for event in looked if event["kept"]]
        return self.concluded(wrong, sum(event["released"] for event in looked))

    def _kept(self, event: Event) -> Verdict:
        told = ("worker", "kept", "released", "first")
        facts = {key: event[key] for key in told}
        return self.broken("kept", [event], event["kept"], **facts)
