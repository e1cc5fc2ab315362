"""docs/tool.md matches the code: the table of keys, the lists of outcomes and metrics, and the
snippets."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from pydantic_core import PydanticUndefined

from sfusion_tools.event_log import EventLogSettings
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.guard import GuardSettings
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.tool_registry import initialize_tools_from_config
from tests import ROOT
from tests.patience import PATIENCE

PAGE = ROOT / "docs" / "tool.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMENTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
PYTHON = [
    snippet
    for snippet in re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    if COMMENTED.search(snippet)
]


def _table(heading: str, text: str = TEXT) -> list[list[str]]:
    """Return the cells of the table under a heading, without the header row."""
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.mark.parametrize(
    ("page", "heading", "model"),
    [
        ("tool.md", "Config keys", SandboxToolConfig),
        ("tool.md", "The guard", GuardSettings),
        ("journal.md", "Settings of the event log", EventLogSettings),
    ],
)
def test_the_table_of_keys_matches_the_config(page, heading, model):
    keys = []
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "required" if default is PydanticUndefined else f"`{json.dumps(default)}`"
        keys.append([f"`{name}`", shown, field.description])
    assert _table(heading, (PAGE.parent / page).read_text(encoding="utf-8")) == keys


def test_every_outcome_is_documented():
    assert [row[0] for row in _table("Outcomes")] == [f"`{outcome.value}`" for outcome in Outcome]
    for name, whose, *_ in _table("Outcomes"):
        outcome = Outcome(name.strip("`"))
        assert (whose == "program") is outcome.is_from_program
        assert (whose == "infrastructure") is outcome.is_infrastructure


def test_every_metric_is_documented():
    assert [row[0].strip("`") for row in _table("Metrics")] == list(
        CallResult("c", Outcome.OK).metrics()
    )


def test_the_example_config_is_valid(tmp_path):
    (config,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    path = tmp_path / "tools.yaml"
    path.write_text(config, encoding="utf-8")
    (tool,) = initialize_tools_from_config(path)
    assert tool.name == "code_interpreter"


@pytest.mark.parametrize("snippet", PYTHON, ids=range(len(PYTHON)))
def test_snippets_print_what_their_comments_say(snippet):
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    promised = COMMENTED.findall(snippet)
    assert (done.returncode, done.stdout.splitlines()) == (0, promised), done.stderr
