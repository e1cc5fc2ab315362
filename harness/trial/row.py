"""What a client does under each fault, in a few words: a row of docs/clients.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..lab.facts.truth import ProgramTruth
from .client import TrialAsk
from .plan import Scene, TrialCall, TrialPlan
from .record import PlayedScene
from .shapes import Shape
from .trial import play_plan

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
    names = {fault: f"fault-{number}" for number, fault in enumerate(FAULTS)}
    scene = Scene("row", (), horizon=3000.0)
    for fault, name in names.items():
        for mark, more in ((f"{name}-first", {"first_attempts": 1}), (f"{name}-all", {})):
            ask = TrialAsk(
                mark,
                f"# sfusion:call={mark}\nprint()\n",
                truth=_printed(mark),
                tests=(("", _printed(mark)),),
            )
            scene = replace(
                scene,
                calls=(*scene.calls, TrialCall(ask, "either")),
                programs={**scene.programs, mark: (ProgramTruth(_printed(mark) + "\n"),)},
                faults=(*scene.faults, {"name": mark, "call": mark, **FAULTS[fault], **more}),
            )
    record, _ = play_plan(shape, None, lambda scale: TrialPlan(0, (scene,), scale=scale))
    played = record.scenes["row"]
    cells = {mark: _cell(played, mark, scored="tests" in shape.takes) for mark in scene.programs}
    return {
        fault: f"{cells[f'{name}-first']} / {cells[f'{name}-all']}" for fault, name in names.items()
    }


def _printed(mark: str) -> str:
    return f"printed-by-{mark}"


def _cell(played: PlayedScene, mark: str, *, scored: bool) -> str:
    attempts = sum(sent.mark == mark for sent in played.requests)
    told = next((call.told for call in played.calls if call.ask.call == mark), None)
    if told is None:
        return "never ends"
    if told.raised is not None:
        how = "raises"
    elif scored and told.reward is not None:
        how = f"score {told.reward:g}"
    else:
        how = "✓" if _printed(mark) in told.text else "returns"
    return how if attempts == 1 else f"{how}×{attempts}"


def markdown_row(name: str, cells: Mapping[str, str]) -> str:
    return f"| {name} | {' | '.join(cells[fault] for fault in FAULTS)} |"
