"""Promises about HTTP connections: they are kept open for the next request, and dead ones are
not used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from .base import Promise

_KEEP_ALIVE = 5.0
"""After so many idle seconds the server closes a connection."""
_USABLE = 4.5
_FRESH = 1.0
"""A connection that was idle for longer may have been closed by a careful client."""


class ConnectionsReused(Promise):
    """Connections are kept open and used again: new ones, opened while a connection of the same
    worker is idle that just delivered a result, are fewer than requests on connections that are
    used again. Judged at the sandbox."""

    exact: ClassVar[bool] = True
    sentences: ClassVar = {
        "needless": "call {call} opened connection {connection} while another was idle; "
        "{again} of {requests:request} "
        "used an open one",
        "nothing": "no request could have used the connection of an earlier one",
        "held": "{again:request} on connections that were used again, {needless} on needless ones",
    }

    def check(self, run: RunEvents) -> Verdict:
        # Whoever gives up a call closes its connection, whether or not the answer has just arrived.
        results = {id(one): call for call in run.made if call.succeeded for one in call.results}
        idle: dict[tuple[Any, Any], tuple[Event, Event]] = {}
        """The last request and its result on each connection."""
        requests: dict[tuple[Any, ...], Event] = {}
        known: set[tuple[Any, Any]] = set()
        opened: dict[tuple[Any, Any], float] = {}
        """When connections were opened on which the first request was delayed."""
        again, needless = 0, []
        for event in run.server:
            if event["event"] == "crash":
                idle.clear()
            elif event["event"] == "strike" and event["phase"] == "connect":
                opened.setdefault(
                    (event.get("sandbox"), int(event["call"].rpartition("-")[2])), event["at"]
                )
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
                        if event.get("sandbox") == result.get("sandbox")
                        # Those that arrive at the same moment were on their way together.
                        and request["at"] < event["at"]
                        and result["at"] <= began < result["at"] + _FRESH
                        and _could_use(run, event, result, results[id(result)])
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


def _could_use(run: RunEvents, request: Event, result: Event, owner: CallEvents) -> bool:
    """Had a client read a result when one of the same worker chose the connection of its
    request?"""
    call, place = run.callers.get(id(request)), run.places
    if call is None or (call.called or {}).get("worker") != (owner.called or {}).get("worker"):
        return False
    mine = [
        end for end in owner.of_client("attempt_ended") if end["attempt"] == result.get("attempt")
    ]
    freed = place[id(mine[-1] if mine else owner.returned)]
    # As far as is known it chose long before it arrived.
    starts = [place[id(start)] for start in (call.called, *call.of_client("attempt_started"))]
    chosen = max(
        (start for start in starts if start < place[id(request)]), default=place[id(request)]
    )
    return freed < chosen


def _connection(event: Event) -> tuple[Any, Any]:
    return event.get("sandbox"), event["connection"]


class NoDeadConnectionUsed(Promise):
    """No request is sent on a connection that the sandbox is about to close: it does so after 5
    idle seconds, and what is sent within half a second of that may be lost on the way. Judged at
    the sandbox."""

    exact: ClassVar[bool] = True
    needs = "ending"
    sentences: ClassVar = {
        "dead": "call {call} was sent on a connection that had been idle for {idle:.3g} s; "
        "the sandbox closes it after "
        f"{_KEEP_ALIVE:g} s",
        "nothing": f"no connection was idle for {_USABLE:g} s before another request",
        "held": "{judged:request} after a connection had expired, none on it",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        idle: dict[tuple[Any, Any], Event] = {}
        requests: dict[tuple[Any, ...], Event] = {}
        expired = False
        for event in run.server:
            if event["event"] == "arrived" and "connection" in event:
                requests[attempt_of(event)] = event
                expired = expired or any(event["at"] - one["at"] > _USABLE for one in idle.values())
                since = idle.pop(_connection(event), event)
                waited = event["at"] - since["at"]
                if waited > _USABLE:
                    yield self.broken("dead", [since, event], call=event["call"], idle=waited)
                elif expired:
                    yield None
            elif (
                event["event"] == "answered"
                and (request := requests.get(attempt_of(event))) is not None
            ):
                idle[_connection(request)] = event
