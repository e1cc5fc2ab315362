"""Trainings through the stack, ``sfusion train``, and sweeps over them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.fakes.faults.chance import uniform
from sfusion.harness.cli import app
from sfusion.harness.core.journal import Event
from sfusion.harness.core.verdict import State, Verdict
from sfusion.harness.errors import ScenarioError
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.training import TrainingPart
from sfusion.harness.lab.toy import simulate
from sfusion.harness.lab.worlds import sim
from sfusion.harness.learning.swept import by_chance, closest, verdict
from sfusion.harness.learning.train_summary import headline, promise_rows
from sfusion.harness.learning.trained import Trained, TrainedRun
from sfusion_tools.base_tool import BaseTool
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from tests.cases import every
from tests.harness.lab.scenarios.test_own_tools import SCHEMA
from tests.warm import warm

LOSSY = {"faults": [{"name": "lossy", "probability": 0.4, "what": {"status": 500}}]}
HEAD, CALL = {"name": "head", "right": 0.6}, {"name": "call", "right": 0.95, "calls": 1}
SMALL = {"steps": 5, "prompts": 2, "group": 4}


def text_of(**keys: Any) -> str:
    known = {
        "scenario": "toy",
        "about": "A toy learns.",
        "seed": 7,
        "tools": {"max_attempts": 1, "rate_limit": 32},
    }
    return yaml.safe_dump({**known, "sandbox": LOSSY, "training": SMALL, **keys}, sort_keys=False)


def scenario(**keys: Any) -> Scenario:
    return parse_scenarios(text_of(**keys), file="<toy>")[0]


def trained(one: Scenario) -> list[Event]:
    return [event for event in sim.run(one).events if event["event"] == "trained"]


@pytest.mark.parametrize("lost", ["zero", "mask", "exclude", "drop"])
def test_the_stack_gives_the_same_curves_as_the_same_draws_without_it(lost: str) -> None:
    behaviours = [
        {"name": "head", "right": 0.6},
        {"name": "check", "right": 0.9, "calls": 2, "guess": 0.5},
        {"name": "again", "right": 0.9, "calls": 1, "again": 2},
    ]
    one = scenario(training={**SMALL, "lost": lost, "behaviours": behaviours})
    assert one.training is not None
    pure = simulate(
        one.training, one.seed, lambda call: uniform(one.seed, "strike", "lossy", call, 1) < 0.4
    )
    twin = simulate(one.training, one.seed)
    found = trained(one)
    assert found == [
        {
            **{key: event[key] for key in ("at", "source", "event")},
            **step.as_data(one.training),
            "twin": other,
        }
        for event, step, other in zip(
            found, pure, (step.as_data(one.training) for step in twin), strict=True
        )
    ]
    assert sum(event["lost_calls"] for event in found) > 5


def test_without_faults_the_training_is_its_twin() -> None:
    for event in trained(scenario(sandbox={}, cluster={"workers_per_node": 3})):
        facts = {
            key: value
            for key, value in event.items()
            if key not in ("at", "source", "event", "twin")
        }
        assert facts == event["twin"]


def test_a_limiter_of_the_quota_keeps_what_a_wider_one_loses() -> None:
    quota = {"model": {"kind": "quota", "in_flight": 2}}
    tight = trained(scenario(sandbox=quota, tools={"max_attempts": 1, "rate_limit": 2}))
    wide = trained(scenario(sandbox=quota))
    assert sum(event["lost"] for event in tight) == 0
    assert [event["p"] for event in tight] == [event["twin"]["p"] for event in tight]
    assert sum(event["lost"] for event in wide) > 3


def test_a_sandbox_that_lies_is_unseen_whatever_the_handling() -> None:
    lies = {"faults": [{"name": "lies", "probability": 0.5, "what": {"output": "lost"}}]}
    excluded = trained(scenario(sandbox=lies, training={**SMALL, "lost": "exclude"}))
    zero = trained(scenario(sandbox=lies))
    assert (
        sum(event["lost"] for event in excluded) == sum(event["unseen"] for event in excluded) > 3
    )
    assert [event["p"] for event in excluded] == [event["p"] for event in zero]


class Zeros(BaseTool):
    """Answers 0 and says nothing of a failure; it asks no sandbox at all."""

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        super().__init__(config, tool_schema or OpenAIFunctionToolSchema.model_validate(SCHEMA))

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        return ToolResponse(text="0"), None, {}


def train(tmp_path: Path, *arguments: object, **keys: Any) -> tuple[int, str]:
    file = tmp_path / "toy.yaml"
    file.write_text(text_of(**keys))
    done = CliRunner().invoke(app, ["train", str(file), "--jobs", "1", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_command_tells_what_was_learned_and_writes_page_json_and_dump(tmp_path: Path) -> None:
    files = (
        "--html",
        tmp_path / "page.html",
        "--json",
        tmp_path / "found.json",
        "--dump",
        tmp_path / "dumps",
    )
    code, output = train(tmp_path, "--seeds", 2, *files, promises=["no_gradient_from_lost_samples"])
    assert code == 1
    assert "P(tool)" in output
    assert "This is a toy: a policy of a few behaviours, not a language model." in output
    assert "broken  no_gradient_from_lost_samples" in output
    page = (tmp_path / "page.html").read_text()
    assert page.count('<svg class="lc"') == 8
    found = json.loads((tmp_path / "found.json").read_text())
    assert [run["seed"] for run in found["runs"]] == [7, 8]
    lost = sum(step["lost"] for step in found["runs"][0]["steps"])
    # What poison finds in the dump is what the training lost.
    done = CliRunner().invoke(
        app, ["poison", str(tmp_path / "dumps"), "--json", str(tmp_path / "poison.json")]
    )
    assert done.exit_code == 0, done.output
    poison = json.loads((tmp_path / "poison.json").read_text())
    assert (poison["total"]["samples"], poison["total"]["groups"], poison["total"]["lost"]) == (
        40,
        10,
        lost,
    )
    pushes = [step["handlings"]["zero"]["push_tool"] for step in poison["steps"]]
    assert pushes == pytest.approx(
        [step["push"]["zero"] for step in found["runs"][0]["steps"]], abs=2e-6
    )
    first = json.loads((tmp_path / "dumps" / "requests" / "1.jsonl").read_text().splitlines()[0])
    assert (first["group"], first["offset"], "advantage" in first) == ("s001-p1", 0, True)


def test_the_answer_is_the_same_with_any_number_of_jobs(tmp_path: Path) -> None:
    file, answers = tmp_path / "toy.yaml", []
    file.write_text(text_of(training={"steps": 2, "prompts": 1, "group": 3}))
    for jobs in "1", "2":
        command = [
            warm("sfusion"),
            "train",
            str(file),
            "--seeds",
            "2",
            "--json",
            "-",
            "--jobs",
            jobs,
        ]
        answers.append(subprocess.run(command, check=True, capture_output=True).stdout)
    assert json.loads(answers[0])["runs"][1]["seed"] == 8
    assert answers[0] == answers[1]


def test_a_tool_that_answers_zeros_teaches_to_avoid_it_and_nobody_knows(tmp_path: Path) -> None:
    tools = [{"class_name": f"{__name__}.Zeros", "config": {}, "tool_schema": SCHEMA}]
    (tmp_path / "tools.yaml").write_text(yaml.safe_dump({"tools": tools}))
    more = "--tools", tmp_path / "tools.yaml", "--json", tmp_path / "found.json", "--seeds", 1
    code, output = train(
        tmp_path, *more, sandbox={}, training={**SMALL, "steps": 8, "lost": "exclude"}
    )
    assert code in (0, 1), output
    assert "The trainer does not know of 100% of the lost samples" in output
    summary = json.loads((tmp_path / "found.json").read_text())["summary"]
    assert (summary["tool"]["middle"] < 0.3, summary["calls_lost"]) == (True, 1.0)


BLOCKING = """
import json, urllib.request

def run(code, url):
    try:
        body = json.dumps({"code": code, "language": "python"}).encode()
        asked = urllib.request.Request(url + "/run_code", body)
        asked.add_header("Content-Type", "application/json")
        return json.load(urllib.request.urlopen(asked, timeout=5))["run_result"]["stdout"]
    except OSError:
        return "0"
"""


def test_a_function_that_blocks_is_trained_on_the_wall_clock(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BLOCKING)
    training = {"steps": 2, "prompts": 1, "group": 3, "update_time": 0, "think": 0, "seconds": 0}
    (tmp_path / "toy.yaml").write_text(text_of(training=training))
    command = [
        warm("sfusion"),
        "train",
        "toy.yaml",
        "--tools",
        "mine:run",
        "--seeds",
        "1",
        "--json",
        "found.json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    part = TrainingPart.model_validate(training)
    pure = simulate(part, 7, lambda call: uniform(7, "strike", "lossy", call, 1) < 0.4, seen=False)
    assert [step["p"] for step in found["runs"][0]["steps"]] == [
        step.as_data(part)["p"] for step in pure
    ]
    assert found["summary"]["lost_unseen"] == 1.0


def test_a_sweep_compares_what_is_learned(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(text_of(promises=["no_gradient_from_lost_samples"]))
    arguments = [
        "sweep",
        str(tmp_path / "toy.yaml"),
        "--vary",
        "training.lost=zero,exclude",
        "--seeds",
        "1",
    ]
    files = [
        "--json",
        str(tmp_path / "found.json"),
        "--html",
        str(tmp_path / "page.html"),
        "--jobs",
        "1",
    ]
    done = CliRunner().invoke(app, [*arguments, *files])
    assert done.exit_code == 0, done.output
    assert "the settings cannot be told apart with 1 seed; at least 6 are needed" in done.output
    settings = json.loads((tmp_path / "found.json").read_text())["settings"]
    assert [one["not_held"] for one in settings] == [["no_gradient_from_lost_samples"], []]
    assert "training.lost" in (tmp_path / "page.html").read_text()
    done = CliRunner().invoke(
        app, [*arguments[:2], "--vary", f"scenario={tmp_path / 'toy.yaml'},single-node"]
    )
    assert (done.exit_code, "some have a section `training` and some do not" in done.output) == (
        2,
        True,
    )


def test_a_setting_that_did_not_come_to_the_end_is_not_the_closest() -> None:
    part = TrainingPart(steps=2)
    short = Trained(part, [ended(0, 1, tool=0.5)])
    whole = Trained(part, [ended(0, 2, tool=0.3)])
    said = verdict([(["a"], short), (["b"], whole)], ["lost"])
    assert said.startswith("closest to the training without faults: lost=b; lost=a is not compared")
    assert "did not come to the end" in verdict([(["a"], short)], ["lost"])


def ended(seed: int, steps: int, tool: float, *verdicts: Verdict) -> TrainedRun:
    """A training that ended with this P(tool), where its twin has 0.5."""
    twin = {"tool": 0.5, "several": 0.2, "healthy": 0.7}
    step = {**twin, "tool": tool, "lost": 1, "samples": 4, "unseen": 0, "twin": twin}
    return TrainedRun(seed, [step] * steps, list(verdicts))


def test_a_sweep_names_no_winner_that_the_seeds_cannot_tell_from_the_others() -> None:
    part = TrainingPart(steps=2)

    def settings(seeds: int) -> list[tuple[list[str], Trained]]:
        near = [ended(seed, 2, tool=0.45 + 0.01 * seed) for seed in range(seeds)]
        far = [ended(seed, 2, tool=0.2 + 0.01 * seed) for seed in range(seeds)]
        return [(["far"], Trained(part, far)), (["near"], Trained(part, near))]

    few = verdict(settings(3), ["x"])
    assert few.startswith("the settings cannot be told apart with 3 seeds; at least 6 are needed")
    assert verdict(settings(6), ["x"]) == "closest to the training without faults: x=near"
    assert by_chance([0.1] * 5) == pytest.approx(2 / 32)
    assert by_chance([0.1, -0.1] * 10) == 1.0
    assert by_chance([0.1, 0.2] * 10) < 0.001


def test_a_setting_whose_faults_did_not_strike_is_not_compared() -> None:
    part = TrainingPart(steps=2)
    idle = Verdict("everything_took_effect", "unknown", "the fault never struck", [])
    settings = [
        (["idle"], Trained(part, [ended(seed, 2, 0.5, idle) for seed in range(6)])),
        (["real"], Trained(part, [ended(seed, 2, 0.2) for seed in range(6)])),
    ]
    assert [values for values, _ in closest(settings)] == [["real"]]
    assert "x=idle is not compared (everything_took_effect is unknown)" in verdict(settings, ["x"])


def test_a_promise_over_seeds_says_in_how_many_it_was_held() -> None:
    part = TrainingPart(steps=1)
    states: list[State] = ["held", "broken", "held", "not_applicable", "unknown"]
    runs = [
        ended(seed, 1, 0.5, Verdict("tool_use_kept", state, f"seed {seed}", []))
        for seed, state in enumerate(states)
    ]
    assert promise_rows(Trained(part, runs)) == [
        ["broken", "tool_use_kept", "held in 2 of 4; did not apply to 1", "seed 1"]
    ]
    assert Trained(part, runs).promises["tool_use_kept"].not_held == 2
    assert promise_rows(Trained(part, runs[3:4]))[0][:3] == [
        "not applicable", "tool_use_kept", "applied to none",
    ]  # fmt: skip


def test_the_headline_says_how_good_the_model_is_before_what_it_does() -> None:
    start = TrainingPart()  # P(tool) is 0.50 at the start

    def said(healthy: float, tool: float, several: float = 0.5) -> str:
        twin = {"healthy": 0.9, "tool": 0.9, "several": 0.5}
        step = {"healthy": healthy, "tool": tool, "several": several, "twin": twin}
        return headline(Trained(start, [TrainedRun(0, [step], [])]))

    assert said(0.7, 0.1) == (
        "Does worse: score on a healthy sandbox 0.70, 0.90 without faults; "
        "P(tool) from 0.50 to 0.10, 0.90 without faults"
    )
    close = "score on a healthy sandbox 0.88, 0.90 without faults"
    begins = "P(tool) from 0.50"
    assert said(0.88, 0.1).startswith(f"Loses its tool: {close}; {begins} to 0.10")
    assert said(0.88, 0.5).startswith(f"Does not learn to use its tool: {close}; {begins} to 0.50")
    assert said(0.88, 0.9, 0.1).startswith(f"Stops checking: {close}; P(several calls) 0.10, 0.50")
    assert said(0.9, 0.85).startswith("Learns as without faults: score on a healthy sandbox 0.90")


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "single-node"])
    assert (done.exit_code, "has no section `training`" in done.output) == (2, True)
    for training, text in (
        (
            {"behaviours": [{"name": "a", "right": 1}, {"name": "b", "right": 1}]},
            "none of them calls the tool",
        ),
        (
            {"behaviours": [{"name": "a", "right": 1, "calls": 1}] * 2},
            "each name may occur only once",
        ),
        ({"steps": 10_000, "prompts": 10}, "samples in all; at most 200,000 are possible"),
        ({"lost": "ignore"}, "lost"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"behaviours": [HEAD, {**CALL, "share": 1e308}]}, "less than or equal to 1000000"),
    ):
        code, output = train(tmp_path, training=training)
        assert (code, text in output) == (2, True), output
    assert (
        "is about what is learned"
        in train(tmp_path, training=None, load={}, promises=["tool_use_kept"])[1]
    )
    assert "leave out world ray" in train(tmp_path, worlds=["sim", "ray"])[1]
    assert "is a file; give a folder" in train(tmp_path, "--dump", tmp_path / "toy.yaml")[1]
    (tmp_path / "7.jsonl").touch()
    assert (
        "has a dump already (7.jsonl); give a new folder" in train(tmp_path, "--dump", tmp_path)[1]
    )


@every(
    [
        ({"tool_use_kept": 1}, {}, "less than 1"),
        (
            "tool_use_kept",
            {"behaviours": [{**HEAD, "calls": 1}, CALL]},
            "all of the behaviours call the tool",
        ),
        (
            "push_has_the_twins_sign",
            {"behaviours": [{**HEAD, "calls": 2}, CALL]},
            "all of the behaviours call",
        ),
        (
            "several_calls_kept",
            {"behaviours": [HEAD, CALL]},
            "none of the behaviours make 2 calls or more",
        ),
        (
            {"tool_use_recovers": 5},
            {"steps": 5},
            "it judges 5 steps after a loss, but the training has 5 in all",
        ),
    ],
    str,
)
def test_a_promise_that_cannot_fail_is_refused(case: tuple[Any, dict[str, Any], str]) -> None:
    promise, training, text = case
    with pytest.raises(ScenarioError, match=text):
        scenario(training={**SMALL, **training}, promises=[promise])


def test_what_was_cut_off_is_told(tmp_path: Path) -> None:
    code, output = train(tmp_path, "--seeds", 1, "--html", tmp_path / "page.html", horizon=0.4)
    assert (code, "No training ended" in output, "P(tool)" in output) == (1, True, False)
    page = (tmp_path / "page.html").read_text()
    assert ("No training ended" in page, "At the end" in page, "P(tool)" in page) == (
        True,
        False,
        False,
    )
    _, output = train(tmp_path, "--seeds", 1, horizon=9)
    assert "1 seed broken off before the end, first in step 3 of 5." in output
    workers = {"cluster": {"workers_per_node": 2}, "events": [{"at": 1, "kill": "worker-1"}]}
    _, output = train(tmp_path, "--seeds", 1, **workers)
    assert "of 40 samples never ended, and training went on without them." in output
