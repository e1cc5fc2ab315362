"""What a client does under each fault, in a few words: a row of docs/clients.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..lab.client import Shape
from ..lab.scenarios.model import Scenario
from ..lab.single_calls.calls import CallFacts
from ..lab.single_calls.suite import SuiteFacts
from .trial import play_scenes

FAULTS: dict[str, Mapping[str, Any]] = {
    "429": {"what": {"status": 429}},
    "429, Retry-After": {"what": {"status": 429, "retry_after": 3.0}},
    "503": {"what": {"status": 503}},
    "504": {"what": {"status": 504}, "phase": "after"},
    "hang": {"what": "hang", "phase": "after"},
    "reset": {"what": "reset", "phase": "after"},
    "truncated": {"what": {"truncate": 0.5}},
    "bad JSON": {"what": {"malformed": "json"}},
    "SandboxError": {"what": "sandbox_error"},
    "stdout null": {"what": {"output": {"what": "null", "stream": "stdout"}}},
}
"""The columns: each strikes the first attempt of one call, and every attempt of another."""


def fault_row(shape: Shape) -> dict[str, str]:
    """Play each fault and return the cells: the first attempt fails / all fail."""
    scored = "tests" in shape.takes
    each = []
    for fault in FAULTS.values():
        each += [_call({**fault, "first_attempts": 1}, scored), _call(fault, scored)]
    about = "Each fault strikes the first attempt of one call, and every attempt of another."
    scenario = Scenario.from_data(
        {"scenario": "fault-row", "about": about, "horizon": 3000, "load": {"each": each}}
    )
    facts = SuiteFacts(play_scenes(shape, None, [scenario]).journals)
    cells = {call.call: _cell(call, scored=scored) for call in facts}
    row = {}
    for number, name_of_fault in enumerate(FAULTS):
        first = cells.get(f"c{2 * number + 1:04d}", "never ends")
        every = cells.get(f"c{2 * number + 2:04d}", "never ends")
        row[name_of_fault] = f"{first} / {every}"
    return row


def _call(fault: Mapping[str, Any], scored: bool) -> dict[str, Any]:
    """Return a call that meets a fault; of a reward function one with a single test."""
    together = {"end": "either", "together": True}
    if scored:
        return {**together, "tests": [{"fault": dict(fault)}]}
    return {**together, "prints": "{word}\n", "fault": dict(fault)}


def _cell(call: CallFacts, *, scored: bool) -> str:
    told = call.returned
    if told is None:
        return "never ends"
    if told.raised is not None:
        how = "raises"
    elif scored and told.reward is not None:
        how = f"score {told.reward:g}"
    else:
        printed = call.truths[0].stdout.strip() if call.truths else ""
        how = "✓" if printed and printed in told.text else "returns"
    attempts = len(call.requests)
    return how if attempts == 1 else f"{how}×{attempts}"


def markdown_row(name: str, cells: Mapping[str, str]) -> str:
    return f"| {name} | {' | '.join(cells[fault] for fault in FAULTS)} |"
