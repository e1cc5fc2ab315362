"""What broke and how: the signature by which two failures count as the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sfusion.harness.lab.promises import Verdict
from sfusion.harness.lab.runs.result import RunResult

ERROR, STUCK = "error", "stuck"
"""In place of a promise: the run itself failed, or could not go on."""

_MORE = re.compile(r" \(and [0-9,]+ more\)$")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|(?<![a-z])'(?:[^'\\]|\\.)*'")
_PARENTHESIS = re.compile(r" ?\([^()]*\)| ?\{[^{}]*\}")
_PROMISED = re.compile(r"[,;] (?:promised|at (?:most|least) [0-9]+ promised).*")
_NUMBERED = re.compile(r"[^\s,;:]*[0-9][^\s,;:]*")
_LISTED = re.compile(r"#(?:(?:,| and|, and) #)+")
_PLURAL = re.compile(r"(# (?:attempt|call|caller|character|request|time|token))s\b")
_PLACE = re.compile(r"\(([\w.]+:[0-9]+)\)$")


@dataclass(frozen=True, order=True)
class Failure:
    """A promise and how it broke, without ids and numbers."""

    promise: str
    how: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.how}"


def failures_of(result: RunResult) -> list[Failure]:
    """Return every failure of a run, each once; promises that are unknown are none."""
    found = [failure_of(verdict) for verdict in result.verdicts if verdict.state == "broken"]
    if result.error:
        place = _PLACE.search(result.error)
        found.append(Failure(ERROR, _how(result.error) + (f" at {place[1]}" if place else "")))
    stuck = next((one for one in result.journal.events if one["event"] == "stuck"), None)
    if stuck is not None:
        found.append(Failure(STUCK, _how(stuck["text"])))
    return list(dict.fromkeys(found))


def failure_of(verdict: Verdict) -> Failure:
    """Return the signature of a broken promise: what a tool raised by type and place, all else by its sentence."""
    raised = next((one for one in reversed(verdict.evidence) if one.get("raised")), None)
    if verdict.promise == "tool_never_raises" and raised is not None:
        return Failure(verdict.promise, f"{raised['raised']} at {raised.get('raised_at', 'an unknown place')}")
    return Failure(verdict.promise, _how(verdict.sentence))


def _how(sentence: str) -> str:
    text = _QUOTED.sub("…", _MORE.sub("", sentence))
    text = _PROMISED.sub("", _PARENTHESIS.sub("", text))
    return _PLURAL.sub(r"\1", _LISTED.sub("#", _NUMBERED.sub("#", text))).strip()
