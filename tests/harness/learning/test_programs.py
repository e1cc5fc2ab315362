"""Programs that lose every attempt while others succeed, and texts that nobody knows, in poison and
look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfusion_tools.event_lines import call_line
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt

from .planted import LOST, command, found_by, poison, training, write


def messages(program: str, answer: str, step: int, question: str) -> dict[str, Any]:
    call = {"function": {"name": "code", "arguments": program}}
    turns = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": answer},
    ]
    score = float(answer != LOST)
    return {"prompt": question, "completion": turns, "score": score, "step": step}


def test_a_program_that_always_loses_is_listed_and_one_that_once_did_not_is_not(
    tmp_path: Path,
) -> None:
    lines = []
    for step in range(1, 5):
        lines += [messages(f"print({n})", "42", step, f"q{n}") for n in range(8)]
        lines.append(messages("fork_bomb()", LOST, step, "bomb"))
        answer = "7" if step == 1 else LOST
        lines.append(messages("unlucky()", answer, step, "luck"))
    dump = write(tmp_path / "all.jsonl", lines)
    listed = found_by(tmp_path, dump)["losing_programs"]
    assert [(one["program"], one["attempts"]) for one in listed] == [("fork_bomb()", 4)]
    output = poison(dump)[1]
    assert "all 4 attempts of a program were lost" in output
    assert "But score the 4 attempts of 1 program that lost every one" in output


def test_programs_of_an_outage_are_not_blamed(tmp_path: Path) -> None:
    lines = [messages(f"print({n % 2})", LOST, step, f"q{n}") for step in (1, 2) for n in range(8)]
    assert found_by(tmp_path, write(tmp_path / "all.jsonl", lines))["losing_programs"] == []


def test_look_shows_a_text_that_nobody_knows(tmp_path: Path) -> None:
    text = "Tool backend 17 answered: capacity pool drained"
    lines = training(lost=lambda step: 0.5 if step in (5, 6) else 0.0, text=text)
    _, output = command("look", write(tmp_path / "all.jsonl", lines))
    assert "A text that nobody knows" in output
    assert "capacity pool drained" in output
    _, output = command("look", write(tmp_path / "all.jsonl", training()))
    assert "A text that nobody knows" not in output


def test_look_counts_calls_that_lost_every_attempt_alone(tmp_path: Path) -> None:
    lost = [
        Attempt(number=n, outcome=Outcome.SANDBOX_ERROR, after=float(n), seconds=0.1)
        for n in range(1, 4)
    ]
    fine = [call_line("client", "w", f"c{n}", 100.0 + n, 0.5, Outcome.OK) for n in range(40)]
    alone = call_line("client", "w", "bad", 120.0, 5.0, Outcome.SANDBOX_ERROR, attempts=lost)
    log = tmp_path / "events.ndjson"
    log.write_bytes(b"".join([*fine, alone]))
    assert "1 call lost every attempt while most others" in command("look", log)[1]
    log.write_bytes(b"".join(fine))
    assert "lost every attempt" not in command("look", log)[1]
