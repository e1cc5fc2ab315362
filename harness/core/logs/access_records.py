"""Lines of servers: access logs of nginx and uvicorn, with times if they are there, and what
Sandbox Fusion prints."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import mktime_tz, parsedate_tz
from functools import lru_cache
from typing import Any

from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt, Call

_NGINX = re.compile(
    r"^(?P<client>\S+) \S+ .*?\[(?P<time>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"(?P<method>[A-Z]+) (?P<target>\S+)[^"]*" (?P<status>\d{3}) (?P<size>\d+|-)(?P<rest>.*)$'
)
_UVICORN = re.compile(r'(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[\d.]+" (?P<status>\d{3})\b')
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_STAMP = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"
)
_QUOTED = re.compile(r'^ "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"')
_NAMED_TIME = re.compile(r'\b(?:rt|request_time|req_time)["\s]*[=:]["\s]*(\d+\.\d+)')
_NEXT = "(?:,| :) "
"""What nginx writes between the upstreams that it tried, and after an internal redirect."""
_ADDRESS = r"(?:unix:/[^\s,\"]+|(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+)"
_BARE_ADDRESS = r"(?:unix:/[^\s,\"]+|(?:\[[0-9A-Fa-f:.]+\]|(?:\d{1,3}\.){3}\d{1,3}):\d+)"
_NAMED_UPSTREAMS = re.compile(
    rf'\b(?:upstream|upstream_addr|ua|addr)["\s]*[=:]["\s]*({_ADDRESS}(?:{_NEXT}{_ADDRESS})*)'
)
_NAMED_STATUSES = re.compile(
    rf'\b(?:upstream_status|us)["\s]*[=:]["\s]*((?:\d{{3}}|-)(?:{_NEXT}(?:\d{{3}}|-))*)'
)
_NAMED_TIMES = re.compile(
    rf'\b(?:upstream_response_time|urt)["\s]*[=:]["\s]*((?:\d+\.\d+|-)(?:{_NEXT}(?:\d+\.\d+|-))*)'
)
_BARE_TIME = re.compile(r'(?<![\w.:])"?(\d+\.\d{3})"?(?![\w.:])')
_BARE_UPSTREAMS = re.compile(rf"(?<![\w.\[:])({_BARE_ADDRESS}(?:{_NEXT}{_BARE_ADDRESS})*)(?![\w.])")
_BARE_STATUSES = re.compile(rf"(?<![\w.:])(\d{{3}}(?:{_NEXT}(?:\d{{3}}|-))+)(?![\w.])")
_BARE_TIMES = re.compile(rf"(?<![\w.:])(\d+\.\d{{3}}(?:{_NEXT}(?:\d+\.\d{{3}}|-))+)(?![\w.:])")
_LONGEST = 10_000
"""Bytes of a line that may be a request in an access log (chosen)."""


def access_records(line: bytes, number: int) -> tuple[Call, ...] | None:
    """Return the request of a line, nothing if that is not a call, such as a ping; None for other
    lines.

    ``number`` stands for the time where the line has none.
    """
    if b'"' not in line or len(line) > _LONGEST:
        return None
    text = line.decode("utf-8", "replace").rstrip()
    if "\x1b" in text:
        text = COLOUR.sub("", text)
    if (found := _NGINX.match(text)) is not None:
        ended = _nginx_time(found["time"])
        if ended is None:
            return None
        return (_nginx_record(found, ended),) if found["method"] == "POST" else ()
    start, _, rest = text.partition(' - "')
    if (found := _UVICORN.match(rest)) is None:
        return None
    if found["method"] != "POST":
        return ()
    status = int(found["status"])
    at = stamp(start)
    timed = at is not None
    began = float(number) if at is None else at
    attempt = Attempt(1, status=status, outcome=Outcome.of_status(status))
    return (Call("", began, None, "access", attempt.outcome, attempts=[attempt], timed=timed),)


def _nginx_record(found: re.Match[str], ended: float) -> Call:
    rest = _QUOTED.sub("", found["rest"])
    took = _NAMED_TIME.search(rest) or _BARE_TIME.search(rest)
    # nginx writes the time at which the request ended.
    seconds = None if took is None else float(took[1])
    began = ended - (seconds or 0.0)
    status = int(found["status"])
    upstreams = _parts(_NAMED_UPSTREAMS, _BARE_UPSTREAMS, rest) or [""]
    size = 0 if found["size"] == "-" else int(found["size"][:15])
    last = Attempt(
        len(upstreams),
        upstreams[-1],
        Outcome.of_status(status),
        status,
        seconds=seconds,
        received=size,
    )
    attempts = [*_tried_before(last, upstreams, rest), last]
    return Call("", began, seconds, "access", last.outcome, attempts=attempts)


def _tried_before(last: Attempt, upstreams: list[str], rest: str) -> Iterator[Attempt]:
    """Yield an attempt for each upstream but the last; nginx tries the next one only if it got no
    usable answer."""
    if len(upstreams) == 1:
        return
    unknown = ["-"] * len(upstreams)
    statuses = _parts(_NAMED_STATUSES, _BARE_STATUSES, rest)
    if len(statuses) != len(upstreams):
        statuses = unknown
    times = _parts(_NAMED_TIMES, _BARE_TIMES, rest)
    if len(times) != len(upstreams):
        times = unknown
    tried = zip(upstreams[:-1], statuses, times, strict=False)
    for number, (upstream, code, took) in enumerate(tried, 1):
        status = None if code == "-" else int(code)
        seconds = None if took == "-" else float(took)
        yield Attempt(
            number, upstream, Outcome.of_status(status), status, seconds=seconds, after=last.after
        )
        last.after += seconds or 0.0
    if times[-1] != "-":
        last.seconds = float(times[-1])


def _parts(named: re.Pattern[str], bare: re.Pattern[str], rest: str) -> list[str]:
    found = named.search(rest) or bare.search(rest)
    return [] if found is None else re.split(_NEXT, found[1])


@lru_cache(maxsize=16)
def _nginx_time(text: str) -> float | None:
    """Read ``10/Oct/2025:13:55:36 -0700``."""
    found = parsedate_tz(text.replace("/", " ").replace(":", " ", 1))
    return None if found is None else float(mktime_tz(found))


def stamp(text: str) -> float | None:
    """Return the first time in a text; one without a zone is taken for UTC."""
    found = _STAMP.search(text)
    if found is None:
        return None
    zone = found["zone"] or "UTC"
    try:
        return datetime.fromisoformat(found["time"] + zone.replace("UTC", "Z")).timestamp()
    except ValueError:
        return None


_LINE = re.compile(
    r"(?P<start>.{0,80}?)\[(?P<level>debug|info|warning|error|critical) *\] +(?P<event>.*)",
    re.DOTALL,
)
_LOGGER = re.compile(r" +\[[\w.]+\]( .*)?$")
"""What structlog appends: the logger's name, and more keys."""
_PADDED = re.compile(r" {2,}.*$")
_RUNNING = "running command "
_ENDED = "stop running command "
_FAILED = "exception on running command "
_PROCESSING = "start processing "
_AFTER_CODE = "``` and files "
_STARTED = re.compile(r"INFO: +Started server process \[\d+\]")
"""What uvicorn prints at its start."""
_INITIALIZED = "database initialized"
"""What Sandbox Fusion prints at its start."""
RESTARTED = "the server was started again"
"""The detail of a request that a restart of its server ended."""
_MOST_OPEN = 10_000
"""Commands that have begun and not ended, of which the oldest is dropped (chosen: bounds the
memory)."""
_LONGEST_OUTPUT = 100_000
"""Bytes of a line of a server that are searched (chosen: it may quote a whole program)."""


class ServerOutput:
    """The commands of a server's output, in which each is known by its text: it has a folder of its
    own."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self.in_code = False
        """The lines are those of a program that the server quotes."""
        self._latest = 0.0
        self._longest = 0.0
        """When the latest command began or ended, and how long one took at most."""

    def read(self, line: bytes, number: int, time: str = "") -> tuple[Call, ...] | None:
        """Return the command that ends with a line, nothing for other lines of a server; None if it
        is not of one.

        ``time`` is that of the line where it has none itself, and its ``number`` stands for a time
        that is not known.
        """
        if len(line) > _LONGEST_OUTPUT:
            return None
        text = line.decode("utf-8", "replace").rstrip()
        if _STARTED.search(COLOUR.sub("", text)) is not None:
            self.in_code = False
            return tuple(self._stopped())
        if self.in_code:
            self.in_code = not text.startswith(_AFTER_CODE)
            return ()
        if "[" not in text:
            return None
        found = _LINE.match(COLOUR.sub("", text))
        if found is None:
            return None
        return self._event(found["event"], stamp(found["start"]) or stamp(time), number)

    def read_object(self, record: Mapping[str, Any], number: int) -> tuple[Call, ...] | None:
        """The same for a line that structlog wrote as JSON."""
        event = record.get("event")
        at = record.get("timestamp")
        if not isinstance(event, str) or "level" not in record:
            return None
        return self._event(event, stamp(at) if isinstance(at, str) else None, number, is_whole=True)

    def _event(
        self, event: str, at: float | None, number: int, *, is_whole: bool = False
    ) -> tuple[Call, ...]:
        began = float(number) if at is None else at
        if event.startswith((_RUNNING, _ENDED)):
            self._latest = began
        if event.startswith(_INITIALIZED):
            return tuple(self._stopped())
        if event.startswith(_PROCESSING):
            self.in_code = not is_whole and _AFTER_CODE not in event
        elif event.startswith(_RUNNING):
            self._open[_command(event, _RUNNING)] = began, at is not None
            if len(self._open) > _MOST_OPEN:
                return (_call(*self._open.popitem(last=False)[1], None, None),)
        elif event.startswith((_ENDED, _FAILED)):
            is_answered = event.startswith(_ENDED)
            command = _command(event, _ENDED if is_answered else _FAILED)
            started = self._open.pop(command, None) if is_answered else self._failed(command)
            if started is not None:
                took = max(0.0, began - started[0]) if started[1] else None
                self._longest = max(self._longest, took or 0.0)
                return (_call(*started, took, None if is_answered else Outcome.SANDBOX_ERROR),)
        return ()

    def _failed(self, text: str) -> tuple[float, bool] | None:
        """The command that an exception is about: its text is followed by that of the exception."""
        begun = [command for command in self._open if text.startswith(f"{command}:")]
        found = begun[0] if begun else None
        return None if found is None else self._open.pop(found)

    def _stopped(self) -> list[Call]:
        """Return the commands that a restart ended; those that were open for longer than any other
        ran had been stopped at their time limit."""
        calls = []
        for began, timed in self._open.values():
            open_for = max(0.0, self._latest - began)
            if not timed or open_for > self._longest:
                calls.append(_call(began, timed, None, None))
                continue
            call = _call(began, timed, open_for, Outcome.UNREACHABLE)
            call.attempts[0].status = None
            call.attempts[0].execution_time = None
            call.attempts[0].detail = RESTARTED
            calls.append(call)
        self._open.clear()
        return calls

    def rest(self) -> list[Call]:
        """Return the commands that did not end: the server stopped them at their time limit, or was
        stopped itself."""
        return [_call(*started, None, None) for started in self._open.values()]


def _command(event: str, verb: str) -> str:
    return _PADDED.sub("", _LOGGER.sub("", event.removeprefix(verb))).rstrip()


def _call(began: float, timed: bool, took: float | None, outcome: Outcome | None) -> Call:
    status = 200 if took is not None or outcome is not None else None
    attempt = Attempt(1, outcome=outcome, status=status, seconds=took, execution_time=took)
    return Call("", began, took, "server", outcome, attempts=[attempt], timed=timed)
