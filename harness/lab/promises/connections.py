"""Promises about HTTP connections: they are kept open for the next request, and dead ones are not used."""

from __future__ import annotations

from typing import Any, ClassVar

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import Story, attempt_of
from sfusion.harness.lab.promises.verdict import Verdict

_KEEP_ALIVE = 5.0
"""After so many idle seconds the server closes a connection."""
_USABLE = 4.5
_FRESH = 1.0
"""A connection that was idle for longer may have been closed by a careful client."""


class ConnectionsReused(Promise):
    """Connections are kept open and used again: new ones, opened while a connection of the same worker is idle that
    just delivered a result, are fewer than requests on connections that are used again. Judged at the sandbox."""

    exact: ClassVar[bool] = True
    sentences: ClassVar = {
        "needless": "call {call} opened connection {connection} while another was idle; {again} of {requests:request} "
        "used an open one",
        "nothing": "no request could have used the connection of an earlier one",
        "held": "{again:request} on connections that were used again, {needless} on needless ones",
    }

    def judge(self, story: Story) -> Verdict:
        # Whoever gives up a call closes its connection, whether or not the answer has just arrived.
        results = {id(one) for call in story.made if call.returned for one in call.results}
        worker_of = {id(one): (call.called or {}).get("worker") for call in story.made for one in call.server}
        place = {id(event): number for number, event in enumerate(story.journal.events)}
        chosen = {
            id(event): place[id(start)]
            for call in story.made
            for start in (call.called, *call.of_client("attempt_started"))
            if start is not None
            for event in call.of_server("arrived")
            if place[id(start)] < place[id(event)]
        }
        """When a request chose its connection, as far as is known: maybe long before it arrived."""
        freed = {
            id(result): place[id(end)]
            for call in story.made
            if call.returned
            for result in call.results
            for end in (call.returned, *call.of_client("attempt_ended"))
            if end is call.returned or end["attempt"] == result.get("attempt")
        }
        """When a client had read a result."""
        idle: dict[tuple[Any, Any], tuple[Event, Event]] = {}
        """The last request and its result on each connection."""
        requests: dict[tuple[Any, ...], Event] = {}
        known: set[tuple[Any, Any]] = set()
        opened: dict[tuple[Any, Any], float] = {}
        """When connections were opened on which the first request was delayed."""
        again, needless = 0, []
        for event in story.server:
            if event["event"] == "crash":
                idle.clear()
            elif event["event"] == "strike" and event["phase"] == "connect":
                opened.setdefault((event.get("sandbox"), int(event["call"].rpartition("-")[2])), event["at"])
            elif event["event"] == "arrived" and "connection" in event:
                requests[attempt_of(event)] = event
                began = opened.get(_connection(event), event["at"])
                if _connection(event) in known:
                    again += 1
                    idle.pop(_connection(event), None)
                else:
                    unused = (
                        connection
                        for connection, (request, result) in idle.items()
                        if worker_of.get(id(event)) == worker_of[id(result)]
                        and event.get("sandbox") == result.get("sandbox")
                        # Those that arrive at the same moment were on their way together.
                        and request["at"] < event["at"]
                        and result["at"] <= began < result["at"] + _FRESH
                        and freed[id(result)] < chosen.get(id(event), place[id(event)])
                    )
                    if (connection := next(unused, None)) is not None:
                        del idle[connection]  # it could have served one request, not all of them
                        needless.append(event)
                known.add(_connection(event))
            elif id(event) in results and (request := requests.get(attempt_of(event))) is not None:
                idle[_connection(request)] = (request, event)
        if not again and not needless:
            return self.unknown("nothing")
        if len(needless) > again:
            facts = {"call": needless[0]["call"], "connection": needless[0]["connection"]}
            facts |= {"again": again, "requests": again + len(needless)}
            return self.broken("needless", needless, len(needless), **facts)
        return self.held(again=again, needless=len(needless))


def _connection(event: Event) -> tuple[Any, Any]:
    return event.get("sandbox"), event["connection"]


class NoDeadConnectionUsed(Promise):
    """No request is sent on a connection that the sandbox is about to close: it does so after 5 idle seconds, and what
    is sent within half a second of that may be lost on the way. Judged at the sandbox."""

    exact: ClassVar[bool] = True
    needs = "ending"
    sentences: ClassVar = {
        "dead": "call {call} was sent on a connection that had been idle for {idle:.3g} s; the sandbox closes it after "
        f"{_KEEP_ALIVE:g} s",
        "nothing": f"no connection was idle for {_USABLE:g} s before another request",
        "held": "{judged:request} after a connection had expired, none on it",
    }

    def judge(self, story: Story) -> Verdict:
        idle: dict[tuple[Any, Any], Event] = {}
        requests: dict[tuple[Any, ...], Event] = {}
        expired = False
        after = 0
        wrong: list[Verdict] = []
        for event in story.server:
            if event["event"] == "arrived" and "connection" in event:
                requests[attempt_of(event)] = event
                expired = expired or any(event["at"] - one["at"] > _USABLE for one in idle.values())
                after += expired
                since = idle.pop(_connection(event), event)
                if event["at"] - since["at"] > _USABLE:
                    waited = event["at"] - since["at"]
                    wrong.append(self.broken("dead", [since, event], call=event["call"], idle=waited))
            elif event["event"] == "answered" and (request := requests.get(attempt_of(event))) is not None:
                idle[_connection(request)] = event
        return self.concluded(wrong, after)
