"""The environment of docs/trainers.md: TRL takes it, and its reward leaves lost samples out."""

from __future__ import annotations

from typing import Any

import pytest

transformers_utils = pytest.importorskip("transformers.utils")

from sfusion.fakes.sandbox import FakeSandbox  # noqa: E402
from sfusion_tools import CodeRunner  # noqa: E402
from tests import ROOT  # noqa: E402


def documented() -> dict[str, Any]:
    """Run the block of the page that defines the environment."""
    page = (ROOT / "docs/trainers.md").read_text(encoding="utf-8")
    before, _, after = page.partition("class Interpreter")
    source = "class Interpreter" + after.partition("```")[0]
    assert before
    names: dict[str, Any] = {}
    exec(source, names)
    return names


def test_a_sample_that_lost_a_call_gets_none() -> None:
    names = documented()
    lost = {"code": "lose me", "what": {"status": 500}}
    with FakeSandbox(executor="python", faults=[lost]) as sandbox:
        runner = CodeRunner(sandbox.url, limiter="local", memory_limit_mb=-1, max_attempts=1)
        environments = [names["Interpreter"](runner) for _ in range(2)]
        for environment in environments:
            environment.reset(prompt="a")
        assert environments[0].run_tool("print(6 * 7)").strip() == "42"
        environments[1].run_tool("print('lose me')")
        scored = names["unless_lost"](lambda completions, **_: [1.0, 1.0])
        assert scored(["a", "b"], environments=environments) == [1.0, None]
        environments[1].reset(prompt="b")
        assert scored(["a", "b"], environments=environments) == [1.0, 1.0]


def test_trl_gets_a_schema_of_the_tool() -> None:
    tool = documented()["Interpreter"](None).run_tool
    schema = transformers_utils.get_json_schema(tool)["function"]
    assert schema["name"] == "run_tool"
    assert schema["parameters"]["required"] == ["code"]
