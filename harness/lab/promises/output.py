"""Promises about the output of programs in tool messages: its size, what is cut, and stderr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from ...core.run_events import RunEvents
from ...core.verdict import Verdict
from ..facts.read import SHORTEST_CUT
from .base import Promise
from .readings import QUOTED, ReadCall, compared_calls, read_calls


class OutputBounded(Promise):
    """No tool message is longer than `at_most` characters, however much a program prints."""

    implied: ClassVar[bool] = False
    scalar = "at_most"
    sentences: ClassVar = {
        "too_long": (
            "the tool message of call {call} has {chars:,} characters, promised at most {bound:,}"
        ),
        "nothing": "no program printed more than {bound:,} characters",
        "held": (
            "a program printed {printed:,} characters, the longest tool message has {longest:,}"
        ),
    }

    at_most: int = Field(100_000, ge=1, description="longest tool message, in characters")

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        longest = printed = 0
        for read in read_calls(run):
            chars = read.returned.get("chars", 0)
            longest = max(longest, chars)
            if read.truth is not None:
                printed = max(printed, len(read.truth.stdout) + len(read.truth.stderr))
            if chars > self.at_most:
                wrong.append(self.broken_by(read.call, "too_long", chars=chars, bound=self.at_most))
        if wrong:
            return self.first(wrong)
        if printed <= self.at_most:
            return self.unknown("nothing", bound=self.at_most)
        return self.held(printed=printed, longest=longest)


class CutsMarked(Promise):
    """A tool message that shows only a part of the output says so with a true number: of the
    characters, bytes or lines that are missing, that there were, or that are shown."""

    sentences: ClassVar = {
        "cut_silently": (
            "the tool message of call {call} lacks {missing:,} characters of "
            "{stream}, but says nothing"
        ),
        "cut_unnumbered": (
            "the tool message of call {call} lacks {missing:,} characters of "
            "{stream}, without a number"
        ),
        "cut_untrue": (
            "the tool message of call {call} lacks {missing:,} characters of "
            "{stream}, but tells {told}"
        ),
        "nothing": "no output was cut",
        "held": "{judged:tool message} cut, all marked with how much",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for read, truth, reading in compared_calls(run):
            if not reading.cut or len(truth.stdout) + len(truth.stderr) < SHORTEST_CUT:
                continue  # what is too short to be cut is wrong in another way
            found = next((wrong for wrong in reading.wrong if wrong.kind in _CUTS), None)
            if found is None:
                yield None
            else:
                kind = "cut_silently" if found.kind == "changed" else found.kind
                facts = {"stream": found.stream, "told": 0, **found.details}
                yield self.broken_by(read.call, kind, **facts)


_CUTS = ("cut_silently", "cut_unnumbered", "cut_untrue", "changed")


class StderrShown(Promise):
    """The stderr of a failed program or compiler reaches the model, also beside a long stdout."""

    sentences: ClassVar = {
        "not_shown": "call {call} wrote {wrote!r} to stderr, but the tool message is {text!r}",
        "nothing": "no program wrote to stderr, or not where it could be seen",
        "held": "{judged:program} wrote to stderr, all shown",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for read, truth, reading in compared_calls(run):
            # A tool may keep the warnings of a program that succeeded to itself.
            must_show = truth.failed or "stderr" in reading.shown
            if not truth.stderr.strip() or not must_show:
                continue
            if misses(read, "stderr", "missing", "changed"):
                wrote = truth.stderr.strip().splitlines()[-1][:QUOTED]
                text = (read.text or "")[:QUOTED]
                yield self.broken_by(read.call, "not_shown", wrote=wrote, text=text)
            else:
                yield None


class PartialOutputKept(Promise):
    """Output printed before a timeout reaches the model."""

    sentences: ClassVar = {
        "dropped": (
            "call {call} printed {prints!r} before its timeout, but the tool message is {text!r}"
        ),
        "nothing": "no program that had printed something timed out",
        "held": "{judged:timeout}, all with the output so far",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for read, truth, _ in compared_calls(run):
            prints = truth.stdout.strip()
            if read.end != "program_timeout" or not prints:
                continue
            if misses(read, "stdout"):
                text = (read.text or "")[:QUOTED]
                yield self.broken_by(read.call, "dropped", prints=prints[:QUOTED], text=text)
            else:
                yield None


def misses(read: ReadCall, stream: str, *kinds: str) -> bool:
    """Is something of these kinds wrong with a stream in the text?

    By default: is it missing as a whole?
    """
    if read.reading is None:
        return False
    asked = kinds or ("missing",)
    return any(wrong.stream == stream and wrong.kind in asked for wrong in read.reading.wrong)
