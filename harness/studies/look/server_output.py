"""What Sandbox Fusion prints itself: it writes no access lines, but a line when a command starts and when it ends."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from sfusion.harness.studies.look.access_records import COLOUR, stamp
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt, Call

_LINE = re.compile(r"(?P<start>.{0,80}?)\[(?P<level>debug|info|warning|error|critical) *\] +(?P<event>.*)", re.DOTALL)
_LOGGER = re.compile(r" +\[[\w.]+\]( .*)?$")
"""What structlog appends: the logger's name, and more keys."""
_PADDED = re.compile(r" {2,}.*$")
_RUNNING, _ENDED, _FAILED = "running command ", "stop running command ", "exception on running command "
_PROCESSING, _AFTER_CODE = "start processing ", "``` and files "
_MOST_OPEN = 10_000
_LONGEST = 100_000


class ServerOutput:
    """The commands of a server's output, in which each is known by its text: it has a folder of its own."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self.in_code = False
        """The lines are those of a program that the server quotes."""

    def read(self, line: bytes, number: int, time: str = "") -> tuple[Call, ...] | None:
        """Return the command that ends with a line, nothing for other lines of a server; None if it is not of one.

        ``time`` is that of the line where it has none itself, and its ``number`` stands for a time that is not known.
        """
        if len(line) > _LONGEST:
            return None
        text = line.decode("utf-8", "replace").rstrip()
        if self.in_code:
            self.in_code = not text.startswith(_AFTER_CODE)
            return ()
        if "[" not in text:
            return None
        found = _LINE.match(COLOUR.sub("", text))
        return None if found is None else self._event(found["event"], stamp(found["start"]) or stamp(time), number)

    def read_object(self, record: Mapping[str, Any], number: int) -> tuple[Call, ...] | None:
        """The same for a line that structlog wrote as JSON."""
        event, at = record.get("event"), record.get("timestamp")
        if not isinstance(event, str) or "level" not in record:
            return None
        return self._event(event, stamp(at) if isinstance(at, str) else None, number, is_whole=True)

    def _event(self, event: str, at: float | None, number: int, *, is_whole: bool = False) -> tuple[Call, ...]:
        began = float(number) if at is None else at
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
                return (_call(*started, took, None if is_answered else Outcome.SANDBOX_ERROR),)
        return ()

    def _failed(self, text: str) -> tuple[float, bool] | None:
        """The command that an exception is about: its text is followed by that of the exception."""
        found = next((one for one in self._open if text.startswith(f"{one}:")), None)
        return None if found is None else self._open.pop(found)

    def rest(self) -> list[Call]:
        """Return the commands that did not end: the server stopped them at their time limit, or was stopped itself."""
        return [_call(*started, None, None) for started in self._open.values()]


def _command(event: str, verb: str) -> str:
    return _PADDED.sub("", _LOGGER.sub("", event.removeprefix(verb))).rstrip()


def _call(began: float, timed: bool, took: float | None, outcome: Outcome | None) -> Call:
    status = 200 if took is not None or outcome is not None else None
    attempt = Attempt(1, outcome=outcome, status=status, seconds=took, execution_time=took)
    return Call("", began, took, "server", outcome, attempts=[attempt], timed=timed)
