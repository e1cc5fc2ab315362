"""What the parsers of all formats share.

That is the outer loop, content, thinking, and the wording of problems.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from sfusion_tools.bounded_input import levels

from .jsontext import CUT_HEAD, CUT_MARKER, DEEPEST, NOT_BEGUN, TOO_DEEP, Flaw, Loaded
from .literal import is_json_tree
from .lookalikes import lookalikes
from .model import CallDelta, ContentDelta, Delta, ParsedCall, Problem, ProblemDelta, Severity
from .text_reader import Scan, TextReader, begins_any, markers_of
from .toolbox import Toolbox

_log = logging.getLogger(__name__)

Tools: TypeAlias = Iterable[Any] | Toolbox | None

THINK = "<think>"
THOUGHT = "</think>"
_EXCERPT = 160
"""Characters of a broken call that a problem shows. Chosen: about two lines of a terminal."""
_SHORTEST_CUT = 3
"""Characters of an opening marker at the end of a text that count as a call that was cut off.

Chosen: fewer, such as a lone ``<``, are more often prose.
"""
_ANYTHING = re.compile(r"(?s:.)+")
_NAME = re.compile(r'"name"\s*:\s*"([\w.:-]{1,80})"')
LAYOUT = " \t\r\n,;[]"
"""What may stand between and after calls without a meaning of its own."""
NAMELESS = Flaw("missing_name", "it does not say which tool is meant")
_NOT_JSON = Flaw(
    "bad_value",
    "one of its arguments cannot be written as JSON (such as a number with too many digits)",
)


_RECIPIENT = re.compile(r"[\w.:/-]+")


@dataclass(frozen=True)
class Header:
    """What stands before a message. A prompt ends with its start, so an answer begins inside it."""

    start: str
    before: str
    """Before the name of the recipient."""
    after: str
    reader: str = ""
    """The recipient of what is content; every other recipient is a tool."""


class Declaration(ABC):
    """What parsers need of a format for their messages."""

    name: ClassVar[str]
    marks: ClassVar[tuple[re.Pattern[str], ...]]

    @property
    @abstractmethod
    def example(self) -> str:
        """How to write a call, as shown to the model."""


class StreamParser(ABC):
    """Parses one text in one format, piece by piece.

    ``feed`` returns what is certain after the new piece, ``finish`` the rest. Content is returned
    as soon as it cannot be part of a marker; a call is returned in one piece when it is complete.
    """

    openers: ClassVar[tuple[str, ...]]
    """The markers that begin a call or a section of calls."""
    drafts: ClassVar[tuple[str, ...]] = ()
    """The markers that count as a call inside the thinking; the openers if empty."""
    silent: ClassVar[tuple[str, ...]] = ()
    """Markers without a meaning of their own, such as the ends of sections and turns."""
    enclosing: ClassVar[tuple[str, str]] = ("", "")
    """The markers around all calls of a turn that may have other text between them."""
    header: ClassVar[Header | None] = None
    """What stands before each message, in formats that have messages inside of a turn."""
    bodies: ClassVar[tuple[str, ...]] = ()
    """How a message for a tool begins after its header; with an opener if empty."""
    think_marks: ClassVar[tuple[str, ...]] = (THINK, THOUGHT)
    """Where thinking begins and ends; empty for a format that marks it in another way."""

    def __init__(self, form: Declaration, tools: Tools = None, *, in_think: bool = False) -> None:
        self.form = form
        self.tools = Toolbox(tools)
        self.reader = TextReader()
        self.finish_reason: str | None = None
        self._begins_thinking, self._ends_thinking = self.think_marks or ("", "")
        self._markers = markers_of(*self.openers, *self.think_marks, *self.silent)
        self._thinking = markers_of(*self.think_marks[1:], *(self.drafts or self.openers))
        self._deltas: list[Delta] = []
        self._plain: list[tuple[int, str]] = []
        """The text outside of calls, with its positions: calls that were misspelt may be in it."""
        self._enclosed = False
        """A section of calls was opened and not closed yet."""
        self._last_mark = 0
        """How many pieces of plain text there were at the last call or marker."""
        self._held: list[str] = []
        """White space that is content only if text follows."""
        self._guessed: tuple[str, str | None] = "", None
        """The last text that could not be read, and the name that was found in it."""
        self._written = False
        self._interrupted = False
        self._handled = 0
        """Calls that were returned or refused."""
        self._in_think = in_think
        self._done = False
        self._run = self._text()
        next(self._run)

    def feed(self, chunk: str) -> list[Delta]:
        if self._done:
            raise ValueError("this parser is finished; create a new one for each text")
        if chunk:
            self.reader.feed(chunk)
            self._read_on()
        return self._collect()

    def finish(self, finish_reason: str | None = None) -> list[Delta]:
        """End the text, with the finish reason if it is known (``stop``, ``length``,
        ``tool_calls``)."""
        if not self._done:
            self._done = True
            self.finish_reason = finish_reason
            self.reader.close()
            self._read_on()
        return self._collect()

    @abstractmethod
    def opened(self, marker: str) -> Scan[None]:
        """Continue after an opening marker."""

    def content(self, text: str) -> None:
        """Add text outside of calls. White space is held back until more text follows."""
        self._plain.append((self.reader.offset - len(text), text))
        self._write(text)

    def skip_rest(self) -> Scan[str]:
        """Read the rest of a text that ended inside a call."""
        return self.reader.run(_ANYTHING)

    def interrupt(self) -> None:
        """Note that something other than text was here, so the white space around it is layout."""
        self._interrupted = True
        self._plain.append((self.reader.offset, "\n"))
        self._last_mark = len(self._plain)

    def call(
        self,
        name: str | None,
        read: Loaded | Flaw,
        *,
        position: int,
        raw: str,
        call_id: str | None = None,
        repaired: Sequence[Flaw] = (),
    ) -> None:
        """Report a complete call, or refuse it.

        It is refused if its arguments could not be read or if it cannot be made.
        """
        flaw = read if isinstance(read, Flaw) else self._obstacle(name, read.value, raw)
        if name is None or flaw or isinstance(read, Flaw):
            self.refuse(flaw or NAMELESS, position=position, raw=raw, name=name)
            return
        self._handled += 1
        self.interrupt()
        for repair in (*repaired, *read.repaired):
            message = f"The call to {name} was made, but {repair.message}."
            self.problem(
                repair.kind, message, position=position, raw=raw, severity="repaired", name=name
            )
        call = ParsedCall(
            name=name,
            arguments=read.value,
            position=position,
            raw=raw,
            call_id=call_id,
        )
        self._deltas.append(CallDelta(call))

    def _obstacle(self, name: str | None, arguments: dict[str, Any], raw: str) -> Flaw | None:
        """Return why no such call can be made: bad arguments, or an unknown tool."""
        if raw.count("[") + raw.count("{") >= DEEPEST and levels(arguments) > DEEPEST:
            return TOO_DEEP
        if not is_json_tree(arguments):
            return _NOT_JSON
        if name is None or self.tools.knows(name):
            return None

        near = self.tools.near(name)
        hint = f' (did you mean "{near}"?)' if near else ""
        known = ", ".join(self.tools.names) or "none"
        message = f'there is no tool named "{name}"{hint}; the tools are: {known}'
        return Flaw("unknown_tool", message)

    def refuse(self, flaw: Flaw, *, position: int, raw: str, name: str | None = None) -> None:
        """Report a call that is not returned."""
        self._handled += 1
        self.interrupt()
        if name is None:
            name = self._guess(raw)
        which = f"The call to {name}" if name else "A tool call"
        why = flaw.message
        if flaw.kind == "truncated":
            if self.finish_reason == "length":
                why += ": the output reached its length limit"
            advice = "Send the complete call again, shorter if necessary."
        else:
            advice = f"Write calls as {self.form.example}"
        message = f"{which} was not made: {why}. {advice}"
        self.problem(flaw.kind, message, position=position, raw=raw, severity="refused", name=name)

    def _guess(self, raw: str) -> str | None:
        """Return the name in a text that could not be read.

        It is searched once for the elements of a list, which all have the same text.
        """
        text, name = self._guessed
        if raw is not text:
            found = _NAME.search(raw)
            name = found[1] if found else None
            self._guessed = (raw, name)
        return name

    def problem(
        self,
        kind: str,
        message: str,
        *,
        position: int,
        raw: str,
        severity: Severity,
        name: str | None = None,
    ) -> None:
        """Report something that is wrong with the text."""
        problem = Problem(
            kind=kind,
            message=message,
            position=position,
            excerpt=raw if len(raw) <= _EXCERPT else raw[: _EXCERPT - 1] + "…",
            severity=severity,
            call_name=name,
        )
        self._deltas.append(ProblemDelta(problem))

    def _read_on(self) -> None:
        """Read as far as the text goes.

        If the parser itself fails, a call is refused and the rest is skipped.
        """
        try:
            for _ in self._run:
                if not self._done:
                    return
                raise AssertionError("a scanner asked for more text after the end")
        except Exception:
            position = self.reader.offset
            _log.exception("the %s parser failed at character %d", self.form.name, position)
            self.refuse(Flaw("parser_failed", "it could not be read"), position=position, raw="")

    def _text(self) -> Scan[None]:
        """Read the whole text."""
        yield
        if self._in_think:
            yield from self.think(0)
        yield from self.begin()
        while True:
            begin = self.reader.offset
            marker = yield from self.reader.until(self._markers, self.content, to_end=False)
            if marker is None:
                break
            if marker == self._begins_thinking:
                self._write(marker)
                yield from self.think(self.reader.offset - len(marker))
                yield from self.begin()
            elif marker == self._ends_thinking and marker not in self.silent:
                self._stray_thought(marker)
            elif marker in self.openers:
                self._enclosed = True
                yield from self.opened(marker)
                self.reader.unmark()
            elif self.header and marker == self.header.start:
                yield from self.message(self.header, marker)
            else:
                self._enclose(marker)
                self.interrupt()
                self.passed(marker)
            if self.reader.offset <= begin:
                # Never seen; whoever breaks a parser gets a refused call and not an endless loop.
                raise AssertionError(f"nothing was read at {marker!r}")
        yield from self._end()

    def _enclose(self, marker: str) -> None:
        """Note where a section begins and ends, and refuse what is left over in it."""
        begin, end = self.enclosing
        if marker == begin:
            self._enclosed = True
        elif marker == end and self._enclosed:
            self._enclosed = False
            self.refuse_left_over(self._plain[self._last_mark :])
            del self._plain[self._last_mark :]
        elif marker == end and not self._handled:
            message = f"There is a {end} without {begin}, so no call was made."
            position = self.reader.offset - len(end)
            self.problem("stray_marker", message, position=position, raw=end, severity="noticed")

    def refuse_left_over(self, pieces: Sequence[tuple[int, str]]) -> None:
        """Refuse what is inside the markers of calls and was not read as a call."""
        text = "".join(piece for _, piece in pieces)
        if text.strip(LAYOUT):
            shown = text.strip()[:40]
            message = f"what stands beside the calls, inside their markers, is no call ({shown!r})"
            self.refuse(Flaw("left_over", message), position=pieces[0][0], raw=text)

    def passed(self, marker: str) -> None:
        """Handle a ``silent`` marker."""
        del marker

    def ended(self) -> None:
        """Report what is missing at the end of the text."""
        return

    def begin(self) -> Scan[None]:
        """Read what is only allowed at the beginning of an answer."""
        if self.header:
            yield from self.message(self.header, "")

    def message(self, header: Header, start: str) -> Scan[None]:
        """Read the rest of the header of a message, if there is one.

        ``start`` is what was read of it, nothing at the beginning of an answer.
        """
        reader = self.reader
        position = reader.offset - len(start)
        reader.mark()
        recipient, missing = yield from self._recipient(header)
        raw = start + reader.since_mark()
        if not missing and (yield from self._is_header(header, start, recipient)):
            reader.unmark()
            self.interrupt()
            if recipient != header.reader:
                yield from self.addressed(recipient, position, raw)
            return
        if missing == "truncated" and (start or header.before.strip()):
            raw += yield from self.skip_rest()
            self.refuse(CUT_HEAD, position=position, raw=raw)
            return
        if start and (yield from self._is_broken(start, recipient)):
            text, _ = yield from reader.text_before(self._markers)
            after = header.after.strip() or "a line break"
            flaw = Flaw("bad_layout", f"there is no {after} after its recipient")
            self.refuse(flaw, position=position, raw=raw + text, name=recipient or None)
            return
        reader.rewind()
        reader.unmark()
        if start in self.openers:
            self.content(start)
        elif start:
            self.interrupt()

    def _is_broken(self, start: str, recipient: str) -> Scan[bool]:
        """Return whether a header that is not complete was meant as that of a call."""
        if start not in self.openers:
            return bool(recipient) and self.tools.knows(recipient)
        known = bool(recipient) and self.tools.declared and self.tools.knows(recipient)
        return known or (yield from self.reader.peek()) == "{"

    def _recipient(self, header: Header) -> Scan[tuple[str, str]]:
        """Read the name of a recipient; return it, and why the header is not complete, if so."""
        reader = self.reader
        before = header.before.strip()
        if before:
            yield from reader.spaces()
        thinks = self._begins_thinking
        if thinks and (yield from reader.sees(thinks)):
            return "", "thinking"
        if before:
            if not (yield from reader.accept(before)):
                return "", "absent"
            yield from reader.spaces()
        recipient = yield from reader.run(_RECIPIENT)
        if not (yield from reader.sees(header.after)):
            rest = yield from reader.peek(len(header.after))
            begun = before or recipient
            return recipient, "truncated" if begun and header.after.startswith(rest) else "absent"
        if header.after not in self.openers:
            reader.take(len(header.after))
        return recipient, ""

    def _is_header(self, header: Header, start: str, recipient: str) -> Scan[bool]:
        """Return whether what was read is a header and not prose."""
        if recipient and (start or header.before.strip() or recipient == header.reader):
            return True
        if not start and not recipient:
            return False
        following = yield from self.reader.ahead(self.bodies or self.openers)
        if following:
            return True
        is_known = self.tools.declared and self.tools.knows(recipient)
        return following == "" and is_known

    def addressed(self, recipient: str, position: int, raw: str) -> Scan[None]:
        """Continue after ``raw``, the header of a message for a tool: a call must follow."""
        following = yield from self.reader.ahead(self.openers)
        if following:
            return
        flaw = NOT_BEGUN
        if following is None:
            flaw = Flaw("no_call_object", f"there is no {self.openers[0]} after {raw}")
            text, _ = yield from self.reader.text_before(self._markers)
            raw += text
        self.refuse(flaw, position=position, raw=raw, name=recipient)

    def think(self, position: int) -> Scan[None]:
        """Read to the end of the thinking; what looks like a call in it is a draft."""
        drafts = 0
        while True:
            marker = yield from self.reader.until(self._thinking, self._write)
            if marker is None:
                advice = f"Write {self._ends_thinking} before the answer and before calls."
                self.unclosed(position, drafts, advice)
                return
            self._write(marker)
            if marker == self._ends_thinking:
                return
            if (yield from self.is_draft()):
                drafts += 1
                advice = f"Write it after {self._ends_thinking} if it is meant."
                self.draft(self.reader.offset - len(marker), marker, advice)

    def is_draft(self) -> Scan[bool]:
        """Return whether a call follows the marker in the thinking, without reading it."""
        return True
        yield

    def draft(self, position: int, marker: str, advice: str) -> None:
        """Report a call inside the thinking, which is not made."""
        message = f"A tool call inside the thinking was taken as a draft and was not made. {advice}"
        self.problem("call_in_think", message, position=position, raw=marker, severity="noticed")

    def unclosed(self, position: int, drafts: int, advice: str) -> None:
        """Report thinking that was never closed.

        It is refused if it contains calls, which may have been meant.
        """
        message = (
            "The thinking was never closed, so nothing in it counts as an answer or "
            f"as a call. {advice}"
        )
        severity: Severity = "noticed"
        if drafts:
            severity = "refused"
            self._handled += 1
        self.problem("unclosed_think", message, position=position, raw="", severity=severity)

    def _stray_thought(self, marker: str) -> None:
        self._write(marker)
        if self._handled:
            message = (
                f"There is a {marker} without {self._begins_thinking}, so the calls before "
                "it may have been drafts. "
                "If the prompt ends inside the thinking, pass in_think=True."
            )
            position = self.reader.offset - len(marker)
            self.problem(
                "stray_think_close", message, position=position, raw=marker, severity="noticed"
            )

    def _end(self) -> Scan[None]:
        """Report what is left at the end of the text, and what looks like a call in it."""
        position = self.reader.offset
        cut = yield from self.skip_rest()
        ends_calls = self._handled > 0 and begins_any(cut, self.silent)
        if cut and not ends_calls:
            self.content(cut)
        if self._held and not self._interrupted:
            self._deltas.append(ContentDelta("".join(self._held)))
        self.ended()

        long_enough = len(cut) >= _SHORTEST_CUT
        if long_enough and not ends_calls and begins_any(cut, self.openers):
            self.refuse(CUT_MARKER, position=position, raw=cut)
        else:
            self._notice_lookalikes()

    def _notice_lookalikes(self) -> None:
        """Report text that looks like a call and is not one."""
        form = self.form
        found = lookalikes(self._plain, form.name, form.marks, self.tools.names)
        for kind, message, at, excerpt in found:
            if kind != "fenced_code" or not self._handled:
                advice = f"Write calls as {form.example}"
                self.problem(
                    kind, f"{message} {advice}", position=at, raw=excerpt, severity="noticed"
                )

    def _write(self, text: str) -> None:
        """Return text as content; hold back the white space at its end."""
        shown = text.rstrip()
        trailing = text[len(shown) :]
        if shown:
            shown = "".join((*self._held, shown))
            self._held = []
            if not self._written and self._interrupted:
                shown = shown.lstrip()
            self._written = True
            self._deltas.append(ContentDelta(shown))
        if trailing:
            self._held.append(trailing)

    def _collect(self) -> list[Delta]:
        deltas = self._deltas
        self._deltas = []
        return deltas
