"""``sfusion poison``: what a dump with lost calls shows, by which facts, and what it says about
bad input."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.core.dumps.rollout import KEYS, read_rollout
from sfusion.harness.learning.dumps import DumpReader
from sfusion.harness.learning.evidence import Evidence
from sfusion.harness.reports.line_chart import nice_ticks
from sfusion_tools.event_lines import call_line
from sfusion_tools.outcome import Outcome
from tests.cases import every

from .planted import LOST, poison, sample, write


def told(tmp_path: Path, lines: Sequence[Any], *arguments: object) -> dict[str, Any]:
    dump = write(tmp_path / "dump" / "1.jsonl", lines)
    code, output = poison(dump, "--json", tmp_path / "found.json", *arguments)
    assert code == 0, output
    return json.loads((tmp_path / "found.json").read_text())


GROUP = [sample(1, "42"), sample(1, "42"), sample(0), sample(0, LOST)]
"""The group of the tables in test_advantages: 1, 1, 0 and one that was lost; the third answered
from the head."""


def test_the_figures_of_one_group_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    found = told(tmp_path, GROUP)
    total = found["total"]
    assert (
        total["samples"],
        total["groups"],
        total["lost"],
        total["hit_groups"],
        total["users"],
    ) == (4, 1, 1, 1, 3)
    # |A| as trained is sqrt(3)/2 for each of the four; without the lost one 0.577, 0.577 and
    # -1.155.
    assert total["weight_share"] == pytest.approx(0.25)
    assert (total["siblings"], total["moved"], total["only_lost"]) == (3, 3, 0)
    assert total["moved_by"] == pytest.approx(3 * 0.288675, abs=1e-4)
    # Push on the tool: users' advantages times 1/4, the head's times -3/4, over 4.
    by = {name: one["push_tool"] for name, one in total["handlings"].items()}
    assert by["zero"] == pytest.approx((0.866025 / 4 + 0.866025 * 3 / 4) / 4, abs=1e-5)
    assert by["mask"] == pytest.approx((2 * 0.866025 / 4 + 0.866025 * 3 / 4) / 4, abs=1e-5)
    assert by["exclude"] == pytest.approx((2 * 0.57735 / 4 + 1.1547 * 3 / 4) / 4, abs=1e-5)
    assert by["drop"] == 0
    assert (by["failed"], by["passed"]) == (
        by["zero"],
        pytest.approx((1.5 / 4 + 1.5 * 3 / 4) / 4, abs=1e-5),
    )
    assert found["recognised_by"] == {"known text": 1}
    assert [one["lost"] for one in found["worst_groups"][0]["samples"]] == [
        False,
        False,
        False,
        True,
    ]


def test_an_outage_is_found_with_its_steps_cause_and_setting(tmp_path: Path) -> None:
    dump = tmp_path / "dumps"
    for step in range(1, 13):
        hit = step in (5, 6)
        lines = [
            sample(
                0 if hit and place < 3 else 1,
                LOST if hit and place < 3 else "42",
                question=f"q{group}",
                step=step,
            )
            for group in range(3)
            for place in range(4)
        ]
        write(
            dump / f"{step}.jsonl",
            [*lines, *(sample(right, question="q0", step=step) for right in (0, 1))],
        )
    code, output = poison(dump, "--html", tmp_path / "page.html", "--fail-above", "0.1")
    assert code == 1
    first = output.splitlines()[0]
    where = "between steps 1 to 4 and steps 5 to 6"
    said = f"Lost calls explain all of the drop of 0.64 {where}: they cost 0.64 (0.53 to 0.76)"
    assert first.startswith(said), first
    assert (
        "100% of the lost samples are in steps 5 to 6, and the lost calls ended with throttled 18, "
        "mainly because the sandbox refused calls: set `rate"
    ) in output
    assert (
        "In 2 steps from 5 to 6, training pushes away from the tool only because the "
        "sandbox failed: leave"
    ) in output
    assert "of the samples were lost (limit lost.all 0.1)" in output
    assert f"sfusion view {dump / '5.jsonl'} --sample 1" in output
    page = (tmp_path / "page.html").read_text()
    assert page.count('<svg class="lc"') == 3
    before_plots = page[page.index("<h1>") : page.index('<svg class="lc"')]
    said = re.findall(r"<li>(.*?)</li>", before_plots)
    assert 2 <= sum(len(re.findall(r"[.?](?: |$)", text)) for text in said) <= 5, said
    assert f"sfusion view {dump / '5.jsonl'} --sample 1" in page
    assert re.search(r"<td [^>]*>fails</td><td [^>]*>[^<]*\(limit lost\.all 0\.1\)</td>", page)
    assert poison(dump, "--fail-above", "0.9")[0] == 0
    assert "pushes away from the tool" not in poison(dump / "4.jsonl")[1]


def test_a_group_with_signal_only_through_losses_is_counted(tmp_path: Path) -> None:
    lines = [
        sample(1, "42"),
        sample(1, "42"),
        sample(0, LOST),
        *(sample(0, one, question="w") for one in ("4", LOST)),
    ]
    total = told(tmp_path, lines)["total"]
    assert (total["hit_groups"], total["only_lost"]) == (2, 1)
    silent = {name: one["groups_without_signal"] for name, one in total["handlings"].items()}
    assert silent == {"zero": 1, "mask": 1, "exclude": 2, "drop": 2, "failed": 1, "passed": 1}


def test_samples_that_recovered_are_a_class_of_their_own(tmp_path: Path) -> None:
    total = told(tmp_path, [sample(1, LOST, "42"), sample(0, "42", LOST), sample(0, "41")])["total"]
    assert (total["lost"], total["recovered"], total["lost_calls"], total["calls"]) == (1, 1, 2, 5)


def line(trajectory: str, outcome: Outcome, began: float) -> bytes:
    return call_line("client", "w", "c", began, 0.1, outcome, trajectory=trajectory, group="g 1")


def test_the_event_log_tells_which_trajectories_lost_calls(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    log.write_bytes(
        line("a", Outcome.OK, 1)
        + line("b", Outcome.UNREACHABLE, 2)
        + line("c", Outcome.THROTTLED, 3)
        + line("c", Outcome.OK, 4)
        + line("elsewhere", Outcome.THROTTLED, 5)
    )
    lines = [sample(score, "", request_id=name) for score, name in ((1, "a"), (0, "b"), (1, "c"))]
    found = told(tmp_path, lines, "--events", log)
    assert (found["total"]["lost"], found["total"]["recovered"]) == (1, 1)
    assert found["recognised_by"] == {"event log": 2}
    assert found["total"]["outcomes"] == {"unreachable": 1, "throttled": 1}
    _, output = poison(write(tmp_path / "2.jsonl", [sample(0, "1")]), "--events", log)
    assert "The event log was not used: the dump has no id of the trajectory" in output


@every(
    [
        ({"lost_calls": 1}, "key of the dump", True),
        (
            {"sfusion": {"infrastructure": 1, "outcomes": ["ok", "throttled"]}},
            "key of the dump",
            True,
        ),
        ({"outcomes": ["throttled", "ok"]}, "key of the dump", False),
        ({"outcomes": ["program_error"]}, "", False),
        ({"lost_calls": 0}, "", False),
        ({"answers": ["Error when executing tool: boom"]}, "known text", True),
        ({"answers": ["[Python Interpreter Error]: no on endpoint http://s"]}, "known text", True),
        ({"answers": ["('Error', 'UnknownError')"]}, "known text", True),
        ({"answers": ["Traceback (most recent call last):\nValueError"]}, "", False),
        ({"answers": ["my tool broke"], "pattern": "tool broke$"}, "--lost-pattern", True),
        (
            {"request": {"infrastructure_failures": 1, "outcomes": {"unreachable": 1}}},
            "requests file",
            True,
        ),
    ],
    str,
)
def test_a_lost_call_is_recognised_by(case: tuple[dict[str, Any], str, bool]) -> None:
    given, source, last = dict(case[0]), case[1], case[2]
    evidence = Evidence(pattern=given.pop("pattern", None))
    request = given.pop("request", {})
    given = sample(0, *given.pop("answers", ()), **given)
    found = evidence.of(read_rollout(given, KEYS), request)
    assert (found.source, found.last_lost) == (source, last)


@every(["", "no stdout here", "Finished execution."], repr)
def test_a_text_that_stands_for_anything_is_unclear(text: str) -> None:
    assert Evidence().of(read_rollout(sample(0, "1", text), KEYS), {}).unclear
    assert not Evidence().of(read_rollout(sample(0, text, "1"), KEYS), {}).unclear


def test_groups_are_those_of_the_uid_or_of_equal_inputs_or_of_another_key(tmp_path: Path) -> None:
    lines = [sample(1, question=f"q{n % 3}", uid=f"u{n % 2}", mine=n) for n in range(6)]
    assert told(tmp_path, lines)["total"]["groups"] == 2
    assert told(tmp_path, lines, "--key", "group=mine")["total"]["groups"] == 6
    for missing in (None, float("nan")):
        assert told(tmp_path, [{**one, "uid": missing} for one in lines])["total"]["groups"] == 3
    renamed = [
        {"prompt": one["input"], "answer": one["output"], "reward": one["score"]} for one in lines
    ]
    keys = [
        word for one in ("input=prompt", "output=answer", "score=reward") for word in ("--key", one)
    ]
    assert told(tmp_path, renamed, *keys)["total"]["samples"] == 6


def test_lines_without_a_usable_score_or_text_are_left_out_and_told(tmp_path: Path) -> None:
    dump = write(
        tmp_path / "1.jsonl",
        [
            *GROUP,
            json.dumps(sample(0, "1")).replace('"score": 0', '"score": NaN'),
            sample(None),
            sample("high"),
            sample(10**400),
            "",
            "[1]",
            '{"input": "half',
            {"input": "q", "score": 1},
        ],
    )
    code, output = poison(dump, "--json", tmp_path / "found.json")
    assert code == 0
    assert "4 samples without a finite score left out." in output
    assert "4 lines could not be read." in output
    assert "1.jsonl:10: a JSON list, not an object" in output
    assert json.loads((tmp_path / "found.json").read_text())["total"]["samples"] == 4


@every([-0.5, 1.5], str)
def test_scores_beyond_either_bound_are_told(score: float, tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", [*GROUP, sample(score, "42")])
    said = "1 score outside 0 to 1: give --scores LOW,HIGH."
    assert said in poison(dump)[1]
    assert said not in poison(dump, "--scores", "-1,2")[1]


def test_steps_in_one_file_are_told_apart_and_only_one_is_kept(tmp_path: Path) -> None:
    dump = write(
        tmp_path / "all.jsonl",
        [sample(place % 2, step=step) for step in (3, 4) for place in range(4)],
    )
    reader = DumpReader([dump, dump], Evidence())
    assert [(one.step, len(one.samples)) for one in reader] == [(3, 4), (4, 4)]


@every(
    [
        (["--key", "colour=red"], "expected NAME=KEY with one of input"),
        (["--key", "group"], "expected NAME=KEY"),
        (["--scores", "1"], "give two numbers"),
        (["--scores", "1,0"], "the first must be below the second"),
        (["--scores", "0,nan"], "both finite"),
        (["--fail-above", "5"], "give a share from 0 to 1"),
        (["--lost-pattern", "(a"], "is not a regular expression"),
        (["--lost-pattern", ""], "an empty one matches every message"),
        (["--estimator", "ppo"], "grpo"),
        (["--events", "nowhere.ndjson"], "nowhere.ndjson"),
    ],
    str,
)
def test_wrong_options_are_refused_with_what_was_meant(case: tuple[list[str], str]) -> None:
    code, output = poison(Path(__file__).parent / "missing", *case[0])
    assert code == 2
    assert case[1] in output


def test_what_is_not_a_dump_is_refused(tmp_path: Path) -> None:
    assert poison(tmp_path)[0] == 2
    code, output = poison(write(tmp_path / "1.jsonl", [{"a": 1}]))
    assert code == 2
    assert "no sample in it" in output
    assert "its keys are a; name them: --key output=KEY --key score=KEY" in output
    code, output = poison(write(tmp_path / "2.jsonl", []))
    assert (code, "all files are empty" in output) == (2, True)
    code, output = poison(write(tmp_path / "3.jsonl", [sample(None)]))
    assert (code, "No sample has a score" in output) == (0, True)


def test_samples_without_siblings_are_pointed_out(tmp_path: Path) -> None:
    _, output = poison(
        write(tmp_path / "1.jsonl", [sample(1, question="a"), sample(0, LOST, question="b")])
    )
    assert "2 samples had no siblings: baseline 0, as in verl." in output
    lines = [sample(1, "1"), *(sample(0, LOST) for _ in range(3))]
    _, output = poison(write(tmp_path / "1.jsonl", lines))
    assert "1 healthy sample lost all siblings." in output


@every(
    [
        ((1.0, 0.0), 0.0, 1.0),
        ((0.4, -0.19), -0.2, 0.4),
        ((-0.5, -2.0), -2.0, 0.0),
        ((0.0, -1e-4), -1e-4, 0.0),
    ],
    str,
)
def test_the_axis_of_a_plot_includes_zero_and_what_is_below_it(
    case: tuple[tuple[float, float], float, float],
) -> None:
    (most, least), first, last = case
    ticks = nice_ticks(most, least)
    assert (ticks[0], ticks[-1]) == (pytest.approx(first), pytest.approx(last))
    assert any(abs(tick) < 1e-12 for tick in ticks)


def test_a_gate_without_a_score_is_no_gate(tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", [sample(None), sample(1e300)])
    code, output = poison(dump, "--fail-above", "0.5")
    assert (code, "no sample has a score" in output) == (2, True)
    assert poison(dump)[0] == 0


def test_a_gate_whose_event_log_is_of_another_training_is_no_gate(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    log.write_bytes(line("elsewhere", Outcome.THROTTLED, 1))
    dump = write(
        tmp_path / "1.jsonl", [sample(score, "", request_id=f"r{score}") for score in (0, 1)]
    )
    _, output = poison(dump, "--events", log)
    assert (
        "The event log was not used: it has none of these trajectories. Is it of another training?"
        in output
    )
    code, output = poison(dump, "--events", log, "--fail-above", "0.5")
    assert (code, "evidence for 0 of 2 samples that used the tool" in output) == (2, True)
    log.write_bytes(line("r0", Outcome.OK, 1))
    code, output = poison(dump, "--events", log, "--fail-above", "0.5")
    assert (code, "evidence for 1 of 2 samples that used the tool" in output) == (2, True)
    log.write_bytes(line("r0", Outcome.OK, 1) + line("r1", Outcome.OK, 1))
    code, output = poison(dump, "--events", log, "--fail-above", "0.5")
    assert (code, "The event log has calls of 2 samples, and none of them is lost." in output) == (
        0,
        True,
    )


def test_an_event_log_with_only_some_calls_of_a_sample_is_no_evidence_for_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "events.ndjson"
    lines = [sample(score, "4", "2", request_id=f"r{score}") for score in (0, 1)]
    dump = write(tmp_path / "1.jsonl", lines)
    known = line("r0", Outcome.OK, 1) + line("r1", Outcome.OK, 1) + line("r1", Outcome.OK, 2)
    log.write_bytes(known)
    code, output = poison(dump, "--events", log, "--fail-above", "0.5")
    assert (code, "evidence for 1 of 2 samples that used the tool" in output) == (2, True)
    log.write_bytes(known + line("r0", Outcome.OK, 2))
    assert poison(dump, "--events", log, "--fail-above", "0.5")[0] == 0


def test_the_event_log_is_asked_before_the_requests_file(tmp_path: Path) -> None:
    """The log has each call with its end; the requests file only counts."""
    log = tmp_path / "events.ndjson"
    log.write_bytes(line("a", Outcome.THROTTLED, 1) + line("a", Outcome.OK, 2))
    counted = {"infrastructure_failures": 2, "outcomes": {"unreachable": 2}}
    write(tmp_path / "dump" / "requests" / "1.jsonl", [counted])
    found = told(tmp_path, [sample(1, "4", "2", request_id="a")], "--events", log)
    assert found["recognised_by"] == {"event log": 1}
    assert found["total"]["outcomes"] == {"throttled": 1}


def test_a_dump_is_not_an_event_log(tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", GROUP)
    code, output = poison(dump, "--events", dump, "--fail-above", "0.9")
    assert (code, "no call of a tool in it; give the tool's event log, not a dump" in output) == (
        2,
        True,
    )


def test_the_order_of_event_logs_does_not_matter(tmp_path: Path) -> None:
    """The lost call began first, but its line may come last: it is written when the call ends,
    or stands in a file that is read later."""
    lines = [line("a", Outcome.TRANSPORT_TIMEOUT, 1), line("a", Outcome.OK, 2)]
    for order in (lines, lines[::-1]):
        log = tmp_path / "events.ndjson"
        log.write_bytes(b"".join(order))
        total = told(tmp_path, [sample(1, "", request_id="a")], "--events", log)["total"]
        assert (total["lost"], total["recovered"]) == (0, 1)


def test_samples_that_share_an_id_are_told(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    log.write_bytes(line("a", Outcome.THROTTLED, 1))
    found = told(
        tmp_path, [sample(score, "", request_id="a") for score in (0, 1, 1)], "--events", log
    )
    assert (
        "2 samples with the id of another one: the event log cannot tell them apart."
        in found["sentences"]
    )


def test_lost_samples_without_a_score_are_told_and_not_counted_as_evidence(tmp_path: Path) -> None:
    found = told(tmp_path, [sample(1, "42"), sample(0, LOST), sample(None, LOST)])
    assert (
        found["total"]["unscored"],
        found["total"]["unscored_lost"],
        found["total"]["lost"],
    ) == (1, 1, 1)
    assert found["recognised_by"] == {"known text": 1}
    assert (
        "1 sample without a finite score left out; 1 of them lost their last call."
        in found["sentences"]
    )


def test_a_key_that_no_line_has_is_refused(tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", GROUP)
    code, output = poison(dump, "--key", "score=prompt_di")
    assert (code, "no score (prompt_di); its keys are input, output, score" in output) == (2, True)
    for name in ("group", "id", "step", "tokens"):
        code, output = poison(dump, "--key", f"{name}=prompt_di")
        assert (code, f"--key {name}=prompt_di: no line of the dump has this key" in output) == (
            2,
            True,
        ), output
    code, output = poison(dump, "--key", "lost=nope")
    assert (code, "No line of the dump has the key of --key lost=nope." in output) == (0, True)


def test_a_file_is_read_once_by_whatever_name(tmp_path: Path) -> None:
    dump = write(tmp_path / "1.jsonl", GROUP)
    (tmp_path / "link.jsonl").symlink_to(dump)
    code, output = poison(tmp_path, dump)
    assert (code, "1 of 4 samples were lost" in output) == (0, True)
    assert output.count("the same file as") == 2


def test_a_step_that_is_spread_over_dumps_is_told(tmp_path: Path) -> None:
    trainings = [write(tmp_path / name / "1.jsonl", GROUP) for name in ("one", "other")]
    assert "Step 1 occurs in more than one of the dumps, and" in poison(*trainings)[1]


def test_a_single_step_is_named_as_one(tmp_path: Path) -> None:
    lines = [sample(0, *([LOST] if step == "6" else ["1"]), when=step) for step in "123456789"]
    _, output = poison(write(tmp_path / "all.jsonl", lines), "--key", "step=when")
    assert "100% of the lost samples are in step 6, and" in output


def test_a_compressed_dump_is_refused_with_what_to_do(tmp_path: Path) -> None:
    packed = tmp_path / "1.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}\n"))
    code, output = poison(packed)
    assert (code, "is compressed; unpack it first, as in gunzip 1.jsonl.gz" in output) == (2, True)


def test_odd_numbers_in_the_requests_file_are_no_defect_of_ours(tmp_path: Path) -> None:
    requests = [
        {"tokens": {"trained": 10**400}, "request_id": "a"},
        {"infrastructure_failures": 3, "outcomes": {"sandbox_error": 2, "throttled": 1, "ok": 5}},
        {"infrastructure_failures": 1, "outcomes": {"throttled": 10**12}},
    ]
    write(tmp_path / "dump" / "requests" / "1.jsonl", requests)
    found = told(tmp_path, [sample(score, "1") for score in (1, 0, 1, 0)])
    assert found["total"]["outcomes"] == {"sandbox_error": 2, "throttled": 1}
    assert any(
        "requests/1.jsonl has 3 lines, 1.jsonl has 4 samples" in one for one in found["sentences"]
    )


def test_an_empty_group_id_is_none(tmp_path: Path) -> None:
    assert (
        told(tmp_path, [sample(1, question=f"q{n % 3}", uid="") for n in range(6)])["total"][
            "groups"
        ]
        == 3
    )


def test_whitening_has_no_bounds_so_none_are_claimed(tmp_path: Path) -> None:
    """One std scales the whole step, and it depends on which of the lost samples would have
    passed."""
    dump = write(tmp_path / "1.jsonl", [*GROUP, *({**one, "input": "other"} for one in GROUP)])
    assert "the push would lie between" in poison(dump)[1]
    output = poison(dump, "--estimator", "reinforce_plus_plus_baseline")[1]
    assert "the push would lie between" not in output
    assert "Had every lost call been retried, the push would be " in output
