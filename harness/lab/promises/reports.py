"""Promises about what a tool sends, what it reports about a call, and what it keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from ..facts.sent import WIRE_DEFAULTS, field_differences
from ..single_calls.calls import SuiteFacts
from .base import Promise
from .findings import Findings
from .leaving import find_held_instances
from .readings import read_calls
from .single_sent import find_differences
from .single_told import find_untrue_metrics

_NOTHING_MORE: dict[str, Any] = {"stdin": None, "files": {}}
_BROKE = range(500, 600)
_SLACK = 1e-3
_REAL_SLACK = 1.0
"""Outside of virtual time, a busy machine may stop anything between two events."""


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
        "route": "call {call} was sent to {method} {path} instead of POST /run_code",
    }
    of_single_calls = "Every request carries the exact code, fields, headers and content type."
    unseen = "no request came"
    identity = ("field",)

    def find(self, facts: SuiteFacts) -> Findings:
        return find_differences(facts)

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for call in run.made:
            asked = (call.called or {}).get("asked")
            if not asked:
                continue
            expected = {**run.began.get("asks", {}), **asked}
            usual = {
                key: value for key, value in expected.items() if value != WIRE_DEFAULTS.get(key)
            }
            expected = {
                key: value for key, value in expected.items() if value is not None
            } | _NOTHING_MORE
            for event in call.of_server("arrived"):
                if "sent" not in event:
                    continue
                if event["sent"] == usual and "lacks" not in event:
                    yield None
                    continue
                differing = next(iter(field_differences(expected, event["sent"])), None)
                if differing is not None:
                    kind = "code" if differing.field == "code" else "field"
                    facts = {
                        "field": differing.field,
                        "found": differing.found,
                        "expected": differing.expected,
                    }
                    yield self.broken(kind, [event], call=call.call, **facts)
                elif event.get("lacks"):
                    yield self.broken("header", [event], call=call.call, field=event["lacks"][0])
                else:
                    yield None


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
        truths = {one.call.call: one.truth for one in read_calls(run)}
        slack = _SLACK if run.journal.header.get("world") == "sim" else _REAL_SLACK
        for call in run.made:
            returned = call.returned or {}
            truth, told = truths.get(call.call), returned.get("exit")
            if (
                told is not None
                and truth is not None
                and truth.ending == "exited"
                and told != truth.exit
            ):
                yield self.broken_by(call, "exit", true=truth.exit, told=told)
            elif (
                run.has_client
                and call.returned
                and (wrong := _contradiction(call, returned, slack))
            ):
                kind, facts = wrong
                yield self.broken_by(call, kind, **facts)
            elif told is not None or (run.has_client and "attempts" in returned):
                yield None


def _contradiction(
    call: CallEvents, returned: dict[str, Any], slack: float
) -> tuple[str, dict[str, Any]] | None:
    made = len(call.of_client("attempt_started"))
    if returned.get("attempts", made) != made:
        return "attempts", {"true": made, "told": returned["attempts"]}
    waited = _waited(call)
    if waited is not None and abs(returned.get("waited", waited) - waited) > slack * (1 + waited):
        return "waited", {"true": waited, "told": returned["waited"]}
    ended = call.of_client("call_ended")
    # A gateway that refuses what has run misleads everybody.
    refused = {
        attempt_of(one)
        for one in call.answers
        if one["status"] == 503 or one["status"] not in (200, *_BROKE)
    }
    ran = any(attempt_of(one) not in refused for one in call.of_server("started"))
    return ("denied", {}) if ran and ended and not ended[-1].get("executions", 1) else None


def _waited(call: CallEvents) -> float | None:
    """Return how long a call that ended with an attempt waited for its permits, by the client's own
    events."""
    total, since = 0.0, None
    for event in call.client:
        match event["event"]:
            case "call_started":
                since = event["at"]
            case "backing_off":
                since = event["at"] + event["seconds"]
            case "permit_granted" if since is not None:
                total, since = total + event["at"] - since, None
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
        told = ("worker", "kept", "released", "first")
        found = [(one, {key: one[key] for key in told}) for one in looked if one["kept"]]
        wrong = [self.broken("kept", [one], one["kept"], **facts) for one, facts in found]
        return self.concluded(wrong, sum(one["released"] for one in looked))
