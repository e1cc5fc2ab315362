"""Promises about HTTP connections: they are kept open for the next request, and dead ones are
not used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ...core.events import SandboxEvent
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from .base import Promise

_KEEP_ALIVE = 5.0
"""Seconds without a request after which the server closes a connection: uvicorn's default."""
_USABLE = 4.5
"""Idle seconds for which a connection may be used: half a second less, for the way. Chosen."""
_FRESH = 1.0
"""Idle seconds after which a careful client may have closed a connection. Chosen."""


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
        use = _Use(run)
        for event in run.server:
            use.follow(event)
        again = use.again
        needless = use.needless
        if not again and not needless:
            return self.unknown("nothing")
        if len(needless) > again:
            return self.broken(
                "needless",
                needless,
                len(needless),
                call=needless[0]["call"],
                connection=needless[0]["connection"],
                again=again,
                requests=again + len(needless),
            )
        return self.held(again=again, needless=len(needless))


class _Use:
    """How connections were used, followed event by event at the sandbox."""

    def __init__(self, run: RunEvents) -> None:
        self.again = 0
        """Requests on connections that had been used before."""
        self.needless: list[SandboxEvent] = []
        """Requests on new connections, while an idle one could have been used."""
        self._run = run
        self._owners: dict[int, CallEvents] = {}
        """The call of each result. Who gives up a call closes its connection, whether or not the
        answer has just arrived."""
        for call in run.made:
            if call.succeeded:
                self._owners |= {id(result): call for result in call.results}
        self._requests: dict[tuple[Any, ...], SandboxEvent] = {}
        self._known: set[_Connection] = set()
        self._idle: dict[_Connection, tuple[SandboxEvent, SandboxEvent]] = {}
        """The last request and its result on each connection."""
        self._opened: dict[_Connection, float] = {}
        """When connections were opened on which the first request was delayed."""

    def follow(self, event: SandboxEvent) -> None:
        """Take up the next event of a sandbox."""
        if event["event"] == "crash":
            self._idle.clear()
        elif event["event"] == "strike" and event["phase"] == "connect":
            number = int(event["call"].rpartition("-")[2])
            self._opened.setdefault((event.get("sandbox"), number), event["at"])
        elif event["event"] == "arrived" and "connection" in event:
            self._arrived(event)
        elif id(event) in self._owners:
            request = self._requests.get(attempt_of(event))
            if request is not None:
                self._idle.pop(_connection(request), None)  # the newest stands last
                self._idle[_connection(request)] = (request, event)

    def _arrived(self, request: SandboxEvent) -> None:
        connection = _connection(request)
        self._requests[attempt_of(request)] = request
        if connection in self._known:
            self.again += 1
            self._idle.pop(connection, None)
            return
        self._known.add(connection)
        unused = self._usable_for(request)
        if unused is not None:
            del self._idle[unused]  # it could have served one request, not all of them
            self.needless.append(request)

    def _usable_for(self, new: SandboxEvent) -> _Connection | None:
        """Return the idle connection that a request on a new one could have used."""
        opened: float = new["at"]
        if _connection(new) in self._opened:
            opened = self._opened[_connection(new)]
        for connection, (request, result) in self._fresh(opened):
            if new.get("sandbox") != result.get("sandbox"):
                continue
            if request["at"] >= new["at"]:
                continue  # those that arrive at the same moment were on their way together
            if result["at"] > opened:
                continue
            if _could_use(self._run, new, result, self._owners[id(result)]):
                return connection
        return None

    def _fresh(self, moment: float) -> list[tuple[_Connection, tuple[SandboxEvent, SandboxEvent]]]:
        """Return the connections that had not been idle for long at a moment, the longest idle
        first. Looked for from the end, because long runs leave many that nobody used again."""
        found = []
        for connection, (request, result) in reversed(self._idle.items()):
            if result["at"] + _FRESH <= moment:
                break
            found.append((connection, (request, result)))
        found.reverse()
        return found


def _could_use(
    run: RunEvents, request: SandboxEvent, result: SandboxEvent, owner: CallEvents
) -> bool:
    """Had a result been read when another call chose the connection of its request?

    Connections are shared by the calls of a worker.
    """
    call = run.callers.get(id(request))
    if call is None or _worker(call) != _worker(owner):
        return False
    place = run.places
    ends = owner.of_client("attempt_ended")
    mine = [end for end in ends if end["attempt"] == result.get("attempt")]
    freed = place[id(mine[-1] if mine else owner.returned)]
    # As far as is known it chose long before it arrived.
    arrived = place[id(request)]
    starts = [place[id(start)] for start in (call.called, *call.of_client("attempt_started"))]
    chosen = max((start for start in starts if start < arrived), default=arrived)
    return freed < chosen


def _worker(call: CallEvents) -> str | None:
    return None if call.called is None else call.called.get("worker")


_Connection = tuple[str | None, int]
"""A sandbox, and the number of a connection to it."""


def _connection(event: SandboxEvent) -> _Connection:
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
        idle: dict[_Connection, SandboxEvent] = {}
        requests: dict[tuple[Any, ...], SandboxEvent] = {}
        expired = False
        for event in run.server:
            if event["event"] == "arrived" and "connection" in event:
                requests[attempt_of(event)] = event
                if not expired:
                    ages = [event["at"] - answer["at"] for answer in idle.values()]
                    expired = any(age > _USABLE for age in ages)
                since = idle.pop(_connection(event), event)
                waited = event["at"] - since["at"]
                if waited > _USABLE:
                    yield self.broken("dead", [since, event], call=event["call"], idle=waited)
                elif expired:
                    yield None
            elif event["event"] == "answered" and attempt_of(event) in requests:
                idle[_connection(requests[attempt_of(event)])] = event
