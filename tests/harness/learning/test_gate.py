"""``sfusion poison`` as a gate: each case once passed, or was called by the wrong name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.learning.figures import PoisonFigures, Weight, Weighting
from sfusion.harness.learning.gate import read_limits, reasons_not_to_pass
from sfusion_tools.event_lines import call_line
from sfusion_tools.outcome import Outcome
from tests.cases import every

from .planted import LOST, command, found_by, output_of, poison, sample, training, write

GATE = ("--fail-above", "0.05")

CONNECTION = (
    "ConnectionError: HTTPConnectionPool(host='10.0.0.7', port=8080): Max retries exceeded with "
    "url: /run_code (Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at "
    "0x7f00aa>: Failed to establish a new connection: [Errno 111] Connection refused'))"
)


def outage(step: int) -> float:
    return 0.5 if 5 <= step <= 8 else 0.0


def test_a_text_that_requests_writes_is_a_lost_call(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(lost=outage, text=CONNECTION))
    code, output = poison(dump, *GATE)
    assert code == 1, output
    assert "unreachable" in output
    by_hand = found_by(tmp_path, dump, "--lost-pattern", "Max retries exceeded")["total"]
    assert found_by(tmp_path, dump)["total"]["lost"] == by_hand["lost"] > 100


def test_a_text_that_nobody_knows_is_shown_with_the_option_that_counts_it(tmp_path: Path) -> None:
    text = "Tool backend 17 answered: capacity pool drained (ref 8812)"
    dump = write(tmp_path / "all.jsonl", training(lost=outage, text=text))
    code, output = poison(dump, *GATE)
    assert code == 2, output
    shown = next(line for line in output.splitlines() if "capacity pool" in line)
    assert "--lost-pattern" in shown
    found = found_by(tmp_path, dump)
    cluster = found["unknown_texts"][0]
    assert (cluster["first_step"], cluster["last_step"]) == (5, 8)
    code, output = poison(dump, *GATE, "--lost-pattern", cluster["pattern"])
    assert code == 1, output
    assert (
        found_by(tmp_path, dump, "--lost-pattern", cluster["pattern"])["total"]["lost"]
        == (cluster["count"])
    )
    code, output = poison(dump, *GATE, "--output-pattern", cluster["pattern"])
    assert code == 0, output


def test_a_text_that_stands_for_anything_does_not_pass(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(lost=outage, text="no stdout here"))
    code, output = poison(dump, *GATE)
    assert code == 2, output
    assert "unclear" in output
    [vague] = found_by(tmp_path, dump)["vague_texts"]
    assert (vague["text"], vague["first_step"], vague["last_step"]) == ("no stdout here", 5, 8)
    assert f"--lost-pattern '{vague['pattern']}'" in output
    assert "empty text" not in output
    code, output = poison(dump, *GATE, "--lost-pattern", vague["pattern"])
    assert code == 1, output
    assert f"{vague['count']:,} of 768 samples were lost" in output
    assert poison(dump, *GATE, "--output-pattern", vague["pattern"])[0] == 0


def test_look_names_a_text_that_stands_for_anything(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(lost=outage, text="no stdout here"))
    assert "in 4 steps from 5 to 8: 'no stdout here'" in command("look", dump)[1]


def test_look_shows_what_the_model_read_and_not_what_our_tool_would_write(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(lost=outage, text=CONNECTION))
    _, output = command("look", dump)
    row = output.splitlines()[-3]
    assert "unreachable  ConnectionError: HTTPConnectionPool(host='10.0.0.7'" in row, output
    assert "code_interpreter" not in output


def test_look_does_not_suspect_what_programs_usually_print(tmp_path: Path) -> None:
    """Its samples score as the others, so it is output, as poison says of the same dump."""
    lines = training()
    for number, line in enumerate(lines):
        if number % 4 == 0:
            line["output"] = output_of([f"The answer is {number}"])
    dump = write(tmp_path / "all.jsonl", lines)
    assert "nobody knows" not in command("look", dump)[1]
    for line in lines:
        if "The answer is" in line["output"]:
            line["score"] = 0.0
    assert "'The answer is 0'" in command("look", write(dump, lines))[1]


USUAL = (
    ("429 Client Error: Too Many Requests for url: http://sandbox:8080/run_code", "throttled"),
    ("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>", "sandbox_error"),
    (
        "HTTPConnectionPool(host='sandbox', port=8080): Read timed out. (read timeout=30)",
        "transport_timeout",
    ),
    ("504 Server Error: Gateway Time-out for url: http://sandbox:8080/run_code", "sandbox_error"),
    ("Gateway Timeout (504) on attempt 3/3", "sandbox_error"),
    ("请求超时，请稍后重试", "transport_timeout"),
    ("Cannot connect to host sandbox:8080 ssl:default [Connect call failed]", "unreachable"),
    (
        "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "unreachable",
    ),
    ("Error: 503 Service Unavailable", "sandbox_error"),
    ("API Request Exception: Server disconnected without sending a response.", "unreachable"),
)


@every(USUAL, lambda case: case[0])
def test_look_and_poison_know_the_usual_failures(case: tuple[str, str], tmp_path: Path) -> None:
    text, outcome = case
    dump = write(tmp_path / "1.jsonl", [sample(0, text), sample(1, "42"), sample(1, "43")])
    total = found_by(tmp_path, dump)["total"]
    assert (total["lost"], total["outcomes"]) == (1, {outcome: 1})
    _, output = command("look", dump)
    assert "0.0% failed" not in output, output


@every(
    [
        "the log says: ConnectionError: HTTPConnectionPool(host='x', port=1): Max retries exceeded",
        "429\n",
        "status 502 Bad Gateway was counted 12 times in access.log",
        "Read timed out. appears 3 times",
        'Traceback (most recent call last):\n  File "a.py", line 1\nConnectionError: refused',
        "timeout\nretry\nok",
        "['504', '502']",
    ],
    repr,
)
def test_output_that_merely_contains_such_words_stays_output(text: str, tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", [sample(0, text), sample(1, "42")])
    assert found_by(tmp_path, dump)["total"]["lost"] == 0


def test_groups_that_are_lost_whole_are_not_harmless(tmp_path: Path) -> None:
    """They carry no weight at all, and half of the samples taught nothing."""
    lines = [
        sample(0.0, LOST, question=f"lost {group}")
        if group % 2
        else sample(float(place % 2), "42", question=f"fine {group}")
        for group in range(80)
        for place in range(8)
    ]
    code, output = poison(write(tmp_path / "1.jsonl", lines), *GATE)
    assert code == 1
    assert "320 of 640 samples" in output
    found = found_by(tmp_path, tmp_path / "1.jsonl")
    assert found["total"]["weight_share"] == 0
    assert (found["total"]["dead_groups"], found["total"]["lost_share"]) == (40, 0.5)


def test_a_long_training_does_not_hide_a_short_outage(tmp_path: Path) -> None:
    lines = training(200, 4, 8, lost=lambda step: 0.75 if 100 <= step < 103 else 0.0, uses=0.9)
    code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
    assert code == 1, output
    assert "steps 100 to 102" in output
    found = found_by(tmp_path, tmp_path / "all.jsonl")
    assert found["total"]["weight_share"] < 0.05
    assert found["drop"]["verdict"] == "lost_calls"


def events(lines: Sequence[dict[str, Any]], kept: int) -> bytes:
    """The event log of the first samples, whose last call was lost where the score is 0."""
    written = []
    for number, line in enumerate(lines[:kept]):
        outcome = Outcome.OK if line["score"] else Outcome.THROTTLED
        name = line["request_id"]
        written.append(call_line("client", "w", "c", number, 0.1, outcome, trajectory=name))
    return b"".join(written)


@every([(96, "96 of 192"), (1, "1 of 192")], str)
def test_evidence_for_a_part_of_the_samples_is_not_evidence(
    case: tuple[int, str], tmp_path: Path
) -> None:
    lines = training(3, lost=lambda step: 0.02, text="")
    dump = write(tmp_path / "all.jsonl", lines)
    log = tmp_path / "events.ndjson"
    healthy = [{**line, "score": 1.0} for line in lines]
    log.write_bytes(events(healthy, case[0]))
    code, output = poison(dump, "--events", log, *GATE)
    assert code == 2, output
    assert f"evidence for {case[1]} samples that used the tool" in output
    assert poison(dump, "--events", log, *GATE, "--limit", "coverage=0")[0] == 0
    log.write_bytes(events(healthy, 192))
    code, output = poison(dump, "--events", log, *GATE)
    assert code == 0, output


def test_without_evidence_the_gate_does_not_pass(tmp_path: Path) -> None:
    """No tool message, no log, no key: calls may have been lost or not."""
    dump = write(tmp_path / "1.jsonl", [sample(n % 2, question=f"q{n // 8}") for n in range(64)])
    code, output = poison(dump, *GATE)
    assert code == 2, output
    assert "nothing says whether calls were lost" in output.lower()
    assert poison(dump)[0] == 0


def test_lost_samples_that_were_removed_before_the_dump_are_missed(tmp_path: Path) -> None:
    lines = training(lost=lambda step: 0.64 if step in (5, 6) else 0.0)
    kept = [line for line in lines if LOST not in line["output"]]
    code, output = poison(write(tmp_path / "all.jsonl", kept), *GATE)
    assert code == 2, output
    assert "steps 5 to 6" in output
    assert "removed before the dump" in output


def test_interleaved_steps_are_put_together(tmp_path: Path) -> None:
    lines = training(lost=outage)
    in_order = found_by(tmp_path, write(tmp_path / "a" / "all.jsonl", lines))
    random.Random(3).shuffle(lines)
    dump = write(tmp_path / "b" / "all.jsonl", lines)
    mixed = found_by(tmp_path, dump)
    assert mixed["total"]["weight_share"] == pytest.approx(in_order["total"]["weight_share"])
    assert [step["step"] for step in mixed["steps"]] == list(range(1, 13))
    assert poison(dump, *GATE)[0] == 1


def test_the_same_lines_twice_are_named(tmp_path: Path) -> None:
    lines = training(4)
    dump = write(tmp_path / "all.jsonl", [*lines, *lines])
    code, output = poison(dump, *GATE)
    assert code == 2, output
    assert "twice" in output
    plain = [{**line, "request_id": None} for line in lines]
    code, output = poison(write(tmp_path / "all.jsonl", [*plain, *plain]), *GATE)
    assert (code, "twice" in output) == (2, True), output


def test_the_beginning_of_a_step_that_was_resumed_is_named(tmp_path: Path) -> None:
    """Only a step whose every line occurred twice was noticed."""
    lines = [{**line, "request_id": None} for line in training(4)]
    again = [line for line in lines if line["step"] == 3][:8]
    code, output = poison(write(tmp_path / "all.jsonl", [*lines, *again]), *GATE)
    assert (code, "8 lines occur twice, in step 3" in output) == (2, True), output


def test_siblings_that_answer_alike_are_not_copies(tmp_path: Path) -> None:
    lines = [{**line, "request_id": None} for line in training(4)]
    alike = [line for line in lines for _ in range(1 + (line["score"] == 1.0))]
    assert "twice" not in poison(write(tmp_path / "all.jsonl", alike), *GATE)[1]


@pytest.mark.parametrize("named", ["sandbox", None, ["tool"], 3])
def test_a_key_of_the_users_own_is_no_crash(named: object, tmp_path: Path) -> None:
    line = sample(1.0, question="q", lost_by="x", lost_place=named)
    code, output = poison(write(tmp_path / "1.jsonl", [line] * 8))
    assert code == 0, output


def test_the_same_steps_in_two_dumps_are_two_trainings(tmp_path: Path) -> None:
    first = write(tmp_path / "one" / "1.jsonl", training(1))
    second = write(tmp_path / "two" / "1.jsonl", training(1, seed=8))
    code, output = poison(first, second, *GATE)
    assert code == 2, output
    assert "one training at a time" in output


def test_losses_of_the_reward_are_not_losses_of_the_tool(tmp_path: Path) -> None:
    lines = [
        sample(
            0.0 if place % 4 == 0 else 1.0,
            question=f"q{group}",
            step=step,
            reward_lost=int(place % 4 == 0),
        )
        for step in range(1, 6)
        for group in range(4)
        for place in range(8)
    ]
    code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
    assert code == 1, output
    assert "away from the tool" not in output
    assert "Push on tool use" not in output
    found = found_by(tmp_path, tmp_path / "all.jsonl")
    assert "--events" not in output
    assert "How the calls of the reward ended is not known" in output
    places = found["places"]
    assert (places["reward"]["lost"], places["tool"]["lost"]) == (40, 0)
    assert places["reward"]["weight_share"] == pytest.approx(0.5, abs=1e-6)


def test_losses_without_any_tool_call_are_the_rewards(tmp_path: Path) -> None:
    """Only `lost_calls` tells, and there was no call of the tool that could have been lost."""
    lines = [
        sample(float(n % 2), question=f"q{n // 8}", lost_calls=int(n % 2 == 0)) for n in range(64)
    ]
    found = found_by(tmp_path, write(tmp_path / "1.jsonl", lines))
    assert found["places"]["reward"]["lost"] == 32
    assert not any("away from the tool" in sentence for sentence in found["sentences"])


def test_the_weight_counts_tokens_where_they_are_known(tmp_path: Path) -> None:
    """Four samples with |A| alike; the lost one has 30 of 60 tokens: 50 %, not 25 %."""
    lines = [
        sample(1, "42", tokens=10),
        sample(1, "42", tokens=10),
        sample(0, tokens=10),
        sample(0, LOST, tokens=30),
    ]
    dump = write(tmp_path / "1.jsonl", lines)
    found = found_by(tmp_path, dump)
    assert found["weighting"] == "tokens"
    assert found["total"]["weight_share"] == pytest.approx(0.5, abs=1e-6)
    assert "tokens" in poison(dump)[1]
    by_samples = found_by(tmp_path, dump, "--weigh", "samples")
    assert by_samples["total"]["weight_share"] == pytest.approx(0.25, abs=1e-6)
    del lines[0]["tokens"]
    found = found_by(tmp_path, write(dump, lines))
    assert found["weighting"] == "samples"


def test_a_sample_that_got_its_next_call_is_not_lost_where_only_a_count_tells(
    tmp_path: Path,
) -> None:
    lines = [
        sample(1, "no stdout here", "42", lost_calls=1),
        sample(0, "42", "no stdout here", lost_calls=1),
        sample(0, "", "", lost_calls=2),
        sample(1, "41", "42", lost_calls=1),
    ]
    total = found_by(tmp_path, write(tmp_path / "1.jsonl", lines))["total"]
    assert (total["lost"], total["recovered"]) == (2, 2)


def test_the_worst_step_is_judged_by_its_share_of_the_weight_however_small_that_is() -> None:
    """Advantages are not counted: a sum of 1 may be all that a step teaches."""
    sound = PoisonFigures(samples=4, users=4, covered=4, weight=Weight(4.0))
    hit = replace(sound, weight=Weight(1.25), weight_lost=Weight(1.0))
    steps = [(step, hit if step == 20 else sound) for step in range(1, 31)]
    total = replace(sound, weight=Weight(117.25), weight_lost=Weight(1.0))
    found = reasons_not_to_pass(steps, total, Weighting.SAMPLES, read_limits(0.02, ()))
    assert [(one.name, one.text.partition(":")[0]) for one in found] == [
        ("weight.step", "step 20"),
    ]


def test_the_worst_window_is_named_by_its_first_and_last_step() -> None:
    sound = PoisonFigures(samples=4, users=4, covered=4, weight=Weight(4.0))
    hit = replace(sound, weight_lost=Weight(1.0))
    steps = [(step, hit if step in (12, 14) else sound) for step in range(1, 31)]
    total = replace(sound, weight=Weight(120.0), weight_lost=Weight(2.0))
    limits = read_limits(1.0, ("weight.window=0.03",))
    (found,) = reasons_not_to_pass(steps, total, Weighting.SAMPLES, limits)
    assert found.name == "weight.window"
    assert found.text.startswith("steps 5 to 14: ")


def test_a_clean_training_passes(tmp_path: Path) -> None:
    code, output = poison(write(tmp_path / "all.jsonl", training(uses=0.8)), *GATE)
    assert code == 0, output


@every(
    [
        ("lost", "step"),
        ("weight", "window"),
        ("dead", "step"),
        ("moved", "all"),
    ],
    str,
)
def test_each_limit_can_be_set_alone(case: tuple[str, str], tmp_path: Path) -> None:
    name, span = case
    dump = write(tmp_path / "all.jsonl", training(lost=outage, uses=0.9, size=4))
    wide = [
        word
        for which in ("lost", "weight", "dead", "moved")
        for span_ in ("all", "window", "step")
        for word in ("--limit", f"{which}.{span_}=1")
    ]
    assert poison(dump, *GATE, *wide)[0] == 0
    code, output = poison(dump, *GATE, *wide, "--limit", f"{name}.{span}=0.0001")
    assert code == 1, output


@every(
    [
        (["--limit", "lots=0.1"], "lost.all"),
        (["--limit", "lost.all"], "NAME=SHARE"),
        (["--limit", "lost.all=7"], "from 0 to 1"),
        (["--limit", "lost.all=nan"], "from 0 to 1"),
    ],
    str,
)
def test_wrong_limits_are_refused(case: tuple[list[str], str], tmp_path: Path) -> None:
    code, output = poison(write(tmp_path / "1.jsonl", training(1)), *case[0])
    assert (code, case[1] in output) == (2, True), output


def test_output_of_planted_lines_is_read_back() -> None:
    assert "<tool_response>\n42\n" in output_of(["42"])


@every(
    [
        "drained pool at hub",
        "x" * 1000 + " gateway",
        "request 3f2a-{n} of node-{n}b was not taken",
    ],
    lambda text: text[:30],
)
def test_no_wording_of_an_outage_passes_as_output(text: str, tmp_path: Path) -> None:
    """Without a word for failure, long, with ids: all along, for all samples, or for some steps."""
    shares = (lambda step: 0.4, lambda step: 1.0, lambda step: 0.5 if step in (5, 6, 7) else 0.0)
    for lost in shares:
        lines = training(12, lost=lost, text="LOST")
        for number, line in enumerate(lines):
            line["output"] = line["output"].replace("LOST", text.replace("{n}", str(number)))
        code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
        assert code == 2, output
        assert "Not infrastructure" not in output


HEADING = "Tool result of code_interpreter (language=python, session=default, limits=none):\n"


def worded(lines: list[dict[str, Any]], text: str, seed: int = 5) -> list[dict[str, Any]]:
    """Put a text where LOST stands, with an id of letters for each ``{id}``."""
    draw = random.Random(seed)
    for line in lines:
        id = "".join(draw.choices("bcdfghjkmnpqrstvwxz", k=8))
        line["output"] = line["output"].replace("GONE", text.replace("{id}", id))
    return lines


@every(
    [
        (HEADING + "all workers are gone now", 12, 0.5, "a heading before every answer"),
        ("request {id} failed: executor lost", 12, 0.5, "ids of letters"),
        ("backend of the interpreter is down", 150, 0.5, "one step of 150"),
        ("keine Antwort vom Dienst", 12, 0.09, "German, all along"),
    ],
    lambda case: case[3],
)
def test_a_text_is_shown_whatever_hides_it(
    case: tuple[str, int, float, str], tmp_path: Path
) -> None:
    text, steps, share, _ = case
    bad = range(1, 13) if share < 0.1 else (5,) if steps > 12 else (5, 6, 7)
    lines = training(steps, lost=lambda step: share if step in bad else 0.0, text="GONE")
    planted = sum("GONE" in line["output"] for line in lines)
    if text.startswith(HEADING):
        for line in lines:
            line["output"] = line["output"].replace("response>\n", f"response>\n{HEADING}", 1)
        text = text.removeprefix(HEADING)
    dump = write(tmp_path / "all.jsonl", worded(lines, text))
    code, output = poison(dump, *GATE)
    assert code == 2, output
    pattern = found_by(tmp_path, dump)["unknown_texts"][0]["pattern"]
    assert pattern in output.replace("'\"'\"'", "'")
    assert found_by(tmp_path, dump, "--lost-pattern", pattern)["total"]["lost"] == planted


@every([("service overloaded", 0.75), ("the pool was drained", 0.4)], str)
def test_samples_that_guess_well_do_not_hide_a_text(
    case: tuple[str, float], tmp_path: Path
) -> None:
    """Lost samples score as the others, or half as well; it is a failure by its words, or by its
    steps."""
    text, right = case
    draw = random.Random(3)
    lines = training(lost=outage, text="GONE")
    for line in lines:
        if "GONE" in line["output"]:
            line["score"] = float(draw.random() < right)
    code, output = poison(write(tmp_path / "all.jsonl", worded(lines, text)), *GATE)
    assert code == 2, output
    assert "--lost-pattern" in output


def test_a_short_outage_is_in_the_first_line_of_a_long_training(tmp_path: Path) -> None:
    lines = training(150, 2, 8, lost=lambda step: 0.7 if step == 70 else 0.0, uses=0.9)
    code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
    assert code == 1, output
    assert "step 70" in output.splitlines()[0], output


def test_groups_that_were_removed_whole_are_missed(tmp_path: Path) -> None:
    lines = training(lost=lambda step: 0.2 if step in (5, 6) else 0.0)
    hit = {line["input"] for line in lines if LOST in line["output"]}
    kept = [line for line in lines if line["input"] not in hit]
    code, output = poison(write(tmp_path / "all.jsonl", kept), *GATE)
    assert code == 2, output
    assert "removed before the dump" in output
    assert f"but {8 * len(hit):,} are missing" in output.splitlines()[0]
    running = training(12)[: 8 * 8 * 11 + 8 * 3]
    code, output = poison(write(tmp_path / "all.jsonl", running), *GATE)
    assert code == 0, output


def test_lost_samples_without_a_score_are_lost(tmp_path: Path) -> None:
    """As in TRL, where every reward function returned None."""
    lines = training(lost=outage)
    for line in lines:
        if LOST in line["output"]:
            line["score"] = None
    lost = sum(line["score"] is None for line in lines)
    code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
    assert code == 1, output
    assert f"but {lost:,} without a score have" in output.splitlines()[0]
    assert "missing" not in output


def test_a_program_that_asks_the_internet_fails_by_itself(tmp_path: Path) -> None:
    """It prints the exception of the library that our client might use, too."""
    text = (
        "Error: HTTPSConnectionPool(host='api.example.org', port=443): Max retries exceeded with "
        "url: /v1 (Caused by NameResolutionError)"
    )
    lines = training(lost=lambda step: 0.1, text=text)
    dump = write(tmp_path / "all.jsonl", lines)
    assert found_by(tmp_path, dump)["total"]["lost"] > 50
    call = '{"name": "code", "arguments": {"code": "requests.get(\'https://api.example.org/v1\')"}}'
    for line in lines:
        line["output"] = line["output"].replace("<tool_call>…", f"<tool_call>{call}")
    code, output = poison(write(dump, lines), *GATE)
    assert code == 0, output


def test_a_heading_of_all_texts_is_no_failure(tmp_path: Path) -> None:
    lines = training(uses=1.0, right=lambda step: 0.2)
    for number, line in enumerate(lines):
        answer = ("[1, 2]", "True", "x = 7", "done in 3 s")[number % 4]
        line["output"] = output_of([HEADING + answer])
    code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
    assert code == 0, output


@every(["None", "0.0", "Answer: 7"], str)
def test_what_wrong_programs_print_does_not_stop_the_gate(text: str, tmp_path: Path) -> None:
    draw = random.Random(4)
    lines = training(20, uses=0.9)
    for line in lines:
        if draw.random() < 0.08:
            line["output"] = output_of([text])
            line["score"] = 0.0
    code, output = poison(write(tmp_path / "all.jsonl", lines), *GATE)
    assert code == 0, output


def test_empty_texts_can_be_declared_output(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(lost=lambda step: 0.3, text=""))
    assert poison(dump, *GATE)[0] == 2
    assert poison(dump, *GATE, "--output-pattern", r"^\s*$")[0] == 0


def test_only_what_a_trainer_can_do_is_as_trained(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(2, lost=lambda step: 0.3, uses=0.8))
    assert poison(dump, "--trained", "passed")[0] == 2
    weights = {
        name: found_by(tmp_path, dump, "--trained", name)["total"]
        for name in ("zero", "mask", "exclude")
    }
    assert weights["zero"]["weight_share"] > 0
    assert (weights["mask"]["weight_share"], weights["exclude"]["weight_share"]) == (0, 0)
    assert weights["mask"]["moved"] > weights["exclude"]["moved"] == 0


def test_a_dump_that_can_hardly_be_read_does_not_pass(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training())
    assert poison(dump, *GATE)[0] == 0
    lines = dump.read_text("utf-8").splitlines()
    kept = len(lines) // 2
    torn = [*lines[:kept], *('{"cut' for _ in lines[kept:])]
    dump.write_text("\n".join(torn) + "\n", "utf-8")
    code, output = poison(dump, *GATE)
    assert code == 2, output
    assert f"{len(lines) - kept:,} of {len(lines):,} lines could not be read" in output
