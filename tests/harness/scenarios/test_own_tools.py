"""Bring your own tool: any class with verl's interface can run, and what cannot be observed is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.promises import Verdict
from sfusion.harness.scenarios import Scenario
from sfusion.harness.worlds import sim
from tests.harness.promises.scenes import scene, verdicts

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
    return {"class_name": f"tests.harness.scenarios.third_party_tools.{name}", "config": given, "tool_schema": SCHEMA}


def with_tool(name: str, **changes: Any) -> Scenario:
    return scene(tools=[entry(name)], cluster={"nodes": 1, "workers_per_node": 1}, **changes)


def judged(scenario: Scenario) -> dict[str, Verdict]:
    return verdicts(sim.run(scenario))


@pytest.mark.parametrize("name", ["NewShape", "OldShape"])
def test_tools_with_either_return_shape_run_and_what_they_hide_is_unknown(name: str) -> None:
    found = judged(with_tool(name))
    states = {promise: verdict.state for promise, verdict in found.items()}
    assert {promise for promise, state in states.items() if state == "broken"} == set()
    for hidden in ("no_permit_leaked", "grants_in_order", "no_starvation", "outcomes", "deadline_honoured"):
        assert states[hidden] == "unknown", found[hidden]
    for seen in ("in_flight_within_limit", "every_call_ends_once", "attempts_per_call", "text_is_truthful"):
        assert states[seen] == "held", found[seen]


def test_a_tool_that_ignores_its_limit_is_caught_at_the_sandbox() -> None:
    found = judged(with_tool("Unlimited"))
    assert found["in_flight_within_limit"].state == "broken"
    assert "5 attempts were in flight; the limit is 4" in found["in_flight_within_limit"].sentence


def test_a_misleading_tool_message_and_a_scored_outage_are_found() -> None:
    outage = {"faults": [{"call": "c0005", "what": "reset"}]}
    honest, vague = judged(with_tool("NewShape", sandbox=outage)), judged(with_tool("OldShape", sandbox=outage))
    assert honest["text_is_truthful"].state == "held"
    assert vague["text_is_truthful"].state == "broken"
    assert "'no stdout here'" in vague["text_is_truthful"].sentence
    assert vague["infra_never_scored"].state == "broken"
    assert "call c0005" in vague["infra_never_scored"].sentence


def test_a_tool_that_works_in_threads_is_unknown_and_pointed_to_world_ray() -> None:
    small = {"calls": 3, "concurrency": 1, "program": {"prints": "x"}}
    found = judged(with_tool("InThreads", load=small))
    assert {verdict.state for verdict in found.values()} == {"unknown"}
    assert "--world ray" in found["every_call_ends_once"].sentence


def test_our_own_class_in_a_tool_config_is_fully_observed() -> None:
    own = {"class_name": "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool", "config": {"rate_limit": 2}}
    found = judged(scene(tools=[own]))
    assert found["no_permit_leaked"].state == "held"
    assert "the limit is 2" in found["in_flight_within_limit"].sentence


def test_the_command_runs_scenarios_on_a_given_tool(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(yaml.safe_dump({"tools": [entry("OldShape")]}))
    result = CliRunner().invoke(app, ["run", "poisoned-call", "single-node", "--jobs", "1", "--tools", str(config)])
    assert result.exit_code == 1
    assert "text_is_truthful" in result.output
    assert "the limiter of this tool cannot be observed" in result.output


def test_a_scenarios_limits_reach_the_given_tool(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(yaml.safe_dump({"tools": [entry("NewShape", rate_limit=50)]}))
    out = tmp_path / "out"
    arguments = ["run", "single-node-tight-limit", "-k", "rate_limit=2", "--jobs", "1", "--tools", str(config)]
    CliRunner().invoke(app, [*arguments, "--out", str(out)])
    written = yaml.safe_load((out / "single-node-tight-limit[rate_limit=2]" / "scenario.yaml").read_text())
    assert written["tools"][0]["config"]["rate_limit"] == 2


def test_a_tool_class_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(yaml.safe_dump({"tools": [entry("NewShap")]}))
    result = CliRunner().invoke(app, ["run", "single-node", "--jobs", "1", "--tools", str(config)])
    assert result.exit_code == 2
    assert "did you mean 'NewShape'?" in result.output
