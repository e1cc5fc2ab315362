"""gpt-oss: harmony messages.

A call is a message with a recipient; thinking is the analysis channel.
"""

from __future__ import annotations

import re

from sfusion_tools.formats.argumenttext import ArgumentTextFormat, ArgumentTextParser
from sfusion_tools.formats.jsontext import Flaw
from sfusion_tools.formats.text_reader import Markers, Scan

START = "<|start|>"
CHANNEL = "<|channel|>"
CONSTRAIN = "<|constrain|>"
MESSAGE = "<|message|>"
END = "<|end|>"
CALL = "<|call|>"
RETURN = "<|return|>"
_HEAD = Markers((MESSAGE, START, END, CALL, RETURN))
_BODY = Markers((END, RETURN, CALL, START, CHANNEL))
_ANALYSIS = Markers((END, RETURN, CALL))
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=\s*([^\s<]*)")
_SENDER = re.compile(r"<\|start\|>\s*([\w.:-]*)")
_NO_RECIPIENT = Flaw("missing_name", "it does not say which tool is meant (to=functions.TOOL)")
_NO_SENDER = Flaw("wrong_sender", "its header does not name the sender; write <|start|>assistant")


class HarmonyParser(ArgumentTextParser):
    """Reads one message after the other; text outside of any message is content."""

    openers = (START, CHANNEL)
    silent = (END, RETURN, CALL)
    think_marks = ()
    ends = (CALL, RETURN, END)
    edges = Markers((CALL, RETURN, END, START))

    def begin(self) -> Scan[None]:
        """Read a header whose first part, ``<|start|>assistant``, is the end of the prompt."""
        reader = self.reader
        reader.mark()
        yield from reader.spaces()
        if (yield from reader.sees("to=functions.")):
            yield from self.opened("")
        else:
            reader.rewind()
        reader.unmark()

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        head, edge = yield from reader.text_before(_HEAD)
        header = marker + head
        channel = _CHANNEL.search(header)
        recipients = list(dict.fromkeys(_RECIPIENT.findall(header)))
        if edge != MESSAGE:
            self._headless(header, edge, start, called=bool(recipients))
            return

        reader.take(len(MESSAGE))
        self.interrupt()
        sender = _SENDER.match(header)
        role = sender[1] if sender else "assistant"
        if role.startswith("functions.") or role == "tool":
            message = (
                "The text contains a made-up tool reply. Stop after the calls and "
                "wait for the real reply."
            )
            self.problem("invented_reply", message, position=start, raw=header, severity="noticed")
            yield from reader.before(_BODY, self.content)
        elif recipients:
            yield from self._called(recipients, role, start, header + MESSAGE)
        elif channel and channel[1] == "analysis":
            yield from self.think(start)
        else:
            edge = yield from reader.before(_BODY, self.content)
            if edge == CALL:
                self.refuse(_NO_RECIPIENT, position=start, raw=header + MESSAGE)

    def _called(self, recipients: list[str], role: str, start: int, header: str) -> Scan[None]:
        """Read the arguments of a message with recipients, or refuse it."""
        name = recipients[0].removeprefix("functions.")
        if role in ("assistant", "") and len(recipients) == 1 and "," not in name:
            repaired = [] if role else [_NO_SENDER]
            yield from self.arguments(name or None, start, header, repaired=repaired)
            return

        if role not in ("assistant", ""):
            flaw = Flaw("wrong_sender", f"its sender is {role}; only the assistant makes calls")
        else:
            message = f"it has several recipients ({', '.join(recipients)}); write one"
            flaw = Flaw("several_recipients", message)
        skipped, edge = yield from self.to_edge()
        raw = header + skipped
        if edge is not None and edge in self.ends:
            raw += edge
        self.refuse(flaw, position=start, raw=raw, name=name or None)

    def _headless(self, header: str, edge: str | None, start: int, *, called: bool) -> None:
        """Refuse a header without a message if it was meant as a call."""
        if edge is None:
            flaw = Flaw("truncated", "the text ends inside the header of a message")
        elif called or edge == CALL:
            flaw = Flaw("bad_layout", f"{MESSAGE} is missing between its header and its arguments")
        else:
            self.interrupt()
            return
        self.refuse(flaw, position=start, raw=header)

    def think(self, position: int) -> Scan[None]:
        drafts = 0
        while True:
            edge = yield from self.reader.until(_ANALYSIS)
            if edge in (END, RETURN):
                return
            if edge is None:
                self.unclosed(position, drafts, f"Write {END} after the analysis.")
                return
            drafts += 1
            advice = f"Write it after the {END} of the analysis if it is meant."
            self.draft(self.reader.offset - len(CALL), CALL, advice)


class GptOss(ArgumentTextFormat):
    """The format of gpt-oss."""

    name = "gpt-oss"
    aliases = ("gpt_oss",)
    models = "gpt-?oss"
    signs = ("<|channel|>", "commentary")
    parser = HarmonyParser
    marks = (re.compile(r"<\|(?:channel|message|call|constrain)\|>", re.IGNORECASE),)
    call = (
        f"{START}assistant{CHANNEL}commentary to=functions.{{name}} "
        f"{CONSTRAIN}json{MESSAGE}{{arguments}}{CALL}"
    )
    closing = CALL
    section = ("", "", "")

    def write_thinking(self, text: str, *, closed: bool = True) -> str:
        return f"{CHANNEL}analysis{MESSAGE}{text}" + (END if closed else "")
