"""The first line that somebody with another trainer reads: an outage, a worse model, a clean
training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cases import every

from .planted import poison, training, write

PLANTED: dict[str, tuple[dict[str, Any], int, str]] = {
    "outage": ({"lost": lambda step: 0.6 if 9 <= step <= 12 else 0.0}, 1, "Lost calls explain "),
    "worse model": (
        {"right": lambda step: 0.8 if step < 12 else 0.3},
        0,
        "Not infrastructure: ",
    ),
    "clean": ({}, 0, "None of 1,536 samples with a score is known to have lost a call."),
}
TEXT = "Client error '429 Too Many Requests' for url 'http://sandbox:8080/run_code'"


def _trl(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "step": line["step"],
        "prompt": line["input"],
        "completion": line["output"],
        "accuracy_reward": line["score"],
        "advantage": 0.0,
    }


def _messages(line: dict[str, Any]) -> list[dict[str, Any]]:
    output = line["output"]
    if "<tool_response>" not in output:
        return [{"role": "assistant", "content": "#### 1"}]
    text = output.split("<tool_response>\n")[1].split("\n</tool_response>")[0]
    return [{"role": "assistant", "content": ""}, {"role": "tool", "content": text}]


def _slime(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "group_index": line["input"],
        "status": "completed",
        "reward": line["score"],
        "prompt": [{"role": "user", "content": line["input"]}],
        "messages": _messages(line),
        "step": line["step"],
    }


def _prime(line: dict[str, Any]) -> dict[str, Any]:
    nodes = [
        {"message": message, "sampled": message["role"] == "assistant", "mask": [True]}
        for message in _messages(line)
    ]
    rewards = {"correct": {"score": line["score"], "weight": 1.0}}
    trace = {"nodes": nodes, "rewards": rewards, "ok": True, "id": line["request_id"]}
    work = {"type": "train", "step": line["step"]}
    return {
        "traces": [trace],
        "task": {"key": line["input"]},
        "env": {},
        "run": {"work": work},
        "ok": True,
    }


TRAINERS = {"trl": _trl, "slime": _slime, "prime-rl": _prime}


@every([(name, who) for name in PLANTED for who in TRAINERS], str)
def test_the_first_line_is_right(case: tuple[str, str], tmp_path: Path) -> None:
    planted, code, first = PLANTED[case[0]]
    lines = [TRAINERS[case[1]](line) for line in training(24, uses=0.8, text=TEXT, **planted)]
    dump = write(tmp_path / "all.jsonl", [json.dumps(line) for line in lines])
    found, output = poison(dump, "--fail-above", "0.05")
    assert found == code, output
    assert output.splitlines()[0].startswith(first), output
