"""Bring your own tool: any class with verl's interface can run, and what cannot be observed is
unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.promises import Verdict
from sfusion.harness.lab.runs import run_scenario
from sfusion.harness.lab.scenarios import Scenario
from sfusion.harness.lab.worlds import sim
from tests.harness.lab.promises.scenes import scene, verdicts

SCHEMA = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "Runs code.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "code"}},
            "required": ["code"],
        },
    },
}


def entry(name: str, **config: Any) -> dict[str, Any]:
    given = {"sandbox_fusion_url": "http://example.invalid", "rate_limit": 4, **config}
    return {
        "class_name": f"tests.harness.lab.scenarios.third_party_tools.{name}",
        "config": given,
        "tool_schema": SCHEMA,
    }


def with_tool(name: str, **changes: Any) -> Scenario:
    return scene(tools=[entry(name)], cluster={"nodes": 1, "workers_per_node": 1}, **changes)


def judged(scenario: Scenario) -> dict[str, Verdict]:
    return verdicts(sim.run(scenario))


@pytest.mark.parametrize("name", ["NewShape", "OldShape"])
def test_tools_with_either_return_shape_run_and_what_they_hide_is_not_applicable(name: str) -> None:
    found = judged(with_tool(name))
    states = {promise: verdict.state for promise, verdict in found.items()}
    assert {promise for promise, state in states.items() if state == "broken"} == {
        "connections_reused"  # they open a session for each call
    }
    for hidden in (
        "no_permit_leaked",
        "grants_in_order",
        "no_starvation",
        "deadline_honoured",
        "no_secret_leaked",
    ):
        assert states[hidden] == "not_applicable", found[hidden]
    for seen in (
        "in_flight_within_limit",
        "every_call_ends_once",
        "attempts_per_call",
        "text_is_truthful",
        "outcomes",
    ):
        assert states[seen] == "held", found[seen]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Retrying", set()),
        ("InStep", {"retries_spread"}),
        ("Clinging", {"no_permit_while_backing_off"}),
    ],
)
def test_retries_of_other_tools_are_judged_at_the_sandbox(name: str, wrong: set[str]) -> None:
    busy = {"faults": [{"first_attempts": 1, "what": {"status": 503}}]}
    found = judged(with_tool(name, sandbox=busy))
    assert {promise for promise, verdict in found.items() if verdict.state == "broken"} == wrong
    for promise in {"retries_spread", "no_permit_while_backing_off", "connections_reused"} - wrong:
        assert found[promise].held, found[promise]


def test_a_class_that_never_defined_a_reward_is_not_blamed_for_that_of_its_base() -> None:
    down = {"faults": [{"what": {"status": 503}}]}
    assert (
        judged(with_tool("Unrewarded", sandbox=down))["infra_never_scored"].state
        == "not_applicable"
    )
    assert judged(with_tool("NewShape", sandbox=down))["infra_never_scored"].state == "broken"


def test_a_tool_that_ignores_its_limit_is_caught_at_the_sandbox() -> None:
    found = judged(with_tool("Unlimited"))
    assert found["in_flight_within_limit"].state == "broken"
    assert "5 attempts were in flight; the limit is 4" in found["in_flight_within_limit"].sentence


def test_a_misleading_tool_message_and_a_scored_outage_are_found() -> None:
    outage = {
        "sandbox": {"faults": [{"call": "c0005", "what": "reset"}]},
        "load": {"calls": 24, "concurrency": 12},
    }
    honest, vague = judged(with_tool("NewShape", **outage)), judged(with_tool("OldShape", **outage))
    assert honest["text_is_truthful"].state == "held"
    assert vague["text_is_truthful"].state == "broken"
    assert "'no stdout here'" in vague["text_is_truthful"].sentence
    assert vague["infra_never_scored"].state == "broken"
    assert "call c0005" in vague["infra_never_scored"].sentence


def test_a_tool_that_works_in_threads_is_unknown_and_pointed_to_the_wall_clock() -> None:
    small = {"calls": 3, "concurrency": 1, "program": {"prints": "x"}}
    found = judged(with_tool("InThreads", load=small))
    assert {verdict.state for verdict in found.values()} == {"unknown", "not_applicable"}
    assert "--world wall" in found["every_call_ends_once"].sentence


def test_our_own_class_in_a_tool_config_is_fully_observed() -> None:
    own = {
        "class_name": "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
        "config": {"rate_limit": 2},
    }
    found = judged(scene(tools=[own]))
    assert found["no_permit_leaked"].state == "held"
    assert "the limit is 2" in found["in_flight_within_limit"].sentence


def test_the_command_runs_scenarios_on_a_given_tool(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(yaml.safe_dump({"tools": [entry("OldShape")]}))
    result = CliRunner().invoke(
        app, ["run", "poisoned-call", "single-node", "--jobs", "1", "--tools", str(config)]
    )
    assert result.exit_code == 1
    assert "text_is_truthful" in result.output


def test_a_scenarios_limits_reach_the_given_tool(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(yaml.safe_dump({"tools": [entry("NewShape", rate_limit=50)]}))
    out = tmp_path / "out"
    arguments = [
        "run",
        "single-node-tight-limit",
        "-k",
        "rate_limit=2",
        "--jobs",
        "1",
        "--tools",
        str(config),
    ]
    CliRunner().invoke(app, [*arguments, "--out", str(out)])
    written = yaml.safe_load(
        (out / "single-node-tight-limit[rate_limit=2]" / "scenario.yaml").read_text()
    )
    assert written["tools"][0]["config"]["rate_limit"] == 2


def test_a_tool_class_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(yaml.safe_dump({"tools": [entry("NewShap")]}))
    result = CliRunner().invoke(app, ["run", "single-node", "--jobs", "1", "--tools", str(config)])
    assert result.exit_code == 2
    assert "did you mean 'NewShape'?" in result.output


PEER = """\
class Peer:
    def __init__(self, config, tool_schema=None):
        if config["rate_limit"] == 2:
            raise RuntimeError("two is not enough")
        self.name, self.tool_schema, self.config = "code_interpreter", tool_schema, config

    async def create(self, instance_id=None, **kwargs):
        return instance_id, None

    async def execute(self, instance_id, parameters, agent_data, **kwargs):
        assert "extras" not in agent_data.extra_fields
        raise RuntimeError("boom")

    async def calc_reward(self, instance_id, **kwargs):
        return None

    async def release(self, instance_id, **kwargs):
        return None
"""


def test_a_tool_that_fails_is_told_apart_and_the_other_runs_go_on(tmp_path: Path) -> None:
    (tmp_path / "a_peer_of_the_tests.py").write_text(PEER)
    config, junit = tmp_path / "tools.yaml", tmp_path / "junit.xml"
    peer = {"class_name": "a_peer_of_the_tests.Peer", "config": {"rate_limit": 50}}
    config.write_text(yaml.safe_dump({"tools": [peer]}))
    arguments = [
        "run",
        "single-node-tight-limit",
        "--jobs",
        "1",
        "--tools",
        str(config),
        "--junit",
        str(junit),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    report = junit.read_text()
    assert 'tests="11"' in report, (
        "five for each cell that ran, and one for the cell that could not be run"
    )
    assert "the tool refused its config: RuntimeError: two is not enough" in report
    assert (
        "tool_never_raises: the tool raised RuntimeError: boom (c0001, a_peer_of_the_tests.py:12)"
        in result.output
    )
    assert result.output.count("not applicable in 2 runs: grants_in_order, no_starvation") == 1
    assert "outside the event loop" not in result.output


def test_the_scenarios_keys_reach_our_own_class_when_it_is_given(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    own = {
        "class_name": "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
        "config": {"rate_limit": 50},
    }
    config.write_text(yaml.safe_dump({"tools": [own]}))
    out = tmp_path / "out"
    arguments = [
        "run",
        "death-at-the-last-call",
        "worker-death",
        "--jobs",
        "1",
        "--tools",
        str(config),
    ]
    result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    written = yaml.safe_load((out / "death-at-the-last-call" / "scenario.yaml").read_text())
    assert written["tools"][0]["config"]["max_attempts"] == 3


def test_step_rewards_and_raises_count_as_scores() -> None:
    outage = {"faults": [{"call": "c0005", "phase": "after", "what": "sandbox_error"}]}
    found = judged(with_tool("NewShape", sandbox=outage))["infra_never_scored"]
    assert found.sentence == "call c0005 failed because of the infrastructure and was scored 0.0"
    found = judged(with_tool("Raising", sandbox=outage))["infra_never_scored"]
    assert (
        found.sentence
        == "call c0005 failed because of the infrastructure and raised, which verl scores 0"
    )


def test_an_honest_text_about_a_sandbox_error_is_no_lie() -> None:
    outage = {"faults": [{"call": "c0005", "what": "sandbox_error"}]}
    assert judged(with_tool("NewShape", sandbox=outage))["text_is_truthful"].state == "held"


def test_the_timeout_of_another_class_is_that_of_its_config() -> None:
    slow = {"calls": 2, "program": {"seconds": "10s", "early": "x"}}
    scenario = scene(tools=[entry("NewShape", default_timeout=5)], load=slow)
    called = [event for event in sim.run(scenario).events if event["event"] == "called"]
    assert {event["intent"]["kind"] for event in called} == {"program_timeout"}


def test_programs_that_a_tool_has_given_up_are_not_in_flight() -> None:
    slow = {"calls": 16, "concurrency": 4, "program": {"seconds": "20s"}}
    found = judged(with_tool("Impatient", load=slow, horizon="10s"))
    assert found["in_flight_within_limit"].state == "held", found["in_flight_within_limit"]


def test_a_tool_that_is_refused_every_connection_is_judged() -> None:
    found = judged(with_tool("NewShape", events=[{"at": "0s", "crash": "sandbox"}]))
    assert found["every_call_ends_once"].state == "held"
    assert found["text_is_truthful"].state == "held"


def test_the_gate_says_once_what_it_skips_and_what_does_not_apply(tmp_path: Path) -> None:
    # That a right tool is green on the whole matrix is shown by the proof, tests/proof.
    config = tmp_path / "tools.yaml"
    keys = {
        "limiter": "local",
        "rate_limit_mismatch": "apply",
        "default_timeout": 30,
        "max_attempts": 6,
    }
    config.write_text(yaml.safe_dump({"tools": [entry("Silent", **keys)]}))
    arguments = [
        "run",
        "limiter-death",
        "node-death",
        "paced-requests",
        "--jobs",
        "1",
        "--tools",
        str(config),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 cell skipped (the tool has no key requests_per_second)" in result.output
    assert result.output.count("this tool does not use the limiter of sfusion") == 1


def test_a_module_beside_a_scenario_is_found(tmp_path: Path) -> None:
    (tmp_path / "another_peer_of_the_tests.py").write_text(PEER)
    file = tmp_path / "scenario.yaml"
    tools = [{"class_name": "another_peer_of_the_tests.Peer", "config": {"rate_limit": 1}}]
    file.write_text(yaml.safe_dump({**scene().written, "tools": tools}))
    (result,) = run_scenario(file, check=False)
    assert result.verdicts[-1].sentence.startswith("the tool raised RuntimeError: boom")
    assert CliRunner().invoke(app, ["run", str(file), "--jobs", "1", "--trust"]).exit_code == 1


ELSEWHERE = """
import os
import aiohttp

ADDRESS = "http://localhost:8080"


async def send(address, code):
    body = {"code": code, "language": "python"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{address}/run_code", json=body) as answer:
            return (await answer.json())["run_result"]["stdout"]


async def by_variable(code):
    return await send(os.environ["MY_SANDBOX"], code)


async def by_attribute(code):
    return await send(ADDRESS, code)
"""


def test_a_target_may_have_its_address_in_a_variable_or_an_attribute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Any:
        command = ["run", "judge-idle", "--jobs", "1", *words]
        return CliRunner().invoke(app, command)

    for name, *words in (
        ("by_variable", "--env", "MY_SANDBOX"),
        ("by_attribute", "--attribute", "ADDRESS"),
    ):
        result = run("--tools", f"./elsewhere.py:{name}", *words)
        assert "sent nothing" not in result.output
        assert result.exit_code in (0, 1), result.output
    missing = run("--tools", "./elsewhere.py:by_attribute")
    assert (missing.exit_code, "--attribute NAME" in missing.output) == (2, True)
    alone = run("--attribute", "ADDRESS")
    assert (alone.exit_code, "name it with --tools" in alone.output) == (2, True)
    for command in (["hunt", "--cases", "2"], ["train", "outage-trained-as-zeros", "--seeds", "1"]):
        given = [*command, "--tools", "./elsewhere.py:by_variable", "--env", "MY_SANDBOX"]
        result = CliRunner().invoke(app, [*given, "--jobs", "1"])
        assert result.exit_code in (0, 1), result.output
        assert "sent nothing" not in result.output
        without = CliRunner().invoke(app, [*given[:-2], "--jobs", "1"])
        assert (without.exit_code, "--env NAME" in without.output) == (2, True)
    config = run("--tools", "tools.yaml", "--env", "MY_SANDBOX")
    assert (config.exit_code, "is a tool config" in config.output) == (2, True)
