"""Where a function or class of the user begins."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from sfusion.harness.core.place import Place, place_of
from sfusion.harness.lab.shapes import shape_of
from tests import ROOT


def decorated(function):  # type: ignore[no-untyped-def]
    @functools.wraps(function)
    def wrapper(*values):  # type: ignore[no-untyped-def]
        return function(*values)

    return wrapper


@decorated
def client(url: str, code: str) -> str:
    return url + code


class Client:
    def run(self, code: str) -> str:
        return code


def line_of(text: str) -> int:
    return Path(__file__).read_text(encoding="utf-8").splitlines().index(text) + 1


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (client, "@decorated"),
        (functools.partial(client, "http://sandbox"), "@decorated"),
        (Client, "class Client:"),
        (Client(), "class Client:"),
        (Client().run, "    def run(self, code: str) -> str:"),
    ],
    ids=["decorated", "partial", "class", "object", "method"],
)
def test_a_target_is_where_its_source_begins(
    target: object, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(ROOT))
    assert place_of(target) == Place("tests/harness/core/test_place.py", line_of(text))


@pytest.mark.parametrize(
    "target",
    [len, pytest.raises, 7, None],
    ids=["built in", "installed", "number", "nothing"],
)
def test_what_is_not_in_the_repository_has_no_place(
    target: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(ROOT))
    assert place_of(target) is None


def test_a_tool_config_leads_to_the_class_of_its_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (tmp_path / "placed_tool.py").write_text(
        "from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool\n\n\n"
        "class MyTool(SandboxFusionTool):\n    pass\n"
    )
    entry = {"class_name": "placed_tool.MyTool", "config": {}}
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": [entry]}))
    assert shape_of(str(tmp_path / "tools.yaml")).place == Place("placed_tool.py", 4)
