"""Dumps with known losses, as verl writes them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.learning.dumps import DumpReader
from sfusion.harness.learning.evidence import Evidence
from sfusion.harness.learning.poison import Poison
from sfusion_tools.advantages import Estimator
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import CallResult
from sfusion_tools.sandbox.text import model_text

LOST = model_text(CallResult("c", Outcome.THROTTLED), "code_interpreter", timeout=1, limit=1)
"""What our tool writes for a lost call."""


def output_of(answers: Sequence[str]) -> str:
    turns = [
        f"<tool_call>…</tool_call>\nuser\n<tool_response>\n{answer}\n</tool_response>\n"
        for answer in answers
    ]
    return f"{''.join(turns)}assistant\n#### 1"


def sample(score: Any, *answers: str, question: str = "q", **more: Any) -> dict[str, Any]:
    """A line as verl dumps it, with what the tool answered in each turn."""
    return {
        "input": f"user\n{question}",
        "output": output_of(answers),
        "score": score,
        "step": 1,
        **more,
    }


def write(path: Path, lines: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def command(name: str, *arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [name, *map(str, arguments)])
    return done.exit_code, done.output


def poison(*arguments: object) -> tuple[int, str]:
    return command("poison", *arguments)


def found_by(folder: Path, *arguments: object) -> dict[str, Any]:
    """What ``--json`` says, whatever the exit code."""
    target = folder / "found.json"
    code, output = poison(*arguments, "--json", target)
    assert target.exists(), (code, output)
    return json.loads(target.read_text())


def figures_of(dump: Path, estimator: Estimator = Estimator.GRPO) -> Poison:
    """What is counted in a dump, without the command around it."""
    found = Poison(estimator)
    for step in DumpReader([dump], Evidence()):
        found.add(step)
    found.finish()
    return found


def training(
    steps: int = 12,
    groups: int = 8,
    size: int = 8,
    *,
    lost: Callable[[int], float] = lambda step: 0.0,
    text: str = LOST,
    right: Callable[[int], float] = lambda step: 0.75,
    uses: float = 1.0,
    seed: int = 7,
) -> list[dict[str, Any]]:
    """Lines of a training.

    In each step a share ``lost(step)`` of the samples that use the tool read ``text`` and score 0;
    the others pass with the chance ``right(step)``.
    """
    draw = random.Random(seed)
    lines = []
    for step in range(1, steps + 1):
        for group in range(groups):
            for place in range(size):
                used = draw.random() < uses
                gone = used and draw.random() < lost(step)
                passed = draw.random() < right(step)
                answers = [text if gone else str(draw.randrange(10**6))] if used else []
                name = f"s{step}g{group}p{place}"
                score = float(passed and not gone)
                question = f"question {group} of step {step}"
                lines.append(sample(score, *answers, question=question, step=step, request_id=name))
    return lines
