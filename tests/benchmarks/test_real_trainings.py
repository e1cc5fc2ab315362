"""Real trainings: the parts that need no torch, and the figures that docs/ tell."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import fmean, median

import pytest

from benchmarks.training.conditions import STARTS, Condition
from benchmarks.training.plans import baselines, held_out
from benchmarks.training.predictions import predict_all
from benchmarks.training.report import BEGIN, END, chosen_key, write_report
from benchmarks.training.sandbox import Stack, printed
from benchmarks.training.sizes import SIZES, fitting
from benchmarks.training.tasks import LOOKS, Problem, draw_problem, look, secret
from benchmarks.training.vocabulary import CALL, CALL_END, OTHER, RESULT, RESULT_END, decode, encode

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "training" / "results"


def records(name: str) -> list[dict]:
    text = (RESULTS / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("start", STARTS)
def test_what_is_shown_can_be_read_again(start: str) -> None:
    """Every demonstration has tokens of its own, fits its model, and ends with an answer."""
    lessons = STARTS[start].lessons
    size = fitting(SIZES["gpu"], lessons.kind)
    draw = Random(1)
    for _ in range(300):
        pieces = lessons.draw(draw)
        text = "".join(
            piece.text for piece in pieces if piece.written or "failed" not in piece.text
        )
        tokens = encode(text)
        assert encode("<other>")[0] not in tokens
        assert decode(tokens) == text.partition("<end>")[0]
        assert len(encode("".join(piece.text for piece in pieces))) <= size.length
        assert "#### " in pieces[-1].text


def test_the_first_look_is_the_largest_as_often_as_the_docs_say() -> None:
    draw = Random(2)
    problems = [draw_problem("looks", draw) for _ in range(4000)]
    share = sum(problem.result(1) == problem.answer for problem in problems) / len(problems)
    assert share == pytest.approx(0.62, abs=0.02)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print(37*8)", "296"),
        ("print(secret(37,8))", str(secret(37, 8))),
        ("print(look(37,8,2))", str(look(37, 8, 2))),
        (f"print(look(37,8,{LOOKS + 1}))", None),
        ("print(37*)", None),
        ("import os", None),
    ],
)
def test_programs_of_the_model(code: str, text: str | None) -> None:
    assert printed(code) == text


async def test_calls_are_lost_one_by_one_and_equal_programs_not_together() -> None:
    problem = Problem("product", 37, 8)
    text = CALL + problem.program() + CALL_END
    stack = Stack(Condition("noisy", 1, share=0.3))
    await stack.start()
    try:
        stack.begin_step(1)
        replies = await stack.answer([text] * 200)
        stack.begin_step(2)
        later = await stack.answer([text] * 200)
    finally:
        await stack.stop()
    lost = [reply.lost for reply in replies]
    assert 35 <= sum(lost) <= 85
    assert lost != [reply.lost for reply in later]
    assert {reply.text for reply in replies if not reply.lost} == {"296"}
    assert encode(next(reply.text for reply in replies if reply.lost))[0] == encode(OTHER)[0]


async def test_an_outage_loses_every_call_of_its_steps_and_no_other() -> None:
    stack = Stack(Condition("noisy", 1, outage=(2, 2)))
    await stack.start()
    try:
        lost = []
        for step in (1, 2, 3):
            stack.begin_step(step)
            replies = await stack.answer([f"{CALL}37*8{CALL_END}"] * 5)
            lost.append(sum(reply.lost for reply in replies))
    finally:
        await stack.stop()
    assert lost == [0, 5, 0]


def test_plans_name_each_training_once_and_keep_what_is_predicted_apart() -> None:
    known = [condition.name for condition in baselines([1, 2, 3])]
    unseen = [condition.name for condition in held_out([1, 2, 3])]
    assert len({*known, *unseen}) == len(known) + len(unseen)
    assert {record["name"] for record in records("baselines.jsonl")} == set(known)
    assert {record["name"] for record in records("predictions.jsonl")} == set(unseen)
    assert {record["name"] for record in records("trainings.jsonl")} <= set(unseen)


def test_a_prediction_is_what_the_toy_says_of_the_baselines() -> None:
    """Made again for one start: nothing of the trainings themselves goes into it."""
    condition = Condition("decision", 1, "zero", 0.6, rate=6e-5)
    (made,) = predict_all([condition], records("baselines.jsonl"), SIZES["gpu"])
    (kept,) = [each for each in records("predictions.jsonl") if each["name"] == condition.name]
    assert made["told"] == kept["told"] == "lost"
    assert made["predicted"] == pytest.approx(kept["predicted"], abs=0.005)


def test_the_page_has_the_tables_of_the_results(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "real-trainings.md").read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert table == write_report(RESULTS, tmp_path)
    drawn = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.glob("*.svg")}
    assert sorted(drawn) == ["real-training-curves.svg", "real-training-story.svg"]
    for name, svg in drawn.items():
        assert svg == (ROOT / "docs" / "images" / name).read_text(encoding="utf-8"), name


def test_the_page_has_the_second_run_and_it_leads_to_the_same_sentences(tmp_path: Path) -> None:
    written = write_report(RESULTS / "cpu", tmp_path).partition("\n\n")[0]
    assert written in (ROOT / "docs" / "real-trainings.md").read_text(encoding="utf-8")
    for record in records("cpu/trainings.jsonl"):
        condition = record["condition"]
        keeps = condition["lost"] == "exclude" or condition["share"] < 0.85
        assert (record["after"]["tool"] > 0.8) == keeps, record["name"]
        assert (record["after"]["tool"] < 0.2) != keeps, record["name"]
        assert record["machine"]["device"] == "cpu"


def test_what_docs_learning_says_of_lost_samples_left_out() -> None:
    left_out = [
        each for each in records("trainings.jsonl") if each["condition"]["lost"] == "exclude"
    ]
    highest = max(each["condition"]["share"] for each in left_out)
    said = f"All {len(left_out)} trainings, with up to {highest:.0%} of calls lost, ended as"
    assert said.replace("%", " %") in page("learning.md")
    for record in left_out:
        assert record["after"][chosen_key(record)] >= 0.98, record["name"]
        assert record["after"]["score"] >= 0.94, record["name"]


def page(name: str) -> str:
    """Return a page with its lines joined."""
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def ends(training: str, key: str) -> list[float]:
    """Return how the seeds of a training ended."""
    found = [
        record["after"][key]
        for record in records("trainings.jsonl") + records("baselines.jsonl")
        if record["name"].rpartition("-s")[0] == training
    ]
    assert len(found) >= 2
    return found


def spread(training: str, key: str = "score") -> str:
    found = ends(training, key)
    return f"{min(found):.2f} to {max(found):.2f}"


def faultless(start: str, key: str = "score") -> str:
    return f"{median(ends(f'{start}-zero-r6e-05', key)):.2f}"


def test_the_first_sentences_of_docs_learning_have_the_figures_of_the_results() -> None:
    learning = page("learning.md")
    four = spread("several-zero-f0.2-r6e-05")
    one = spread("noisy-zero-f0.5-r6e-05")
    scored = (
        "With 20 % of calls lost, answers with four calls became rare (score on a healthy sandbox "
        f"{four}, without faults {faultless('several')}). With 50 % lost, a model that can learn "
        f"the answers itself gave up its only call, too ({one}, without faults "
        f"{faultless('noisy')})"
    )
    assert scored in learning
    assert max(ends("several-zero-f0.2-r6e-05", "several")) < 0.3
    assert max(ends("noisy-zero-f0.5-r6e-05", "tool")) < 0.05
    masked = f"{median(ends('noisy-mask-f0.7-r6e-05', 'tool')):.2f}"
    assert f"at 70 % lost, P(tool) ended at {masked})" in learning


@pytest.mark.parametrize(
    ("start", "kept", "lost"),
    [
        ("several", "0.1", "0.2"),
        ("noisy", "0.3", "0.5"),
        ("natural", "0.3", "0.5"),
        ("needed", "0.5", "0.85"),
    ],
)
def test_the_table_of_edges_has_the_figures_of_the_results(
    start: str, kept: str, lost: str
) -> None:
    key = "several" if start == "several" else "tool"
    at_lost = f"{start}-zero-f{lost}-r6e-05"
    assert min(ends(f"{start}-zero-f{kept}-r6e-05", key)) > 0.8
    assert max(ends(at_lost, key)) < 0.5
    cells = [f"{float(kept):.0%}", f"{float(lost):.0%}", spread(at_lost), faultless(start)]
    row = " | ".join(cells).replace("%", " %") + f" | {len(ends(at_lost, key))}"
    assert len(ends(f"{start}-zero-f{kept}-r6e-05", key)) == len(ends(at_lost, key))
    with_note = row.replace("50 % |", "50 % (P(tool) 0.02 and 0.49) |")
    assert f"| {with_note if start == 'natural' else row} |" in page("learning.md")
    assert sorted(f"{end:.2f}" for end in ends("natural-zero-f0.5-r6e-05", "tool")) == [
        "0.02",
        "0.49",
    ]


def test_other_figures_of_docs_learning() -> None:
    learning = page("learning.md")
    usual, slow, penalty = (
        spread(f"noisy-zero-f0.3-{more}", "tool") for more in ("r6e-05", "r3e-05", "kl0.05-r6e-05")
    )
    near = (
        f"P(tool) {usual} in three trainings, but with half the learning rate at {slow}, "
        f"and at {penalty} with a KL"
    )
    assert near in learning
    assert f"P(tool) ended at {spread('noisy-zero-quota96-r6e-05', 'tool')}" in learning
    assert min(ends("noisy-zero-f0.4-attempts4-r6e-05", "tool")) >= 0.99


def test_the_outage_of_docs_learning() -> None:
    peaks = []
    lows = []
    for lost in ("zero", "mask", "exclude"):
        name = f"noisy-{lost}-outage11-20-r6e-05"
        curves = [
            record["steps"]["tool"]
            for record in records("trainings.jsonl")
            if record["name"].startswith(name)
        ]
        means = [fmean(values) for values in zip(*curves, strict=True)]
        pairs = [fmean(means[first : first + 2]) for first in range(0, len(means), 2)]
        peaks.append(max(pairs[:10]))
        lows.append(min(pairs[10:]))
        assert pairs[20] >= peaks[-1]  # steps 41 and 42, 20 steps after the outage
    said = (
        f"from {peaks[0]:.2f} to {lows[0]:.2f} if lost samples were scored 0, and to {lows[1]:.2f} "
        "with a loss mask; 20 steps after the outage it was back"
    )
    assert said in page("learning.md")
    assert lows[2] > 0.9


@pytest.mark.parametrize(
    "training",
    [
        "several-zero-f0.2-r6e-05",
        "several-zero-r6e-05",
        "noisy-zero-f0.5-r6e-05",
        "noisy-zero-r6e-05",
        "noisy-mask-f0.7-r6e-05",
    ],
)
def test_what_docs_learning_claims_rests_on_three_trainings(training: str) -> None:
    """These are the trainings of its first sentences; what has two stands under another heading."""
    assert len(ends(training, "score")) >= 3
    seen = page("learning.md").partition("### Seen, but not claimed")[2]
    for word in ("half the learning rate", "**Retries**", "**An outage**", "**A quota**"):
        assert word in seen


async def test_an_end_of_a_call_without_its_beginning_repeats_no_call() -> None:
    stack = Stack(Condition("noisy", 1))
    await stack.start()
    try:
        written = f"{CALL}37*8{CALL_END}{RESULT}failed{RESULT_END}{CALL_END}"
        (reply,) = await stack.answer([written])
    finally:
        await stack.stop()
    assert reply.text == "not a call"
    assert not reply.lost


def test_what_the_readme_says_of_its_picture() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    def mean_of(key: str, *, share: float) -> float:
        trainings = [*records("baselines.jsonl"), *records("trainings.jsonl")]
        found = [
            each["after"][key]
            for each in trainings
            if each["condition"]["start"] == "several"
            and each["condition"]["share"] == share
            and (each["condition"]["lost"] == "zero" or not share)
        ]
        assert len(found) == 3
        return sum(found) / len(found)

    several = mean_of("several", share=0.2)
    assert f"falls from 1 to {several:.2f} at 20 % of calls lost" in text
    before, after = (mean_of("score", share=share) for share in (0.0, 0.2))
    assert f"on a healthy sandbox from {before:.2f} to {after:.2f}" in text
    assert "14 of 14 trainings" in text  # counted above
