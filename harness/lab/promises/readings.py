"""What the model read of each call, compared with what its program did: the facts behind
promises about texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.sandbox.text import plain

from ....fakes.sandbox.body import OUTPUT_CHANGES
from ...core.journal import SHOWN, Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ..facts.canary import tokens_in
from ..facts.read import SHORTEST_CUT, TextReading, normal_wording, read_text
from ..facts.truth import ProgramTruth
from ..programs import truth_of, unpacked

FAILED, REFUSED = "failed", "refused"
"""How a call ended of which no result came, and one whose arguments could not be used."""

_STREAMS = frozenset({"stdout", "stderr"})
_FEW = 40
"""Characters of either end of a stream by which it is recognised."""
WHOLE = TextReading((), "", shown=_STREAMS)


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call that returned a text, and whose program is known."""

    call: CallEvents
    returned: Event
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
    for one in read_calls(run):
        if one.truth is not None and one.reading is not None:
            yield one, one.truth, one.reading


def _read_calls(run: RunEvents) -> Iterator[ReadCall]:
    longest = run.began.get("longest_text") or inf
    for call in run.made:
        returned, kind = call.returned, call.intent.get("kind")
        if returned is None or returned.get("raised") or kind in (None, "real") or call.is_misled:
            continue
        end = REFUSED if kind == "bad_arguments" else FAILED
        if (
            call.results
            and kind in PROGRAM_OUTCOMES
            and returned.get("outcome") in (None, *PROGRAM_OUTCOMES)
        ):
            end = str(kind)
        text, truth, reading = _text(call, returned), None, None
        meant = truth_of(call.intent, call.call)
        if (
            end == "ok"
            and meant is not None
            and text == meant.stdout + meant.stderr
            and not call.of_server("strike")
        ):
            yield ReadCall(call, returned, end, text, meant, WHOLE, meant)
            continue
        if end in PROGRAM_OUTCOMES and meant is not None and text is not None:
            raw = _said(call, meant)
            if raw is not None:
                truth = replace(raw, stdout=plain(raw.stdout), stderr=plain(raw.stderr))
                reading = _reading(text, truth, longest)
                if reading is not None and reading.wrong and "\x1b" in raw.stdout + raw.stderr:
                    # Escape codes that were escaped themselves, as in JSON, are still there.
                    again = _reading(text, raw, longest)
                    reading = again if again is not None and not again.wrong else reading
        yield ReadCall(call, returned, end, text, truth, reading, meant)


def _reading(text: str, truth: ProgramTruth, longest: float) -> TextReading | None:
    """Compare a text; None if the tool may have cut it to less than a text can be compared with."""
    size = len(truth.stdout) + len(truth.stderr)
    if text == truth.stdout + truth.stderr and not truth.failed:
        return TextReading((), "", shown=_STREAMS)
    if longest < size < SHORTEST_CUT:
        return None
    warned = truth.stderr.strip()
    if not truth.failed and not any(
        word in text for word in tokens_in(warned) or (warned[:_FEW], warned[-_FEW:])
    ):
        truth = replace(
            truth, stderr=""
        )  # a tool may keep the warnings of a program that succeeded to itself
    reading = read_text(text, truth)
    if (
        reading.wrong
        and truth.stderr
        and all(wrong.kind.startswith("cut_") for wrong in reading.wrong)
    ):
        # A tool may cut both streams as one text.
        between = "" if truth.stdout.endswith("\n") or not truth.stdout else "\n"
        joined = read_text(
            text, replace(truth, stdout=truth.stdout + between + truth.stderr, stderr="")
        )
        return reading if joined.wrong else replace(joined, shown=_STREAMS)
    return reading


def _text(call: CallEvents, returned: Event) -> str | None:
    text = returned.get("text") or ""
    if returned.get("chars", 0) <= SHOWN:
        return plain(text)
    meant = truth_of((call.called or {}).get("intent") or {}, call.call, whole=True)
    pieces = returned.get("pieces")
    if meant is None or pieces is None:
        return None
    return plain(
        unpacked(pieces, replace(meant, stdout=plain(meant.stdout), stderr=plain(meant.stderr)))
    )


def _said(call: CallEvents, truth: ProgramTruth) -> ProgramTruth | None:
    """Return what the last answer of the sandbox said, with the faults that changed it."""
    streams = {"stdout": truth.stdout, "stderr": truth.stderr}
    given = attempt_of(call.results[-1])
    for fault in call.of_server("strike"):
        if (
            fault["kind"] == "output"
            and attempt_of(fault) == given
            and truth.ending in ("exited", "stopped")
        ):
            if fault["what"] == "cut" and "size" not in fault:
                return None
            for stream in streams if fault["stream"] == "both" else (fault["stream"],):
                streams[stream] = (
                    OUTPUT_CHANGES[fault["what"]](streams[stream], fault.get("size", 0)) or ""
                )
    return replace(truth, stdout=streams["stdout"], stderr=streams["stderr"])
