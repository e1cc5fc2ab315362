"""Rollout dumps: how calls ended, from the requests beside a dump, or else from the texts that the
model read.

Dumps have no times; the step of the training stands for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.record import Call

from ..dumps.files import file_step
from ..dumps.rollout import KEYS, read_rollout
from ..dumps.sample import REQUESTS, requests_beside
from ..dumps.tool_texts import MOST_CALLS, outcome_of_text
from ..dumps.trainers import flat_lines, trainer_of

_LONGEST_READ = 500
"""Characters of a text that are kept (chosen: longer ones are output)."""


def requests_file_of(path: Path) -> Path:
    """Return the file of requests beside a file of samples, if there is one: it knows more than the
    texts."""
    beside = requests_beside(path)
    return beside if path.parent.name != REQUESTS and beside.is_file() else path


def step_of(path: Path, record: Mapping[str, Any]) -> float:
    """Return the step that a line belongs to: its own, else that in the name of its file."""
    step = record.get("step")
    if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 1e9:
        return float(step)
    return float(file_step(path))


def request_records(record: Mapping[str, Any], step: float) -> Iterator[Call]:
    """Yield the calls of a line of ``requests/<step>.jsonl``."""
    call = str(record["request_id"])[:100]
    for name, number in _counts(record["outcomes"]):
        for _ in range(number):
            yield _record(call, step, OUTCOMES.get(name))
    for name, number in _counts(record.get("refused")):
        for _ in range(number):
            yield _record(call, step, Outcome.BAD_ARGUMENTS, name)


def is_rollout(record: Mapping[str, Any]) -> bool:
    """Is a line one of a trainer's dump?"""
    has_texts = isinstance(record.get("input"), str) and isinstance(record.get("output"), str)
    return has_texts or trainer_of(record) is not None


def rollout_records(record: Mapping[str, Any], path: Path, line: int) -> Iterator[Call]:
    """Yield the calls of a line of a dump, as far as the texts that the model read tell."""
    for flat in flat_lines(record):
        rollout = read_rollout(flat, KEYS)
        step = step_of(path, {"step": rollout.step})
        prompt = str(rollout.prompt if rollout.group is None else rollout.group)
        for text in rollout.texts:
            yield Call(
                f"line {line}",
                step,
                None,
                "dump",
                outcome_of_text(text),
                timed=False,
                read=text[:_LONGEST_READ],
                group=prompt[:_LONGEST_READ],
                score=rollout.score or 0.0,
            )


def _counts(found: Any) -> Iterator[tuple[str, int]]:
    if isinstance(found, dict):
        for name, number in found.items():
            if isinstance(number, int) and not isinstance(number, bool):
                yield str(name)[:100], min(max(number, 0), MOST_CALLS)


def _record(call: str, step: float, outcome: Outcome | None, problem: str | None = None) -> Call:
    return Call(call, step, None, "dump", outcome, problem=problem, timed=False)
