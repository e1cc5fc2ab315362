"""Promises about retries: what is sent again, when, and what a call holds meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from pydantic import Field

from ....fakes.faults import Seconds
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from .base import Promise

_TRANSIENT = frozenset({408, 425, 429, 502, 503, 504})
_UNUSABLE = ("null", "not_utf8")
"""Output without which an answer is not a result."""
_TOGETHER = 0.005
"""Seconds within which things happen together."""
_SAME = 0.001
"""Seconds within which pauses are the same, however short they are."""


class OnlyTransientRetried(Promise):
    """Only failures that may succeed next time are retried: not the result of a program, nor a
    request that was refused (4xx other than 408, 425 and 429). Judged at the sandbox; unknown if
    nothing failed."""

    needs = "ending"
    sentences: ClassVar = {
        "after_result": "call {call} was sent again after the result of its program",
        "after_refusal": "call {call} was sent again after status {status}",
        "nothing": (
            "no request was refused and no program failed, so nothing could be retried in vain"
        ),
        "held": "{judged:final answer}, none retried",
    }

    def check(self, run: RunEvents) -> Verdict:
        final = 0
        wrong: list[Verdict] = []
        crashes = {(one.get("sandbox"), one["at"]) for one in run.server if one["event"] == "crash"}
        for call in run.made:
            if (
                call.intent.get("kind") == "ok"
                and len(call.of_server("arrived")) < 2
                and call.succeeded
            ):
                continue
            results = {attempt_of(one) for one in call.results}
            # What was under way when the body was cut or the sandbox crashed did not reach the
            # client.
            strikes = call.of_server("strike")
            lost = {
                attempt_of(one)
                for one in strikes
                if one.get("phase") == "body" or one.get("what") in _UNUSABLE
            }
            lost |= {
                attempt_of(one) for one in call.server if (one.get("sandbox"), one["at"]) in crashes
            }
            answers = {id(one) for one in call.answers if attempt_of(one) not in lost}
            answer: Event | None = None
            for event in call.server:
                if event["event"] == "arrived" and answer is not None:
                    kind = "after_result" if answer["status"] == 200 else "after_refusal"
                    wrong.append(
                        self.broken(kind, [answer, event], call=call.call, status=answer["status"])
                    )
                    break
                if id(event) in answers:
                    status = event["status"]
                    refused = 400 <= status < 500 and status not in _TRANSIENT
                    if attempt_of(event) in results if status == 200 else refused:
                        answer = event
                        final += status != 200 or call.intent.get("kind") != "ok"
        return self.concluded(wrong, final)


class RetriesSpread(Promise):
    """Calls that were refused together are not retried together: most of a group of at least four
    return at different moments. Judged by the pauses that our client reports, for other tools by
    the requests at the sandbox."""

    exact: ClassVar[bool] = True
    needs = "ending"
    sentences: ClassVar = {
        "together": (
            "{herd} of {group} calls that were refused at {at:g} s came back "
            "together at {again:.4g} s"
        ),
        "nothing": "no four calls were refused together and sent again",
        "held": "{judged:group} of calls refused together, all spread",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        groups: list[list[_Return]] = []
        for one in sorted(_returns(run), key=lambda one: one.refused["at"]):
            if not groups or one.refused["at"] - groups[-1][0].refused["at"] > _TOGETHER:
                groups.append([])
            groups[-1].append(one)
        for group in (group for group in groups if len(group) > 3):
            herd = _herd(group, run.has_client)
            facts = {
                "herd": len(herd),
                "group": len(group),
                "at": group[0].refused["at"],
                "again": herd[0].again,
            }
            together = len(herd) > 3 and len(herd) * 2 > len(group)
            yield (
                self.broken("together", [one.refused for one in herd], **facts)
                if together
                else None
            )


class _Return(NamedTuple):
    refused: Event
    again: float
    """When the call comes back."""

    @property
    def pause(self) -> float:
        return self.again - float(self.refused["at"])


def _herd(group: list[_Return], has_client: bool) -> list[_Return]:
    """Return the most that came back together, or whose client chose the same pause.

    Short pauses that a client drew are near to each other by chance, so what is together depends on
    their length.
    """
    if not has_client:
        return _nearest(group, lambda one: one.again, _TOGETHER)
    drawn = min(one.pause - (one.refused["asked"] or 0.0) for one in group)
    width = min(max(drawn / 100, _SAME), _TOGETHER)
    return max(
        _nearest(group, lambda one: one.again, width),
        _nearest(group, lambda one: one.pause, width),
        key=len,
    )


def _nearest(
    group: list[_Return], place: Callable[[_Return], float], width: float
) -> list[_Return]:
    """Return as many as possible whose places differ by no more than this width."""
    ordered = sorted(group, key=place)
    best, start = (0, 0), 0
    for end, one in enumerate(ordered, 1):
        while place(one) - place(ordered[start]) > width:
            start += 1
        best = max(best, (start, end), key=lambda pair: pair[1] - pair[0])
    return ordered[slice(*best)]


def _returns(run: RunEvents) -> Iterator[_Return]:
    if run.has_client:
        for call in run.made:
            for event in call.of_client("backing_off"):
                yield _Return(event, event["at"] + event["seconds"])
        return
    # A request that was waiting for another one to end did not choose its moment; one without any
    # pause did.
    freed: dict[int, set[str]] = {}
    limit, in_flight = run.began.get("limit"), 0
    for one in run.server:
        if one["event"] == "arrived":
            in_flight += 1
        elif one["event"] in ("answered", "unanswered"):
            if in_flight >= limit if limit is not None else one["event"] == "answered":
                freed.setdefault(round(one["at"] / _TOGETHER), set()).add(one["call"])
            in_flight -= 1
    for call in run.made:
        for refused, again in _retries(call):
            at_once = again["at"] - refused["at"] <= _TOGETHER
            if at_once or freed.get(round(again["at"] / _TOGETHER), set()) <= {again["call"]}:
                yield _Return(refused, again["at"])


def _retries(call: CallEvents) -> Iterator[tuple[Event, Event]]:
    """Yield the answers that refused a request for now, each with the next request of the call."""
    slow = {attempt_of(one) for one in call.of_server("strike") if one.get("phase") == "body"}
    refusals = {
        id(one)
        for one in call.answers
        if one["status"] in _TRANSIENT and attempt_of(one) not in slow
    }
    refused: Event | None = None
    for event in call.server:
        if event["event"] == "arrived" and refused is not None:
            yield refused, event
            refused = None
        elif id(event) in refusals:
            refused = event


class NoPermitWhileBackingOff(Promise):
    """A call that backs off holds no permit for longer than `at_most`: others could use it. For
    other tools: while calls wait to be sent again and fewer than the tool's limit are in flight,
    those that were never sent do not wait longer than `at_most`."""

    exact: ClassVar[bool] = True
    needs = "ending"
    sentences: ClassVar = {
        "kept": "call {call} kept permit {permit} for {held:.3g} s after status {status}",
        "held_up": "from {at:g} s call {call} was not sent for {late:.3g} s, with {flying} "
        "in flight and a limit of "
        "{limit}: call {pausing} was waiting to be sent again",
        "no_permits": "the tool took no permits",
        "no_limit": "the limit is not known: the tool does not state a rate_limit",
        "not_clear": "at the sandbox it cannot be told what calls wait for",
        "nothing": "no request was refused for now",
        "never_again": "no call was sent again",
        "held": "{judged:request} refused for now, the permit released each time",
        "none_held_up": "no call waited for one that was waiting itself",
    }

    at_most: Seconds = Field(1.0, description="how long a permit may stay unused")

    def check(self, run: RunEvents) -> Verdict:
        if run.foreign:
            return self._at_the_sandbox(run)
        if not any(call.of_client("permit_granted") for call in run.made):
            return self.unknown("no_permits")
        refused = 0
        wrong: list[Verdict] = []
        for call in run.made:
            releases = call.of_client("permit_released")
            for answer in call.of_server("answered"):
                back = next(
                    (one for one in releases if one["at"] >= answer["at"] - _TOGETHER), None
                )
                if answer["status"] not in _TRANSIENT or answer.get("client_gone") or back is None:
                    continue
                refused += 1
                held = back["at"] - answer["at"]
                if held > self.at_most:
                    facts = {
                        "call": call.call,
                        "permit": back["permit"],
                        "held": held,
                        "status": answer["status"],
                    }
                    wrong.append(self.broken("kept", [answer, back], **facts))
        return self.concluded(wrong, refused)

    def _at_the_sandbox(self, run: RunEvents) -> Verdict:
        limit = run.began.get("limit")
        if limit is None:
            return self.not_applicable("no_limit")
        struck = {one["kind"] for one in run.server if one["event"] == "strike"}
        if struck - {"status"} or "pace" in run.began or run.is_disturbed:
            # A call that waits for its turn or its connection looks like one that waits for a
            # permit.
            return self.not_applicable("not_clear")
        pausing: dict[str, Event] = {}
        unsent: dict[str, Event] = {}
        flying: set[tuple[object, ...]] = set()
        idle: float | None = None
        seen = False
        for event in run.journal.events:
            name = str(event.get("call"))
            if idle is not None and event["at"] - idle > self.at_most:
                held, waiting = next(iter(pausing.values())), next(iter(unsent.values()))
                facts = {
                    "at": idle,
                    "call": waiting["call"],
                    "late": event["at"] - idle,
                    "flying": len(flying),
                }
                facts |= {"limit": limit, "pausing": held["call"]}
                return self.broken("held_up", [held, waiting, event], **facts)
            match event["source"], event["event"]:
                case "world", "called" if event["intent"].get("kind") != "bad_arguments":
                    unsent[event["intent"].get("mark") or name] = event
                case "world", "returned" | "cancelled" | "lost":
                    unsent.pop(name, None)
                    pausing.pop(name, None)
                case "server", "arrived":
                    unsent.pop(name, None)
                    pausing.pop(name, None)
                    flying.add(attempt_of(event))
                case "server", "answered" | "unanswered":
                    flying.discard(attempt_of(event))
                    if event["status"] in _TRANSIENT:
                        pausing[name] = event
                        seen = True
            waits = pausing and unsent and len(flying) < limit
            idle = (event["at"] if idle is None else idle) if waits else None
        if not seen:
            return self.unknown("never_again")
        return self.held("none_held_up")
