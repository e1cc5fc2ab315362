"""verl's own tool, last shipped in 0.7.1, compared with ours in verl's agent loop: the defects are
real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from verl.experimental.agent_loop.tool_parser import FunctionCall

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.limiter.ray_limiter import remove
from tests.ports import closed_port
from tests.verl.releases import NEW, agent_data, make_loop, trainer_config
from tests.verl.tools import OURS, THEIRS, quick, verl_config, write_tools

if NEW:
    pytest.skip("verl has had no Sandbox Fusion tool since 0.8", allow_module_level=True)

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600)]

NO_OUTPUT = "[code_interpreter] This is not output of a program"


async def ask(
    model: Path, file: Path, class_name: str, url: str, code: str, **config: Any
) -> tuple[str, Any]:
    """Return text and metrics of one call by one of the two tools."""
    given = quick(url, **config) if class_name == OURS else verl_config(url, **config)
    loop = make_loop(trainer_config(model, write_tools(file, given, class_name)))
    data = agent_data()
    call = FunctionCall(name="code_interpreter", arguments=json.dumps({"code": code}))
    response, _, metrics = await loop._call_tool(call, {}, data)
    if class_name == OURS:
        remove(given["limiter_name"])
    return response.text, metrics


CODE = '1  # sfusion:call=a prints="3\\n"'
LOOKS_EMPTY = {
    "429": [{"what": {"status": 429}}],
    "500": [{"what": {"status": 500}}],
    "503": [{"what": {"status": 503}}],
    "reset": [{"what": "reset"}],
    "no JSON": [{"what": {"malformed": "json"}}],
    "SandboxError": [{"what": {"sandbox_error": "no memory"}}],
}


@pytest.mark.parametrize("name", LOOKS_EMPTY)
async def test_old_tool_returns_empty_output_for_failures_that_ours_reports(
    model: Path, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "tools.yaml"
    async with FakeSandbox(faults=LOOKS_EMPTY[name]) as sandbox:
        theirs, nothing = await ask(model, file, THEIRS, f"{sandbox.url}/run_code", CODE)
        assert sandbox.ledger.arrived == 1, "verl's tool did not retry"
        ours, metrics = await ask(model, file, OURS, f"{sandbox.url}/run_code", CODE)
    assert (theirs, nothing) == ("no stdout here", None)
    assert ours.startswith(NO_OUTPUT)
    assert metrics["infrastructure"]


async def test_old_tool_loses_the_output_of_a_transient_failure_and_ours_retries(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tools.yaml"
    async with FakeSandbox(faults=[{"first_attempts": 1, "what": {"status": 429}}]) as sandbox:
        theirs, _ = await ask(model, file, THEIRS, f"{sandbox.url}/run_code", CODE)
        sandbox.forget()
        ours, metrics = await ask(model, file, OURS, f"{sandbox.url}/run_code", CODE)
    assert (theirs, ours) == ("no stdout here", "3\n")
    assert metrics["attempts"] == 2


async def test_old_tool_returns_empty_output_when_the_sandbox_is_down_and_ours_reports_it(
    model: Path, tmp_path: Path
) -> None:
    file, url = tmp_path / "tools.yaml", f"http://127.0.0.1:{closed_port()}/run_code"
    theirs, _ = await ask(model, file, THEIRS, url, CODE)
    ours, metrics = await ask(model, file, OURS, url, CODE)
    assert theirs == "no stdout here"
    assert ours.startswith(NO_OUTPUT)
    assert metrics["outcome"] == "unreachable"


async def test_old_tool_drops_the_output_of_a_program_that_timed_out_and_ours_keeps_it(
    model: Path, tmp_path: Path
) -> None:
    file, code = tmp_path / "tools.yaml", '1  # sfusion:call=a seconds=60 early="half\\n"'
    async with FakeSandbox() as sandbox:
        theirs, _ = await ask(
            model, file, THEIRS, f"{sandbox.url}/run_code", code, default_timeout=1
        )
        ours, metrics = await ask(
            model, file, OURS, f"{sandbox.url}/run_code", code, default_timeout=1
        )
    assert theirs == "no stdout here"
    assert ours.startswith("half\n[The program timed out after 1 s;")
    assert (metrics["outcome"], metrics["infrastructure"]) == ("program_timeout", False)


async def test_old_tool_fails_every_call_without_a_limiter_and_ours_runs_them(
    model: Path, tmp_path: Path
) -> None:
    """verl defect (a)."""
    file = tmp_path / "tools.yaml"
    async with FakeSandbox() as sandbox:
        url = f"{sandbox.url}/run_code"
        theirs, _ = await ask(model, file, THEIRS, url, CODE, enable_global_rate_limit=False)
        ours, _ = await ask(model, file, OURS, url, CODE, enable_global_rate_limit=False)
    assert theirs.startswith("Error when executing tool: ")
    assert "'NoneType' object has no attribute" in theirs
    assert ours == "3\n"


async def test_old_tool_and_ours_return_the_same_output_of_a_good_program(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tools.yaml"
    async with FakeSandbox() as sandbox:
        answers = [
            await ask(model, file, tool, f"{sandbox.url}/run_code", CODE) for tool in (THEIRS, OURS)
        ]
    assert [text for text, _ in answers] == ["3\n", "3\n"]
