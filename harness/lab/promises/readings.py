"""What the model read of each call, compared with what its program did.

These are the facts behind promises about texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.sandbox.text import plain

from ....fakes.sandbox.body import OUTPUT_CHANGES
from ...core.events import ReturnedEvent
from ...core.journal import SHOWN
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ..facts.canary import tokens_in
from ..facts.read import SHORTEST_CUT, TextReading, normal_wording, read_text
from ..facts.truth import ProgramTruth
from ..programs import truth_of, unpacked

FAILED = "failed"
"""How a call ended of which no result came."""
REFUSED = "refused"
"""How a call ended whose arguments could not be used."""
QUOTED = 60
"""Characters of a text that a sentence quotes. Chosen: the sentence stays one line."""

_STREAMS = frozenset({"stdout", "stderr"})
_FEW = 40
"""Characters of either end of a stream by which it is recognised. Chosen: a line of a warning."""
WHOLE = TextReading((), "", shown=_STREAMS)
"""The reading of a text that is the output, and nothing else."""


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call that returned a text, and whose program is known."""

    call: CallEvents
    returned: ReturnedEvent
    end: str
    """How it ended by the sandbox's ledger: as its program does, or ``FAILED`` or ``REFUSED``."""
    text: str | None
    """What the model read, without escape codes; None if the journal does not have all of it."""
    truth: ProgramTruth | None
    """What the sandbox said of the program; None if it said nothing, or more than the journal
    has."""
    reading: TextReading | None
    meant: ProgramTruth | None
    """What the program does when nothing goes wrong."""

    @property
    def wording(self) -> str | None:
        """The tool's own words, to be compared with those of other calls."""
        if self.text is None or (self.end in PROGRAM_OUTCOMES and self.reading is None):
            return None
        found = self.text if self.reading is None else self.reading.wording
        return normal_wording(found, [self.call.call]) if found else ""


def read_calls(run: RunEvents) -> list[ReadCall]:
    """Return the calls that returned; they are read once for all promises."""
    if "read_calls" not in run.cache:
        run.cache["read_calls"] = list(_read_calls(run))
    found: list[ReadCall] = run.cache["read_calls"]
    return found


def compared_calls(run: RunEvents) -> Iterator[tuple[ReadCall, ProgramTruth, TextReading]]:
    """Yield the calls whose text could be compared with what the program did."""
    for read in read_calls(run):
        if read.truth is not None and read.reading is not None:
            yield read, read.truth, read.reading


def _read_calls(run: RunEvents) -> Iterator[ReadCall]:
    longest = run.began.get("longest_text") or inf
    for call in run.made:
        returned = call.returned
        if returned is None or returned.get("raised"):
            continue
        if call.intent.get("kind") in (None, "real") or call.is_misled:
            continue  # nobody knows what its program does
        yield _read_call(call, returned, longest)


def _read_call(call: CallEvents, returned: ReturnedEvent, longest: float) -> ReadCall:
    end = _end(call, returned)
    text = _text(call, returned)
    meant = truth_of(call.intent, call.call)
    truth: ProgramTruth | None = None
    reading: TextReading | None = None
    if meant is None or text is None:
        pass  # there is nothing to compare
    elif end == "ok" and text == meant.stdout + meant.stderr and not call.of_server("strike"):
        # Most calls are like this, and need no comparison.
        truth = meant
        reading = WHOLE
    elif end in PROGRAM_OUTCOMES:
        raw = _said(call, meant)
        if raw is not None:
            truth = _plain_truth(raw)
            reading = _reading_of(text, raw, truth, longest)
    return ReadCall(
        call=call,
        returned=returned,
        end=end,
        text=text,
        truth=truth,
        reading=reading,
        meant=meant,
    )


def _end(call: CallEvents, returned: ReturnedEvent) -> str:
    """Return how a call ended: as its program does, or ``FAILED`` or ``REFUSED``."""
    kind = call.intent["kind"]
    if kind == "bad_arguments":
        return REFUSED
    got_result = call.results and returned.get("outcome") in (None, *PROGRAM_OUTCOMES)
    return str(kind) if got_result and kind in PROGRAM_OUTCOMES else FAILED


def _plain_truth(truth: ProgramTruth) -> ProgramTruth:
    """Return what a program wrote without escape codes."""
    return replace(truth, stdout=plain(truth.stdout), stderr=plain(truth.stderr))


def _reading_of(
    text: str, raw: ProgramTruth, truth: ProgramTruth, longest: float
) -> TextReading | None:
    """Compare a text with what was written, without escape codes and, if that is wrong, with them.

    Escape codes that were escaped themselves, as in JSON, are still in the text.
    """
    reading = _reading(text, truth, longest)
    if reading is None or not reading.wrong or "\x1b" not in raw.stdout + raw.stderr:
        return reading
    with_codes = _reading(text, raw, longest)
    if with_codes is not None and not with_codes.wrong:
        return with_codes
    return reading


def _reading(text: str, truth: ProgramTruth, longest: float) -> TextReading | None:
    """Compare a text; None if the tool may have cut it to less than a text can be compared with."""
    if text == truth.stdout + truth.stderr and not truth.failed:
        return WHOLE
    size = len(truth.stdout) + len(truth.stderr)
    if longest < size < SHORTEST_CUT:
        return None
    if not truth.failed and not _shows_warnings(text, truth):
        # A tool may keep the warnings of a program that succeeded to itself.
        truth = replace(truth, stderr="")
    reading = read_text(text, truth)
    only_cuts = all(wrong.kind.startswith("cut_") for wrong in reading.wrong)
    if not reading.wrong or not truth.stderr or not only_cuts:
        return reading
    joined = read_text(text, _in_one_stream(truth))
    return reading if joined.wrong else replace(joined, shown=_STREAMS)


def _shows_warnings(text: str, truth: ProgramTruth) -> bool:
    """Does a text hold a token, or else one of the ends, of what a program wrote to stderr?"""
    warned = truth.stderr.strip()
    signs = tokens_in(warned) or (warned[:_FEW], warned[-_FEW:])
    return any(sign in text for sign in signs)


def _in_one_stream(truth: ProgramTruth) -> ProgramTruth:
    """Return both streams as one: a tool may cut them together."""
    separate = truth.stdout and not truth.stdout.endswith("\n")
    between = "\n" if separate else ""
    return replace(truth, stdout=truth.stdout + between + truth.stderr, stderr="")


def _text(call: CallEvents, returned: ReturnedEvent) -> str | None:
    """Return what the model read, without escape codes; None if the journal has not all of it."""
    text = returned.get("text") or ""
    if returned.get("chars", 0) <= SHOWN:
        return plain(text)
    meant = truth_of(call.written_intent, call.call, whole=True)
    pieces = returned.get("pieces")
    if meant is None or pieces is None:
        return None
    return plain(unpacked(pieces, _plain_truth(meant)))


def _said(call: CallEvents, truth: ProgramTruth) -> ProgramTruth | None:
    """Return what the last answer of the sandbox said, with the faults that changed it.

    None if the journal does not say how a fault cut it.
    """
    if truth.ending not in ("exited", "stopped"):
        return truth
    given = attempt_of(call.results[-1])
    streams = {"stdout": truth.stdout, "stderr": truth.stderr}
    for fault in call.of_server("strike"):
        if fault["kind"] != "output" or attempt_of(fault) != given:
            continue
        if fault["what"] == "cut" and "size" not in fault:
            return None
        change = OUTPUT_CHANGES[fault["what"]]
        changed = tuple(streams) if fault["stream"] == "both" else (fault["stream"],)
        for stream in changed:
            streams[stream] = change(streams[stream], fault.get("size", 0)) or ""
    return replace(truth, stdout=streams["stdout"], stderr=streams["stderr"])
