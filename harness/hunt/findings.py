"""Findings: what broke and how. Two cases that break the same promise in the same way are one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sfusion.harness.journal import Journal
from sfusion.harness.promises import Verdict

HUNG, RAISED, LOGGED = "the_run_hangs", "the_run_raises", "an_error_is_logged"
"""What counts as broken beside promises."""

_ID = re.compile(r"\b(?:[cr]\d{3,}(?:\.t\d+\.\d+)?|p\d+-\d+|n\d+-w\d+|sandbox-\d+|node-\d+|worker-\d+)\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """What broke, and how: the sentence without ids, numbers and quoted texts."""

    what: str
    how: str

    @classmethod
    def of(cls, what: str, sentence: str) -> Signature:
        how = _ADDRESS.sub("N", sentence)
        for pattern, name in ((_QUOTED, "'…'"), (_ID, "ID"), (_NUMBER, "N")):
            how = pattern.sub(name, how)
        return cls(what, " ".join(how.split(" (")[0].split())[:160])

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that broke in one run."""

    signature: Signature
    sentence: str


def findings_in(journal: Journal, verdicts: Iterable[Verdict], error: str, logged: Iterable[str]) -> list[Finding]:
    """Return what broke in a run, each signature once."""
    told = [(one.promise, one.sentence) for one in verdicts if one.state == "broken"]
    told += [(HUNG, str(one["text"])) for one in journal.events if one["event"] == "stuck"]
    told += [(RAISED, error)] if error else []
    told += [
        (LOGGED, str(one["text"])) for one in journal.events if one["event"] == "log" and one.get("level") == "error"
    ]
    told += [(LOGGED, text) for text in logged]
    found: dict[Signature, Finding] = {}
    for what, sentence in told:
        signature = Signature.of(what, sentence)
        found.setdefault(signature, Finding(signature, sentence))
    return list(found.values())
