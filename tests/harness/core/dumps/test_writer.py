"""Dumps have the format of the sample in verl's original design, and record what happened to every
request."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.faults import parse_rules
from sfusion.fakes.sandbox import FakeSandbox, ProgramScript
from sfusion.fakes.sglang import Ask, FakeSGLang, Gsm8kSolver, Reply, ScriptedPolicy, problems
from sfusion.harness.core.dumps.sample import open_dump
from sfusion.harness.core.dumps.writer import StepDump, sample_record, sample_text
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion.harness.rollouts.policies import read_policy
from sfusion.harness.rollouts.run import RolloutCounts, RolloutPlan, RolloutReporter, run_rollouts
from sfusion_tools.gsm8k_tool import compute_score
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver, RolloutLimits, format_parser
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.sfusion_tools.rollout.helpers import RecordingTool, ScriptedEngine, calling, request

SAMPLE = json.loads((Path(__file__).parent / "data" / "sample.json").read_text())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_the_sample_of_verls_design_is_reproduced_exactly() -> None:
    """The model replies as in the sample, the schema has every field set, and the program really
    runs."""
    _, first, last = re.split(r"(?:\ntool\n220000\.0\n\n)?assistant\n", SAMPLE["output"])
    john = problems(0, 1)[0]
    async with FakeSandbox(executor="python") as sandbox:
        tool = SandboxFusionTool(
            {"sandbox_fusion_url": sandbox.url, "limiter": "local", "limiter_name": "sample"}
        )
        made = AsyncRolloutRequest(
            messages=john.messages(), tool_schemas=[tool.tool_schema.model_dump()]
        )
        engine = FakeSGLang(ScriptedPolicy([first, last]), format="hermes")
        done = await RolloutDriver(engine, [tool], format_parser("hermes")).run(made)
        await tool.aclose()
    score = compute_score(sample_text(done)[1], john.ground_truth, method="strict")
    record = sample_record(done, score, step=1)
    assert record == SAMPLE
    assert list(record) == ["input", "output", "score", "step"]


async def test_problems_run_end_to_end_and_the_first_one_is_the_sample(tmp_path: Path) -> None:
    counts = await run_rollouts(RolloutPlan(tmp_path, problems=6, executor="python"))
    assert files(tmp_path) == ["1.jsonl", "requests"]
    records = lines(tmp_path / "1.jsonl")
    assert len(records) == 6
    assert {tuple(record) for record in records} == {("input", "output", "score", "step")}
    assert records[0]["input"] == SAMPLE["input"]
    assert records[0]["output"].endswith("\n\n#### 220000.0")
    assert "</tool_call>\ntool\n220000.0\n\nassistant\n" in records[0]["output"]
    assert all(record["output"].startswith("assistant\n") for record in records)
    assert [record["score"] for record in records] == [SAMPLE["score"], 1, 1, 1, 1, 1]
    assert counts.outcomes == {"ok": 6}
    assert counts.failed == 0


async def test_each_step_is_a_file_and_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        await run_rollouts(
            RolloutPlan(tmp_path / name, problems=5, steps=2, seed=3, executor="scripted")
        )
    for step in (1, 2):
        first, second = (tmp_path / name / f"{step}.jsonl" for name in "ab")
        assert first.read_bytes() == second.read_bytes()
        assert {record["step"] for record in lines(first)} == {step}
    assert (tmp_path / "a" / "1.jsonl").read_bytes() != (tmp_path / "a" / "2.jsonl").read_bytes()


@pytest.mark.parametrize(
    "form", ["hermes", "qwen3_coder", "llama3", "mistral", "deepseekv3", "kimi_k2"]
)
async def test_every_format_gives_the_same_scores(tmp_path: Path, form: str) -> None:
    counts = await run_rollouts(RolloutPlan(tmp_path, problems=3, format=form, executor="scripted"))
    assert counts.mean_score == pytest.approx(2 / 3), (
        "all but the first, whose 220000.0 is not literally 220000"
    )
    assert counts.refused == {}


async def test_scripted_answers_are_found_in_one_step_per_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    fits = ProgramScript.fits
    monkeypatch.setattr(
        ProgramScript, "fits", lambda self, *about: steps.append(self) or fits(self, *about)
    )
    counts = await run_rollouts(RolloutPlan(tmp_path, problems=20, executor="scripted"))
    assert (counts.outcomes, len(steps)) == ({"ok": 20}, 20)


def test_sandbox_failures_are_recorded_in_the_requests_file(tmp_path: Path) -> None:
    plan = RolloutPlan(
        tmp_path,
        problems=2,
        executor="scripted",
        faults=tuple(parse_rules("- {name: down, what: {status: 500}}")),
        limits=RolloutLimits(max_assistant_turns=2),
    )
    counts = run_virtually(run_rollouts(plan))
    requests = lines(tmp_path / "requests" / "1.jsonl")
    assert [record["infrastructure_failures"] for record in requests] == [1, 1]
    assert [record["outcomes"] for record in requests] == [{"sandbox_error": 1}] * 2
    assert [record["ended_by"] for record in requests] == ["max_assistant_turns"] * 2
    assert counts.mean_score == 0
    step = open_dump(tmp_path)[0]
    step.index.extend()
    assert "sandbox_error" in step.sample(1).tags


async def test_over_sampled_requests_are_not_dumped(tmp_path: Path) -> None:
    plan = RolloutPlan(tmp_path, problems=4, over_sample=0.5, at_once=2, executor="scripted")
    counts = await run_rollouts(plan)
    assert len(lines(tmp_path / "1.jsonl")) == len(lines(tmp_path / "requests" / "1.jsonl")) == 4
    assert plan.requests == counts.ended == 6
    assert counts.cancelled >= 1


async def test_every_call_of_a_misbehaving_model_is_counted(tmp_path: Path) -> None:
    plan = RolloutPlan(
        tmp_path,
        problems=20,
        policy=read_policy("misbehaving:0.9"),
        executor="scripted",
        limits=RolloutLimits(max_assistant_turns=5, max_consecutive_invalid_calls=3),
    )
    counts = await run_rollouts(plan)
    assert counts.failed == 0
    for record in lines(tmp_path / "requests" / "1.jsonl"):
        assert (
            record["calls"]
            == record["executed"] + sum(record["refused"].values()) + record["not_run"]
        )
        assert record["executed"] == sum(record["outcomes"].values())
    assert counts.refused.total() > 10


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def finished() -> AsyncRolloutRequest:
    bad = "<tool_call>\n{\n</tool_call>"
    driver = RolloutDriver(
        ScriptedEngine(calling("1"), bad, "ok"), [RecordingTool()], format_parser("hermes")
    )
    return await driver.run(request())


async def test_progress_in_a_build_log_is_a_plain_line_per_tenth() -> None:
    done, counts, out = await finished(), RolloutCounts(), io.StringIO()
    with RolloutReporter(out, 20) as reporter:
        for second in range(1, 21):
            counts.add(done)
            reporter.update(1, counts, seconds=second / 2)
    written = out.getvalue().splitlines()
    assert len(written) == 10
    assert (
        written[-1]
        == "step 1: 20/20 requests, 2.0 requests/s, 4.0 calls/s: ok 20, refused:malformed 20"
    )
    assert "\x1b" not in out.getvalue()


async def test_progress_on_a_terminal_is_a_bar_with_rates_and_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done, counts, out = await finished(), RolloutCounts(), Terminal()
    with RolloutReporter(out, 2) as reporter:
        counts.add(done)
        reporter.update(1, counts, seconds=1)
    assert "1/2" in out.getvalue()
    assert "1.0 requests/s" in out.getvalue()
    assert "ok 1" in out.getvalue()


def test_every_sample_is_one_line_for_every_reader(tmp_path: Path) -> None:
    """Programs print what some readers take for the end of a line, and JSON can hold what UTF-8
    cannot."""
    sample = {"output": "one\u2028two\u0085three\ud800"}
    dump = StepDump(tmp_path, 1)
    for place in range(2):
        dump.add(place, sample, {})
        written = dump.path.read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in written] == [sample] * (place + 1)
    dump.finish()
    assert [json.loads(line) for line in dump.path.read_text(encoding="utf-8").splitlines()] == [
        sample,
        sample,
    ]


class Sometimes:
    """Solves a problem, or gives up at once, as the seed of the sibling decides; and counts its
    steps."""

    def __init__(self) -> None:
        self.solver = Gsm8kSolver(marks=True)
        self.asked: dict[str, int] = {}
        self.marks: list[str] = []
        self.learned: list[list[float]] = []

    def reply(self, ask: Ask) -> Reply:
        self.asked[ask.rid] = ask.seed
        if ask.seed % 2 and not self.learned:
            return Reply("I do not know.")
        reply = self.solver.reply(ask)
        self.marks += [str(call.arguments["code"]).splitlines()[0] for call in reply.calls]
        return reply

    def learn(self, samples: Any, requests: Any) -> None:
        self.learned.append([request["advantage"] for request in requests])


async def test_siblings_have_ids_seeds_marks_and_groups_of_their_own_and_their_policy_learns(
    tmp_path: Path,
) -> None:
    policy = Sometimes()
    plan = RolloutPlan(tmp_path, problems=2, group=4, steps=2, executor="scripted", policy=policy)
    counts = await run_rollouts(plan)
    assert (counts.ended, len(counts.scores)) == (16, 16)
    assert len(policy.asked) == 16
    assert len({seed for rid, seed in policy.asked.items() if rid.startswith("0-1-")}) == 8
    assert len(set(policy.marks)) == len(policy.marks) == counts.calls > 8
    assert len(policy.learned) == 2
    requests = lines(tmp_path / "requests" / "1.jsonl")
    assert [(one["group"], one["offset"]) for one in requests[3:5]] == [
        ("0-1-john-bonus", 3),
        (requests[4]["group"], 0),
    ]
    assert len({one["group"] for one in requests}) == 2
    assert [one["advantage"] for one in requests] == policy.learned[0]
    assert sum(policy.learned[0]) == pytest.approx(0, abs=1e-4)
    assert any(policy.learned[0])  # some siblings gave up
    assert not any(policy.learned[1])
    (first, _) = open_dump(tmp_path)
    first.index.extend()
    assert first.sample(4).standing == [
        f"group {requests[4]['group']}",
        f"advantage {requests[4]['advantage']:+.3f}",
    ]
    assert list(lines(tmp_path / "1.jsonl")[0]) == ["input", "output", "score", "step"]


async def test_an_engine_that_takes_no_id_is_not_given_one() -> None:
    class Plain:
        async def async_generate(
            self, *, input_ids: list[int], sampling_params: dict[str, Any]
        ) -> Any:
            self.params = sampling_params
            return {"text": "4", "meta_info": {"finish_reason": {"type": "stop"}}}

    engine = Plain()
    made = AsyncRolloutRequest(messages=[{"role": "user", "content": "?"}], sampling_seed=7)
    done = await RolloutDriver(engine, [], format_parser("hermes")).run(made)
    assert (done.failure, engine.params["sampling_seed"]) == (None, 7)
