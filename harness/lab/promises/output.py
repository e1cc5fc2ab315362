"""Promises about the output of programs in tool messages: its size, what is cut, and stderr."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from pydantic import Field

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import CallStory, Story, attempt_of
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.sandbox.text import plain

_TRIMMED = 16
"""Characters that a tool may strip from an output without cutting it."""


_WORDS = (
    "cut", "truncat", "omit", "elid", "remov", "shorten", "dropp", "clipp", "trimm", "skipp",
    "missing", "hidden", "more", "shown", "showing",
)  # fmt: skip
_WORD = rf"(?:{'|'.join(_WORDS)})"
_NUMBER = r"(?<![\d,_.])\d[\d,_.]{0,20}"
_MARK = re.compile(rf"{_NUMBER}[^\n\d]{{0,60}}?{_WORD}|{_WORD}[^\n\d]{{0,60}}?{_NUMBER}[^\n]{{0,40}}", re.IGNORECASE)
_MOST = 4


def cut_marks(text: str) -> list[str]:
    """Return the first few marks of a tool message that say, in whatever words, how much of it was cut."""
    lines = text.split("\n") if _has_word(text) else []
    marks = (found[0] for line in lines if _has_word(line) for found in _MARK.finditer(line))
    return list(islice(marks, _MOST))


def _has_word(text: str) -> bool:
    """Return whether the slow search is worthwhile."""
    lower = text.lower()
    return any(word in lower for word in _WORDS)


def _numbers_in(mark: str) -> list[int]:
    """Return the whole numbers of a mark, read without separators of thousands."""
    return [int(re.sub(r"\D", "", number)) for number in re.findall(_NUMBER, mark)]


class OutputBounded(Promise):
    """No tool message is longer than `at_most` characters, however much a program prints."""

    scalar = "at_most"
    sentences: ClassVar = {
        "too_long": "the tool message of call {call} has {chars:,} characters, promised at most {bound:,}",
        "nothing": "no program printed more than {bound:,} characters",
        "held": "a program printed {printed:,} characters, the longest tool message has {longest:,}",
    }

    at_most: int = Field(100_000, ge=1, description="longest tool message, in characters")

    def judge(self, story: Story) -> Verdict:
        wrong: list[Verdict] = []
        longest = printed = 0
        for call in story.made:
            if call.returned is None:
                continue
            chars = call.returned.get("chars", 0)
            longest = max(longest, chars)
            printed = max(printed, (_printed(call) or 0) + _added(call) if call.succeeded else 0)
            if chars > self.at_most:
                wrong.append(self.broken_by(call, "too_long", chars=chars, bound=self.at_most))
        if wrong:
            return self.first(wrong)
        if printed <= self.at_most:
            return self.unknown("nothing", bound=self.at_most)
        return self.held(printed=printed, longest=longest)


class CutsMarked(Promise):
    """A tool message that shows only a part of the output says so, and how many characters are missing or how many
    there were."""

    sentences: ClassVar = {
        "unmarked": "the tool message of call {call} lacks {missing:,} of {size:,} characters, but it does not say so",
        "mismarked": "the tool message of call {call} lacks {missing:,} of {size:,} characters, but it says {marks!r}",
        "nothing": "no output was cut",
        "held": "{judged:tool message} cut, all marked with how much",
    }

    def checks(self, story: Story) -> Iterator[Verdict | None]:
        for call in story.made:
            returned, size = call.returned, _printed(call)
            if returned is None or not size or not call.succeeded or _lost_at_the_sandbox(call, "stdout"):
                continue
            size += _added(call)
            missing = size - returned.get("chars", 0)
            if missing <= _TRIMMED:
                continue
            marks = returned.get("cut_marks") or "\n".join(cut_marks(returned.get("text") or ""))
            numbers = _numbers_in(marks)
            if any(0.9 * missing <= number <= 1.1 * size + 200 for number in numbers):
                yield None
            else:
                kind = "mismarked" if marks else "unmarked"
                yield self.broken_by(call, kind, missing=missing, size=size, marks=marks[:80])


class StderrShown(Promise):
    """What a program or a compiler writes to stderr reaches the model, also beside a long stdout."""

    sentences: ClassVar = {
        "not_shown": "call {call} wrote {wrote!r} to stderr, but the tool message is {text!r}",
        "nothing": "no program wrote to stderr, or not where it could be seen",
        "held": "{judged:program} wrote to stderr, all shown",
    }

    def checks(self, story: Story) -> Iterator[Verdict | None]:
        for call in story.made:
            lines = [line.strip() for line in plain(call.intent.get("errors", "")).splitlines() if line.strip()]
            returned = call.returned
            if returned is None or not lines or not call.succeeded or _lost_at_the_sandbox(call, "stderr"):
                continue
            text = plain(returned.get("text") or "")
            is_whole = returned.get("chars", 0) <= len(text) and not cut_marks(text)
            if not is_whole and any(_buries(one, call, lines[0], returned) for one in _spoiled(call)):
                continue
            shown = text + plain(returned.get("tail") or "")
            # A long text is kept in part; of one that is cut, the model may see one end.
            sought = lines if is_whole else (lines[0], lines[-1])
            seen = (all if sought is lines else any)(line in shown for line in sought)
            yield None if seen else self.broken_by(call, "not_shown", wrote=lines[-1][:60], text=text[:60])


def _printed(call: CallStory) -> int | None:
    """Return how many characters the sandbox passes on of what the program prints; None if that is not known."""
    intent = call.intent
    if intent.get("kind") not in ("ok", "program_error"):
        return None
    size: int = intent.get("size") or len(plain(intent.get("early", "") + intent.get("prints", "")))
    return size


def _spoiled(call: CallStory) -> list[Event]:
    given = {attempt_of(one) for one in call.results}
    return [one for one in call.of_server("strike") if one["kind"] == "output" and attempt_of(one) in given]


def _buries(fault: Event, call: CallStory, line: str, returned: Event) -> bool:
    """Is what the program wrote to stderr amid what it printed and what a fault added, where a long text is cut?"""
    if fault.get("stream") != "stderr":
        return fault.get("stream") == "both"
    text, printed = returned.get("text") or "", _printed(call) or 0
    is_cut = bool(returned.get("cut_marks") or cut_marks(text))
    is_long = returned.get("chars", 0) >= printed + _added(call)
    return printed + len(line) >= len(text) and (is_cut or is_long)


def _added(call: CallStory) -> int:
    return sum(one["size"] * (2 if one["stream"] == "both" else 1) for one in _spoiled(call) if one["what"] == "huge")


def _lost_at_the_sandbox(call: CallStory, stream: str) -> bool:
    """Did a fault take away what the program wrote there?"""
    return any(one["what"] != "huge" and one.get("stream") in (stream, "both") for one in _spoiled(call))
