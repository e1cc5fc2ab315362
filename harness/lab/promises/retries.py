"""Promises about retries: what is sent again, when, and what a call holds meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from ....fakes.faults import Seconds
from ...core.events import AnyEvent, ClientEvent, SandboxEvent
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import ROUNDED, Promise
from .episode_results import find_early_creates
from .findings import Findings
from .single_call_requests import find_early_returns
from .single_call_retries import find_vain_retries

_TRANSIENT = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of HTTP that may be another next time."""
_UNUSABLE = ("null", "not_utf8")
"""Output without which an answer is not a result."""
_TOGETHER = 0.005
"""Seconds within which things happen together. Chosen: shorter than any pause of a client."""
_SAME = 0.001
"""Seconds within which pauses are the same, however short they are. Chosen."""
_HERD = 4
"""Calls that are a group, and as many as must come back together to be a herd. Chosen: three of
a few may meet by chance."""


class OnlyTransientRetried(Promise):
    """Only failures that may succeed next time are retried: not the result of a program, nor a
    request that was refused (4xx other than 408, 425 and 429). Judged at the sandbox; unknown if
    nothing failed."""

    needs = "ending"
    sentences: ClassVar = {
        "after_result": "call {call} was sent again after the result of its program",
        "after_refusal": "call {call} was sent again after status {status}",
        "after_crashes": "call {call}: its program made the sandbox fail with status 500, and was "
        "sent {times}x",
        "at_once": "call {call} was sent again {pause:.3f} s after a 504: its program may still "
        "run",
        "by_a_date": "call {call}: a Retry-After with a date, and no other refusal, made the "
        "client fail with {what}",
        "nothing": (
            "no request was refused and no program failed, so nothing could be retried in vain"
        ),
        "held": "{judged:final answer}, none retried",
    }

    of_single_calls = (
        "An attempt that cannot help is not made: after a status that says that the request is "
        "wrong (400, 401, 403, 405, 413, 415, 422), more than 6 times after a 500, or at once "
        "after a 504; and no form of Retry-After makes the client raise, or report an exception."
    )
    unseen = "no request was refused, and no sandbox failed with 500 or 504; see judge-failures"

    def find(self, facts: SuiteFacts) -> Findings:
        return find_vain_retries(facts)

    def check(self, run: RunEvents) -> Verdict:
        judged = 0
        wrong: list[Verdict] = []
        crashes = {_moment(event) for event in run.server if event["event"] == "crash"}
        for call in run.made:
            if _ended_at_once(call):
                continue
            finals = _final_answers(call, crashes)
            answer: SandboxEvent | None = None
            for event in call.server:
                if event["event"] == "arrived" and answer is not None:
                    status = answer["status"]
                    kind = "after_result" if status == 200 else "after_refusal"
                    wrong.append(self.broken(kind, [answer, event], call=call.call, status=status))
                    break
                if id(event) in finals:
                    answer = event
                    judged += event["status"] != 200 or call.intent.get("kind") != "ok"
        return self.concluded(wrong, judged)


def _moment(event: SandboxEvent) -> tuple[str | None, float]:
    """Return where and when something happened at a sandbox."""
    return event.get("sandbox"), event["at"]


def _ended_at_once(call: CallEvents) -> bool:
    """Did a call succeed with a single request?"""
    if call.intent.get("kind") != "ok" or len(call.of_server("arrived")) > 1:
        return False
    return call.succeeded


def _final_answers(call: CallEvents, crashes: set[tuple[str | None, float]]) -> set[int]:
    """Return the ids of the answers after which a call must not be sent again."""
    results = {attempt_of(result) for result in call.results}
    lost = _lost_answers(call, crashes)
    finals = set()
    for answer in call.answers:
        status = answer["status"]
        if status == 200:
            is_final = attempt_of(answer) in results
        else:
            is_final = 400 <= status < 500 and status not in _TRANSIENT
        if is_final and attempt_of(answer) not in lost:
            finals.add(id(answer))
    return finals


def _lost_answers(
    call: CallEvents, crashes: set[tuple[str | None, float]]
) -> set[tuple[object, ...]]:
    """Return the attempts whose answer did not reach the client as a result.

    Its body was cut, its output cannot be used, or it was under way when the sandbox crashed.
    """
    lost = {attempt_of(event) for event in call.server if _moment(event) in crashes}
    for strike in call.of_server("strike"):
        if strike.get("phase") == "body" or strike.get("what") in _UNUSABLE:
            lost.add(attempt_of(strike))
    return lost


class RetryAfterHonoured(Promise):
    """No call is retried before its Retry-After has passed. Judged at the sandbox; unknown if no
    call is retried."""

    needs = "ending"
    sentences: ClassVar = {
        "early": "call {call} was sent again {early:.3g} s before its Retry-After was over",
        "never_asked": "the sandbox never sent Retry-After",
        "never_again": "{asked:Retry-After header}, but no call was sent again",
        "held_one": "1 Retry-After header was respected",
        "held": "{asked} Retry-After headers, all respected",
        "early_date": (
            "call {call} was sent again {early:.2f} s before the date in its Retry-After"
        ),
        "hammered": (
            "call {call} was refused {times:time} without Retry-After, and sent again at once each "
            "time"
        ),
    }
    of_single_calls = (
        "After a 429 or 503 the client waits as long as Retry-After asks, in seconds or as a "
        "date; else it pauses."
    )
    unseen = (
        "no call was sent again after a 429 or 503 with Retry-After, as of a client "
        "with one attempt"
    )

    def find(self, facts: SuiteFacts) -> Findings:
        return find_early_returns(facts)

    def judge_episodes(self, facts: SandboxLives) -> Iterator[Verdict | None]:
        return self.of_findings(find_early_creates(facts))

    def check(self, run: RunEvents) -> Verdict:
        asked = 0
        again = 0
        wrong: list[Verdict] = []
        for call in run.made:  # code without a mark cannot be told apart from that of other calls
            waits = _asked_to_wait(call)
            asked += len(waits)
            latest: SandboxEvent | None = None
            for event in call.server:
                if event["event"] == "arrived" and latest is not None:
                    again += 1
                    early = latest["at"] + waits[id(latest)] - event["at"]
                    if early > ROUNDED:
                        wrong.append(
                            self.broken("early", [latest, event], call=call.call, early=early)
                        )
                if id(event) in waits:
                    latest = event
        if wrong:
            return self.first(wrong)
        if not again:
            return self.unknown("never_again" if asked else "never_asked", asked=asked)
        return self.held("held_one" if asked == 1 else "held", asked=asked)


def _asked_to_wait(call: CallEvents) -> dict[int, float]:
    """Return for each answer that a client could read the seconds for which it must wait."""
    if not any("retry_after" in event for event in call.server):
        return {}
    strikes = call.of_server("strike")
    broken_off = {attempt_of(strike) for strike in strikes if strike.get("phase") == "body"}
    waits: dict[int, float] = {}
    for answer in call.answers:
        seconds = _seconds(answer.get("retry_after"))
        if seconds is not None and attempt_of(answer) not in broken_off:
            waits[id(answer)] = seconds
    return waits


def _seconds(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None  # absent, or a date, which means nothing in virtual time


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
        for group in _refused_together(run):
            if len(group) < _HERD:
                continue
            herd = _herd(group, run.has_client)
            if len(herd) < _HERD or len(herd) * 2 <= len(group):
                yield None
                continue
            yield self.broken(
                "together",
                [back.refused for back in herd],
                herd=len(herd),
                group=len(group),
                at=group[0].refused["at"],
                again=herd[0].again,
            )


class _Return(NamedTuple):
    """A call that was refused for now and comes back."""

    refused: AnyEvent
    again: float
    """When the call comes back."""

    @property
    def pause(self) -> float:
        return self.again - float(self.refused["at"])


def _refused_together(run: RunEvents) -> list[list[_Return]]:
    """Return the calls that come back, in groups of those that were refused together."""
    groups: list[list[_Return]] = []
    for back in sorted(_returns(run), key=lambda back: back.refused["at"]):
        if not groups or back.refused["at"] - groups[-1][0].refused["at"] > _TOGETHER:
            groups.append([])
        groups[-1].append(back)
    return groups


def _herd(group: list[_Return], has_client: bool) -> list[_Return]:
    """Return the most that came back together, or whose client chose the same pause.

    Short pauses that a client drew are near to each other by chance, so what is together depends on
    their length.
    """
    if not has_client:
        return _nearest(group, lambda back: back.again, _TOGETHER)
    drawn = min(back.pause - (back.refused["asked"] or 0.0) for back in group)
    width = min(max(drawn / 100, _SAME), _TOGETHER)
    by_moment = _nearest(group, lambda back: back.again, width)
    by_pause = _nearest(group, lambda back: back.pause, width)
    return max(by_moment, by_pause, key=len)


def _nearest(
    group: list[_Return], place: Callable[[_Return], float], width: float
) -> list[_Return]:
    """Return as many as possible whose places differ by no more than this width."""
    ordered = sorted(group, key=place)
    best: list[_Return] = []
    start = 0
    for end, last in enumerate(ordered, 1):
        while place(last) - place(ordered[start]) > width:
            start += 1
        if end - start > len(best):
            best = ordered[start:end]
    return best


def _returns(run: RunEvents) -> Iterator[_Return]:
    """Yield the calls that come back, as the client reports it or as the sandbox sees it."""
    if run.has_client:
        for call in run.made:
            for event in call.of_client("backing_off"):
                yield _Return(event, event["at"] + event["seconds"])
        return
    # A request that was waiting for another one to end did not choose its moment; one without any
    # pause did.
    freed = _freed_places(run)
    for call in run.made:
        for refused, again in _retries(call):
            at_once = again["at"] - refused["at"] <= _TOGETHER
            ended = freed.get(round(again["at"] / _TOGETHER), set())
            if at_once or ended <= {again["call"]}:
                yield _Return(refused, again["at"])


def _freed_places(run: RunEvents) -> dict[int, set[str]]:
    """Return whose requests ended and let others be sent, by moments of ``_TOGETHER`` seconds."""
    freed: dict[int, set[str]] = {}
    limit = run.began.get("limit")
    in_flight = 0
    for event in run.server:
        if event["event"] == "arrived":
            in_flight += 1
        elif event["event"] in ("answered", "unanswered"):
            has_answer = event["event"] == "answered"
            lets_others = has_answer if limit is None else in_flight >= limit
            if lets_others:
                freed.setdefault(round(event["at"] / _TOGETHER), set()).add(event["call"])
            in_flight -= 1
    return freed


def _retries(call: CallEvents) -> Iterator[tuple[SandboxEvent, SandboxEvent]]:
    """Yield the answers that refused a request for now, each with the next request of the call."""
    strikes = call.of_server("strike")
    slow = {attempt_of(strike) for strike in strikes if strike.get("phase") == "body"}
    transient = [answer for answer in call.answers if answer["status"] in _TRANSIENT]
    refusals = {id(answer) for answer in transient if attempt_of(answer) not in slow}
    refused: SandboxEvent | None = None
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
            for answer, release in _refusals_and_releases(call):
                refused += 1
                held = release["at"] - answer["at"]
                if held > self.at_most:
                    kept = self.broken(
                        "kept",
                        [answer, release],
                        call=call.call,
                        permit=release["permit"],
                        held=held,
                        status=answer["status"],
                    )
                    wrong.append(kept)
        return self.concluded(wrong, refused)

    def _at_the_sandbox(self, run: RunEvents) -> Verdict:
        limit = run.began.get("limit")
        if limit is None:
            return self.not_applicable("no_limit")
        if "pace" in run.began or run.is_disturbed or _is_struck_otherwise(run):
            # A call that waits for its turn or its connection looks like one that waits for a
            # permit.
            return self.not_applicable("not_clear")
        line = _Line(limit)
        for event in run.journal.events:
            if line.idle_since is not None and event["at"] - line.idle_since > self.at_most:
                pausing = next(iter(line.pausing.values()))
                unsent = next(iter(line.unsent.values()))
                return self.broken(
                    "held_up",
                    [pausing, unsent, event],
                    at=line.idle_since,
                    call=unsent["call"],
                    late=event["at"] - line.idle_since,
                    flying=len(line.flying),
                    limit=limit,
                    pausing=pausing["call"],
                )
            line.follow(event)
        if not line.has_paused:
            return self.unknown("never_again")
        return self.held("none_held_up")


def _refusals_and_releases(call: CallEvents) -> Iterator[tuple[SandboxEvent, ClientEvent]]:
    """Yield the answers that refused a request for now, each with the release of its permit."""
    releases = call.of_client("permit_released")
    for answer in call.of_server("answered"):
        if answer["status"] not in _TRANSIENT or answer.get("client_gone"):
            continue
        for release in releases:
            if release["at"] >= answer["at"] - _TOGETHER:
                yield answer, release
                break


def _is_struck_otherwise(run: RunEvents) -> bool:
    """Did a fault strike that is more than a status?"""
    return any(event["event"] == "strike" and event["kind"] != "status" for event in run.server)


class _Line:
    """The calls of a run that are not in flight, as far as a sandbox sees them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pausing: dict[str, Event] = {}
        """The answers that refused calls which have not been sent again."""
        self.unsent: dict[str, Event] = {}
        """The calls that were never sent."""
        self.flying: set[tuple[object, ...]] = set()
        self.idle_since: float | None = None
        """Since when calls were not sent, though fewer than the limit were in flight."""
        self.has_paused = False

    def follow(self, event: Event) -> None:
        """Take up the next event of the journal."""
        name = str(event.get("call"))
        match event["source"], event["event"]:
            case "world", "called" if event["intent"].get("kind") != "bad_arguments":
                self.unsent[event["intent"].get("mark") or name] = event
            case "world", "returned" | "cancelled" | "lost":
                self._leave(name)
            case "server", "arrived":
                self._leave(name)
                self.flying.add(attempt_of(event))
            case "server", "answered" | "unanswered":
                self.flying.discard(attempt_of(event))
                if event["status"] in _TRANSIENT:
                    self.pausing[name] = event
                    self.has_paused = True
        if not self.pausing or not self.unsent or len(self.flying) >= self.limit:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = event["at"]

    def _leave(self, name: str) -> None:
        self.unsent.pop(name, None)
        self.pausing.pop(name, None)
