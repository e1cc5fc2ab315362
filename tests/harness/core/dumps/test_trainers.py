"""Dumps of other trainers: what is read of each, and what it declares lost. See
data/trainers/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from tests.harness.learning.planted import command, found_by, poison, write

DATA = Path(__file__).parent / "data" / "trainers"

DUMPS = (
    # name, lost by place, sources, handling as trained, tokens are known
    ("rllm", {"tool": 1, "rollout": 1}, {"known text", "termination_reason error"}, "zero", False),
    (
        "slime",
        {"tool": 1, "rollout": 2},
        {"known text", "status aborted", "remove_sample"},
        "mask",
        True,
    ),
    ("miles", {"tool": 1, "rollout": 1}, {"known text", "status aborted"}, "mask", False),
    ("open_instruct", {"tool": 1}, {"known text"}, "zero", True),
    ("prime_rl", {"tool": 2}, {"known text", "error SandboxError"}, "exclude", True),
    ("verifiers", {"tool": 2}, {"known text", "error SandboxError"}, "zero", True),
    ("trl", {"tool": 1}, {"known text"}, "zero", False),
    (
        "nemo_gym",
        {"tool": 1, "reward": 2, "rollout": 1},
        {
            "known text",
            "failure_reason gold_execution_error",
            "mask_sample",
            "_ng_failure_class judge_failed",
        },
        "mask",
        True,
    ),
    ("nemo_rl", {"tool": 1, "rollout": 1}, {"known text", "sample_loss_mask 0"}, "mask", True),
)


@every(DUMPS, lambda case: case[0])
def test_a_trainers_dump_is_read_without_being_told_whose_it_is(
    case: tuple[str, dict[str, int], set[str], str, bool], tmp_path: Path
) -> None:
    name, lost, sources, handling, tokens = case
    found = found_by(tmp_path, DATA / name)
    total = found["total"]
    unscored = 1 if name == "trl" else 0  # every reward function returned None
    assert (total["samples"], total["unscored"]) == (8 - unscored, unscored)
    assert (total["groups"], total["users"]) == (2, 8 - unscored)
    assert {place: value["lost"] for place, value in found["places"].items() if value["lost"]} == (
        lost
    )
    assert set(found["recognised_by"]) == sources
    assert found["trained"] == handling
    assert (found["weighting"] == "tokens") == tokens
    # An evaluation of verifiers has no steps.
    assert [step["step"] for step in found["steps"]] == [0 if name == "verifiers" else 7]
    assert found["unreadable_lines"] == 0


def test_reward_functions_of_trl_are_added_up(tmp_path: Path) -> None:
    """Four of seven pass, each has 0.5 for its format beside it."""
    total = found_by(tmp_path, DATA / "trl")["total"]
    assert total["score"] == pytest.approx((4 - 0 + 7 * 0.5) / 7, abs=1e-6)


@every([case[0] for case in DUMPS], str)
def test_look_reads_the_tool_messages_of_any_dump(name: str) -> None:
    """Also where the trainer has a folder for each step."""
    code, output = command("look", DATA / name)
    assert code == 0, output
    assert "throttled" in output, output


def test_tool_messages_in_tags_of_retool_are_read(tmp_path: Path) -> None:
    """slime's examples/retool put what the interpreter answered into the response."""
    lost = "429 Client Error: Too Many Requests for url: http://sandbox:8080/run_code"
    lines = [
        {
            "group_index": 0,
            "status": "completed",
            "prompt": "q",
            "response": f"<code>\n1\n</code>\n\n<interpreter>\n{text}\n</interpreter>\n\n3",
            "reward": reward,
            "response_length": 9,
        }
        for text, reward in ((lost, 0), ("42", 1), ("43", 1))
    ]
    total = found_by(tmp_path, write(tmp_path / "rollout_1.jsonl", lines))["total"]
    assert (total["users"], total["lost"], total["outcomes"]) == (3, 1, {"throttled": 1})


def test_other_records_of_the_same_episodes_are_not_read_twice(tmp_path: Path) -> None:
    """prime-rl writes what it trained on beside all episodes, and evaluations beside both."""
    traces = next((DATA / "prime_rl").rglob("traces.jsonl")).read_text().splitlines()
    for folder in ("train/all", "train/effective", "eval/all"):
        write(tmp_path / "rollouts" / "step_7" / folder / "traces.jsonl", traces)
    assert found_by(tmp_path, tmp_path / "rollouts")["total"]["samples"] == 8


@every([".parquet", ".pt"], str)
def test_files_that_need_other_libraries_come_with_the_line_that_converts_them(
    suffix: str, tmp_path: Path
) -> None:
    folder = tmp_path / suffix[1:]
    folder.mkdir()
    (folder / f"7{suffix}").write_bytes(b"PAR1")
    for given in (folder, folder / f"7{suffix}"):
        code, output = poison(given)
        assert (code, "is not text" in output, "python -c" in output) == (2, True, True), output


def test_a_dump_that_is_not_understood_says_what_it_has_and_lacks(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": "q", "answer_text": "a", "correct": 1}]
    dump = write(tmp_path / "1.jsonl", rows)
    code, output = poison(dump)
    assert code == 2
    assert "no output (output or completion or response or messages)" in output
    assert "its keys are question, answer_text, correct" in output
    keys = ("--key", "output=answer_text", "--key", "score=correct", "--key", "input=question")
    assert poison(dump, *keys)[0] == 0


def test_other_files_say_what_to_do_with_them(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text('[{"output": "a", "score": 1}]')
    assert "has no .jsonl file; it has all.json: " in poison(tmp_path)[1]
    assert (
        "a JSON list, not an object; write one sample in each line"
        in (poison(tmp_path / "all.json")[1])
    )


@every(
    [
        {"traces": 3, "task": None, "env": []},
        {"traces": [{"nodes": [None, {}, {"mask": [1], "message": 3}]}], "task": {}, "env": {}},
        {"nodes": 4, "rewards": [], "task": 1},
        {"example_id": [], "completion": "text", "reward": {}, "error": 4},
        {"responses_create_params": 3, "reward": None, "response": []},
        {"content": [[3]], "rewards": [], "idx": 1, "token_loss_mask": [[None]]},
        {"group_index": {}, "status": [], "reward": {"a": "b"}, "prompt": 4, "loss_mask": ["x"]},
        {"trajectories": [3, {"steps": "x"}], "termination_reason": 3, "task": []},
        {"prompt_tokens": 3, "response_tokens": {}, "reward": "x", "request_info": []},
        {"prompt": None, "completion": [[[]]], "advantage": "x", "r": 10**400},
        {"output": [{"role": "tool", "content": [{"a": 1}]}, 3], "score": [1, 2], "uid": [1]},
    ],
    json.dumps,
)
def test_odd_lines_are_no_defect_of_ours(line: dict[str, Any], tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", [line, line])
    code, output = poison(dump, "--fail-above", "0.1")
    assert code in (0, 1, 2), output
    assert command("look", dump)[0] in (0, 2)
