"""Promises about the limiter: the limit, the order of grants, and that no permit is lost."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from sfusion.fakes.faults import Seconds
from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import Story, attempt_of
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted


class InFlightWithinLimit(Promise):
    """The whole cluster never has more attempts in flight than the limiter allows.

    Counted at the client, from the start of an attempt to its end, the death of its worker or the expiry of its lease;
    for tools that do not report attempts, counted at the sandbox.
    """

    needs = "ending"

    limit: int | None = Field(None, ge=1, description="the limit; default: the rate_limit of the tools")

    def judge(self, story: Story) -> Verdict:
        limit = self.limit or story.began.get("limit")
        if limit is None:
            why = "the limit is not known: the tool does not state a rate_limit, and the promise no `limit`"
            return self.not_applicable(why) if story.foreign else self.unknown(why)
        found = count_in_flight(_client_steps(story) if story.has_client else _server_steps(story), limit)
        if not found.peak:
            why = "no attempt was observed"
            return self.not_applicable(why) if story.foreign else self.unknown(why)
        where = "in flight"
        if not found.broken and story.has_client and _is_calm(story):
            # Whatever the client reports, the sandbox must not see more attempts than the limit.
            where = f"in flight at the sandbox (the client reports a peak of {found.peak})"
            seen = count_in_flight(_server_steps(story), limit)
            found = seen if seen.broken or seen.peak > found.peak else found
        if found.broken:
            at = found.first[-1]["at"]
            text = f"at {at:g} s {found.crowd} attempts were {where}; the limit is {found.limit}"
            return self.broken(text, found.first, found.broken)
        limits = list(dict.fromkeys(found.limits))
        last = f"the limit is {limit}" if len(limits) == 1 else f"the limit was {', then '.join(map(str, limits))}"
        return self.held(f"at most {found.peak} in flight, {last}")


@dataclass
class _Counted:
    """How many attempts were in flight."""

    peak: int = 0
    broken: int = 0
    """How often the limit in force was exceeded."""
    first: list[Event] = field(default_factory=list)
    """The attempts that exceeded it first."""
    crowd: int = 0
    """How many there were then."""
    limit: int = 0
    """The limit in force then."""
    limits: list[int] = field(default_factory=list)


def count_in_flight(steps: list[tuple[str, Any, Event]], limit: int) -> _Counted:
    """Count attempts in flight against the limit in force.

    Steps in order: `begin` and `end` of an attempt, `granted` and `returned` of a permit, `limit` for a new limit.
    """
    found = _Counted(limits=[limit])
    flying: dict[Any, Event] = {}
    out: set[str] = set()
    allowed = 0
    for kind, key, event in steps:
        match kind:
            case "limit":
                # Permits that are out may be used, also those still on their way; their number may only fall until it
                # reaches the new limit.
                limit, allowed = event["rate_limit"], max(len(flying), len(out))
                found.limits.append(limit)
            case "granted":
                out.add(key)
            case "returned":
                out.discard(key)
                allowed = min(allowed, max(len(flying), len(out)))
            case "begin":
                flying[key] = event
                found.peak = max(found.peak, len(flying))
                if len(flying) > max(limit, allowed):
                    found.broken += 1
                    if found.broken == 1:
                        found.first = [*list(flying.values())[-5:], event]
                        found.crowd, found.limit = len(flying), limit
            case _:
                flying.pop(key, None)
                allowed = min(allowed, max(len(flying), len(out)))
    return found


def _is_calm(story: Story) -> bool:
    """Was there no death, pause or resize? After one, the sandbox may see attempts that no longer count."""
    return not (
        story.of_world("worker_died", "worker_paused", "cut_off", "limiter_died", "limiter_paused")
        or any(event["event"] in ("expired", "resized") for event in story.limiter)
    )


def _client_steps(story: Story) -> list[tuple[str, Any, Event]]:
    steps: list[tuple[str, Any, Event]] = []
    holder: dict[str, Any] = {}
    by_worker: dict[str, dict[Any, None]] = {}
    granted_at: dict[Any, float] = {}
    resumes_at: dict[str, float] = {}
    stalled: set[str] = set()
    learned: set[str] = set()
    expired: set[Any] = set()
    for event in story.journal.events:
        key = (event.get("call"), event.get("attempt"))
        if event["event"] in ("worker_paused", "cut_off"):
            stalled.add(event["worker"])
        match event["event"]:
            case "permit_granted" if event["source"] == "client":
                holder[event["permit"]] = key
                granted_at[key] = event["at"]
            case "worker_paused":
                resumes_at[event["worker"]] = event["at"] + event["seconds"]
            case "attempt_started" if (
                key in expired and granted_at[key] < resumes_at.get(event["worker"], 0.0) <= event["at"]
            ):
                pass  # its process was stopped between the grant and the request: an attempt in flight, as it were
            case "attempt_started":
                steps.append(("begin", key, event))
                by_worker.setdefault(event["worker"], {})[key] = None
            case "attempt_ended":
                steps.append(("end", key, event))
                by_worker.get(event["worker"], {}).pop(key, None)
            case "granted" | "learned" if event["source"] == "limiter":
                steps.append(("granted", event["permit"], event))
                if event["event"] == "learned" and event["worker"] in stalled:
                    learned.add(event["permit"])
            case "released" | "expired" if event["source"] == "limiter":
                steps.append(("returned", event["permit"], event))
                # A client that was stalled for a lease gives a new limiter back what the old one may have given away.
                if event["permit"] in holder and (event["event"] == "expired" or event["permit"] in learned):
                    expired.add(holder[event["permit"]])
                    steps.append(("end", holder[event["permit"]], event))
            case "worker_died":
                steps += [("end", one, event) for one in by_worker.get(event["worker"], {})]
            case "resized" if event["source"] == "limiter":
                steps.append(("limit", None, event))
    return steps


def _server_steps(story: Story) -> list[tuple[str, Any, Event]]:
    # A program whose client has left keeps running at the sandbox, but is no longer counted as an attempt.
    # For a program that outlived the scenario, only a client that reports its attempts shows whether it had left.
    endings = {attempt_of(e): e for e in story.server if e["event"] in ("answered", "unanswered")}
    left = {key for key, event in endings.items() if event.get("client_gone")}
    arrivals = [e for e in story.server if e["event"] == "arrived"]
    last = {e["call"]: attempt_of(e) for e in arrivals}
    # Nor for one that never answers, once it has asked again: it may have left long before.
    asked_again = {attempt_of(e) for e in arrivals if story.has_client or attempt_of(e) != last[e["call"]]}
    left |= asked_again - endings.keys()
    steps: list[tuple[str, Any, Event]] = []
    under_way: dict[str, list[Any]] = {}
    over: dict[str, float] = {}
    for event in story.journal.events:
        key = attempt_of(event)
        if event["source"] == "world" and event["event"] in ("returned", "cancelled", "lost"):
            # A program may outlive its call, and with it the run: the tool waits for it no longer.
            steps += [("end", one, event) for one in under_way.pop(event["call"], ())]
            over[event["call"]] = event["at"]
        elif event["source"] == "server" and event["event"] == "crash":
            # All its requests are over at once, whenever it gets to reporting them.
            for mine in under_way.values():
                steps += [("end", one, event) for one in mine if one[0] == event.get("sandbox")]
        elif event["source"] != "server" or key in left:
            continue
        elif event["event"] == "arrived" and event["at"] <= over.get(event["call"], -1.0):
            continue  # it was on its way when its call was cancelled
        elif event["event"] == "arrived":
            under_way.setdefault(event["call"], []).append(key)
            steps.append(("begin", key, event))
        elif event["event"] in ("answered", "unanswered"):
            steps.append(("end", key, event))
    return steps


class NoPermitLeaked(Promise):
    """At the end of the run every permit has been returned: released, or expired where a worker died, was paused or cut
    off. An expired permit of a healthy worker counts as leaked."""

    needs = "ending"
    of_permits = True

    def judge(self, story: Story) -> Verdict:
        if not story.limiter and not (story.ended or {}).get("limiter"):
            return self.unknown("the limiter of this tool cannot be observed")
        if story.ended is None:
            return self.unknown("the run did not finish")
        out: dict[str, Event] = {}
        lost: list[Event] = []
        for event in story.journal.events:
            if event["event"] == "limiter_died":
                out.clear()  # the clients report to the next limiter what they hold
            elif event["source"] != "limiter":
                continue
            elif event["event"] in ("granted", "learned"):
                out[event["permit"]] = event
            elif event["event"] in ("released", "expired") and out.pop(event["permit"], None) is None:
                lost.append(event)
        state = story.ended.get("limiter") or {}
        if out or state.get("in_use"):
            held = list(out.values())
            names = f"permit {held[0]['permit']} of {held[0]['worker']}" if held else "a permit"
            return self.broken(f"{names} was never returned", [*held[:4], story.ended], max(len(out), 1))
        if state.get("waiting"):
            return self.broken("callers are still queued after the end", [story.ended], state["waiting"])
        if lost:
            return self.broken(f"permit {lost[0]['permit']} was released but never granted", lost, len(lost))
        late = _unexcused_expiries(story)
        if late:
            text = (
                f"permit {late[0]['permit']} of {late[0]['worker']} (alive) was not released before its lease expired"
            )
            return self.broken(text, late, len(late))
        granted = sum(one["event"] == "granted" for one in story.limiter)
        return self.held(f"{counted(granted, 'permit')} granted, all returned")


def _unexcused_expiries(story: Story) -> list[Event]:
    """Return expiries of permits whose worker was alive, running and connected."""
    if story.began.get("loss") or story.of_world("limiter_died"):
        return []
    excused = {one["worker"] for one in story.of_world("worker_died", "worker_paused", "cut_off")}
    return [one for one in story.limiter if one["event"] == "expired" and one["worker"] not in excused]


class GrantsInOrder(Promise):
    """Permits are granted first come, first served: never while an earlier ticket is queued."""

    needs = "ending"
    of_permits = True

    def judge(self, story: Story) -> Verdict:
        if not story.limiter:
            return self.unknown("the limiter of this tool cannot be observed")
        queue: dict[int, Event] = {}
        tickets: list[int] = []  # a heap; tickets that have left the queue are dropped when they reach its top
        wrong: list[tuple[Event, Event]] = []
        served = 0
        for event in story.journal.events:
            if event["event"] == "limiter_died":
                queue.clear()
            if event["source"] != "limiter":
                continue
            ticket = event.get("ticket")
            if event["event"] == "asked":
                queue[event["ticket"]] = event
                heapq.heappush(tickets, event["ticket"])
            elif event["event"] in ("cancelled", "dropped"):
                queue.pop(event["ticket"], None)
            elif event["event"] in ("granted", "handed_on") and ticket is not None:
                served += 1
                queue.pop(ticket, None)
                while tickets and tickets[0] not in queue:
                    heapq.heappop(tickets)
                if tickets and tickets[0] < ticket:
                    overtaken = queue[tickets[0]]
                    # A client reports late which of its own waiters it served, in any order within a batch.
                    if event["event"] == "granted" or overtaken["worker"] != event["worker"]:
                        wrong.append((overtaken, event))
        if wrong:
            waiting, event = wrong[0]
            text = (
                f"at {event['at']:g} s ticket {event['ticket']} of {event['worker']} was served while "
                f"ticket {waiting['ticket']} of {waiting['worker']} was queued"
            )
            return self.broken(text, [waiting, event], len(wrong))
        if not served:
            return self.unknown("no permit was granted")
        return self.held(f"{counted(served, 'grant')}, all in order")


class NoStarvation(Promise):
    """No caller waits for a permit longer than `at_most`."""

    needs = "ending"
    of_permits = True

    at_most: Seconds = Field(60.0, description="maximum wait for a permit")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"at_most": value}

    def judge(self, story: Story) -> Verdict:
        if not story.limiter:
            return self.unknown("the limiter of this tool cannot be observed")
        asked: dict[tuple[str, int], Event] = {}
        earlier: dict[tuple[str, int], Event] = {}
        longest, late, served = 0.0, [], 0
        last = story.journal.events[-1]
        for event in story.journal.events:
            if event["event"] == "worker_died":
                asked = {key: one for key, one in asked.items() if key[0] != event["worker"]}
            if event["event"] == "limiter_died":
                # Clients report to the next limiter who still waits; the others have been served by their own client.
                earlier |= asked
                asked = {}
            if event["source"] != "limiter":
                continue
            key = (event["worker"], event.get("waiter", -1))
            if event["event"] == "asked":
                asked.setdefault(key, earlier.pop(key, event))
            elif event["event"] == "dropped" and key in asked:
                earlier[key] = asked.pop(key)  # as at the death of a limiter
            elif event["event"] in ("granted", "handed_on", "cancelled"):
                since = asked.pop(key, None)
                if since is not None:
                    served += 1
                    waited = event["at"] - since["at"]
                    longest = max(longest, waited)
                    if waited > self.at_most:
                        late.append((since, event, waited))
        waiting = [(since, last, last["at"] - since["at"]) for since in asked.values()]
        late += [one for one in waiting if one[2] > self.at_most]
        if late:
            since, until, waited = late[0]
            text = f"{since['worker']} waited {waited:g} s for a permit from {since['at']:g} s"
            return self.broken(f"{text}, promised {self.at_most:g} s", [since, until], len(late))
        if waiting:
            text = f"{counted(len(waiting), 'caller')} still waited for a permit when the run ended"
            return self.unknown(f"{text}, the longest for {max(one[2] for one in waiting):.3g} s")
        if not served:
            return self.unknown("no permit was asked for")
        return self.held(f"the longest wait for a permit was {longest:.3g} s")
