"""Rollout dumps: how calls ended, from the requests beside a dump, or else from the texts that the
model read.

Dumps have no times; the step of the training stands for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.record import Call
from sfusion_tools.sandbox import text as wording

from ..dumps.sample import REQUESTS, requests_beside, split_turns

MOST_CALLS = 10_000
"""Calls of one trajectory."""


def _beginning(*messages: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, messages)))


_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_FAILED = re.compile(rf"{re.escape(wording.FAILED)}(\w+)")
_TEXTS = (
    (_beginning(wording.REFUSED), Outcome.BAD_ARGUMENTS),
    (re.compile(r"^Error when executing tool|^Error executing tool"), Outcome.SANDBOX_ERROR),
    (re.compile(r"^\[Python Interpreter Error\].* on endpoint ", re.DOTALL), Outcome.SANDBOX_ERROR),
    (re.compile(r"^\W*(?:Error\W+)?UnknownError\W*$"), Outcome.SANDBOX_ERROR),
    (re.compile(r"^(?:no stdout here|Finished execution\.)\s*$"), None),
    (_beginning(wording.TIMED_OUT, wording.STOPPED), Outcome.PROGRAM_TIMEOUT),
    (_beginning(wording.NOT_COMPILED), Outcome.COMPILE_ERROR),
    (_beginning(wording.EXITED, wording.SIGNALLED), Outcome.PROGRAM_ERROR),
    (re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE), Outcome.PROGRAM_ERROR),
)
"""What the texts of our tool, verl's, DeepResearch's and ToRL's mean; ``no stdout here`` (verl,
SkyRL) and ``Finished execution.`` (DeepResearch) stand for any failure or for no output."""


def requests_of(path: Path) -> Path:
    """Return the file of requests beside a file of samples, if there is one: it knows more than the
    texts."""
    beside = requests_beside(path)
    return beside if path.parent.name != REQUESTS and beside.is_file() else path


def step_of(path: Path, record: Mapping[str, Any]) -> float:
    """Return the step that a line belongs to: its own, else that in the name of its file."""
    step = record.get("step")
    if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 1e9:
        return float(step)
    digits = re.search(r"\d{1,9}", path.stem)
    return float(digits[0]) if digits else 0.0


def request_records(record: Mapping[str, Any], step: float) -> Iterator[Call]:
    """Yield the calls of a line of ``requests/<step>.jsonl``."""
    call = str(record["request_id"])[:100]
    for name, number in _counts(record["outcomes"]):
        for _ in range(number):
            yield _record(call, step, OUTCOMES.get(name))
    for name, number in _counts(record.get("refused")):
        for _ in range(number):
            yield _record(call, step, Outcome.BAD_ARGUMENTS, name)


def sample_records(record: Mapping[str, Any], step: float, line: int) -> Iterator[Call]:
    """Yield the calls of a line of a dump, as far as the texts that the model read tell."""
    for text in tool_texts(record["output"]):
        yield _record(f"line {line}", step, outcome_of_text(text))


def tool_texts(output: str) -> list[str]:
    """Return what the tools answered in a trajectory, in order."""
    texts = _RESPONSE.findall(output) if "<tool_response>" in output else _tool_turns(output)
    return texts[:MOST_CALLS]


def outcome_of_text(text: str) -> Outcome | None:
    """Return how a call ended whose text the model read; None if the text does not tell."""
    if (found := _FAILED.search(text)) is not None:
        return OUTCOMES.get(found[1])
    for pattern, outcome in _TEXTS:
        if pattern.search(text):
            return outcome
    return Outcome.OK


def _tool_turns(output: str) -> list[str]:
    if not re.search(r"^(?:<\|im_start\|>)?tool$", output, re.MULTILINE):
        return []
    return [
        "".join(part.text for part in turn.parts)
        for turn in split_turns(output)
        if turn.role == "tool"
    ]


def _counts(found: Any) -> Iterator[tuple[str, int]]:
    if isinstance(found, dict):
        for name, number in found.items():
            if isinstance(number, int) and not isinstance(number, bool):
                yield str(name)[:100], min(max(number, 0), MOST_CALLS)


def _record(call: str, step: float, outcome: Outcome | None, problem: str | None = None) -> Call:
    return Call(call, step, None, "dump", outcome, problem=problem, timed=False)
