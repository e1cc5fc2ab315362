"""The help of every command: complete, in one vocabulary, and without the types of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app, found_commands, load

NAMES = list(found_commands())
TWO_MEANINGS = {
    "--baseline": {"drift", "judge"},
    "--cases": {"hunt", "shrink"},
    "--executor": {
        "drift",
        "serve daytona",
        "serve e2b",
        "serve openenv",
        "serve mcp",
        "serve sandbox",
    },
    "--format": {"parse", "rollout", "serve sglang"},
    "--model": {"sweep", "serve daytona", "serve e2b", "serve openenv", "serve sandbox", "proxy"},
    "--out": {"run", "hunt", "chaos", "sweep", "rollout", "judge"},
    "--profile": {"drift", "serve sandbox"},
    "--quick": {"doctor", "drift"},
    "--seed": {
        "judge",
        "run",
        "hunt",
        "chaos",
        "rollout",
        "serve daytona",
        "serve e2b",
        "serve mcp",
        "serve openenv",
        "serve sandbox",
        "serve sglang",
        "proxy",
    },
    "--timeout": {"doctor", "drift", "rollout"},
    "--to": {"learn", "new", "shrink"},
    "--tools": {"run", "hunt", "shrink", "doctor", "parse", "serve mcp", "train"},
    "--world": {"judge", "run"},
}
"""Options whose help says something else in one command than in another, and the commands that have
them."""


@cache
def shown(name: str) -> str:
    result = CliRunner().invoke(
        app, [*name.split(), "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
    )
    assert result.exit_code == 0, result.output
    return result.output


def params(name: str) -> list[Any]:
    return [param for param in load(name).params if not getattr(param, "hidden", False)]


@pytest.mark.parametrize("name", ["", "serve", *NAMES])
def test_help_shows_no_type_of_the_code(name: str) -> None:
    leaked = re.findall(
        r"<\w[\w\[\], |]*>|\.\.\.[\]}]|\b(?:INTEGER|FLOAT|BOOLEAN|Path|list\[)", shown(name)
    )
    assert [one for one in leaked if one != "<step>"] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_argument_has_a_help_and_a_metavar(name: str) -> None:
    for param in params(name):
        assert re.search(r"[.:)]$", param.help or ""), (
            f"{param.opts}: {param.help!r} is not a sentence"
        )
        if not getattr(param, "is_flag", False):
            assert param.metavar, param.opts


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_an_example_that_names_options_it_has(name: str) -> None:
    text = load(name).help
    examples = re.findall(r"Example: (.*)", text)
    assert len(examples) == 1, text
    for part in examples[0].split(" && "):
        command = next(
            one for one in sorted(NAMES, key=len, reverse=True) if part.startswith(f"sfusion {one}")
        )
        known = {option for param in params(command) for option in param.opts}
        assert set(re.findall(r"(?<= )--?[a-z][\w-]*", part)) <= known, part


def test_an_option_means_the_same_in_every_command_unless_it_is_declared() -> None:
    meanings, users = defaultdict(set), defaultdict(set)
    for name in NAMES:
        for param in params(name):
            if param.param_type_name == "option":
                meanings[param.opts[0]].add((param.help, param.metavar))
                users[param.opts[0]].add(name)
    assert {
        option: users[option] for option, found in meanings.items() if len(found) > 1
    } == TWO_MEANINGS


def test_each_flag_has_one_spelling() -> None:
    for name in NAMES:
        for param in params(name):
            assert len(param.opts) == 1 or param.opts == ["--format", "-f"], f"{name} {param.opts}"


def test_the_help_lists_every_command_under_the_heading_of_its_floor() -> None:
    listed = re.findall(r"^│ (\w+)  ", shown(""), re.MULTILINE)
    assert listed == list(dict.fromkeys(name.split()[0] for name in NAMES))
    floors = {one.module.split(".")[2]: one.panel for one in found_commands().values()}
    assert set(re.findall(r"^╭─ (.+?) ─", shown(""), re.MULTILINE)) == {"Options", *floors.values()}


@pytest.mark.parametrize(
    ("typed", "meant"), [("comapre", "compare"), ("serve sandbx", "sandbox"), ("serve keep", "")]
)
def test_a_misspelt_command_is_told_what_was_meant(typed: str, meant: str) -> None:
    result = CliRunner().invoke(app, typed.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"`sfusion {typed}` is not a command; ")
    assert f"did you mean '{meant}'?" in result.stderr or not meant


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom sfusion.harness.cli import app\napp(['--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.endswith('.command') or '.commands.' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
