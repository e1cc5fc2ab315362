"""Checks a block: runs programs and commands, compares their output with the page, and parses
data."""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from tests.docs.blocks import Block
from tests.patience import PATIENCE
from tests.warm import warm

TIMEOUT = PATIENCE
_CHANGES = re.compile(
    r"^(sudo |python -m |python3 -m )?(pip|pipx|uv|apt|apt-get|docker|ray|git|rm)\b"
    r"|^sfusion .*(--world ray|--sandbox (docker|http)|limiter )"
)
"""Commands that change the machine or need a real server, cluster or engine; these tests never
run them."""
_OF_THE_CHECKOUT = re.compile(r"^python -m (benchmarks|tests\.)")
"""Packages of the repository that are not installed; pages say to run them in a checkout."""
_SERVES = re.compile(r"^sfusion (serve|proxy)\b")
_VARIES = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)?/s\b"), "RATE"),
    (re.compile(r"[ \t]+"), " "),
)


def try_block(block: Block, folder: Path) -> str:
    """Return what is wrong with a block, or an empty text."""
    if block.adds_to:
        return _add(block, folder)
    match block.language:
        case "python":
            return _python(block, folder)
        case "console" | "bash" | "sh" | "shell":
            return _commands(block, folder)
        case "yaml":
            return _yaml(block, folder)
        case "json":
            return _reads(json.loads, block)
        case "toml":
            return _reads(tomllib.loads, block)
        case "ini":
            return _reads(configparser.ConfigParser().read_string, block)
        case "text":
            # The output of the program or the commands above it, a file, or a diagram.
            return "" if block.text.strip() else "there is nothing in it"
        case other:
            return (
                f"cannot check a block of {other or 'no language'!r}; name a known "
                "language, or say why it is not run"
            )


def _add(block: Block, folder: Path) -> str:
    """Add the block to a file, at its end, or before or after a line."""
    place = re.fullmatch(r"(\S+)(?: (after|before) (.+))?", block.adds_to)
    assert place is not None, block.adds_to
    name, side, beginning = place.groups()
    file = folder / name
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    at = len(lines)
    if side:
        found = [number for number, line in enumerate(lines) if line.startswith(beginning)]
        if not found:
            return f"{name} has no line that begins with {beginning!r}"
        at = found[0] if side == "before" else found[0] + 1
    file.write_text("".join([*lines[:at], block.text, *lines[at:]]), encoding="utf-8")
    return ""


def commands_of(text: str) -> list[str]:
    """The commands of a block, one per line; a backslash continues a line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def differs(expected: list[str], shown: str) -> str:
    """Return both texts if they differ, else nothing; a line ``...`` matches any lines, ``…``
    any text."""
    pattern = ""
    for line in _steady("\n".join(expected)).strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.strip().split("…")) + r" *\n"
    found = "".join(line.strip() + "\n" for line in _steady(shown).strip().splitlines())
    return (
        ""
        if re.fullmatch(pattern, found)
        else f"expected:\n{chr(10).join(expected)}\nfound:\n{shown}"
    )


def _steady(text: str) -> str:
    for pattern, stands in _VARIES:
        text = pattern.sub(stands, text)
    return text


def _environment() -> dict[str, str]:
    path = os.pathsep.join(
        [str(warm()), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )
    return {
        **os.environ,
        "PATH": path,
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _run(command: list[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    """Run a command in its own process group; kill the group after ``TIMEOUT``."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environ = _environment()
    if (
        _OF_THE_CHECKOUT.match(command[-1])
        and folder is not None
        and not (folder / "benchmarks").is_dir()
    ):
        environ["PYTHONPATH"] = str(ROOT)
    with subprocess.Popen(
        command, cwd=folder, env=environ, start_new_session=True, **pipes
    ) as process:
        try:
            out, errors = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, errors = process.communicate()
            return subprocess.CompletedProcess(
                command, -1, out, f"{errors}not done after {TIMEOUT:g} s"
            )
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def _python(block: Block, folder: Path) -> str:
    is_test = "def test_" in block.text
    file = folder / (f"test_block_{block.line}.py" if is_test else f"block_{block.line}.py")
    file.write_text(block.text, encoding="utf-8")
    how = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"] if is_test else []
    done = _run([str(warm("python")), *how, file.name], folder)
    if done.returncode:
        return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return differs(block.shows.splitlines(), done.stdout) if block.shows is not None else ""


def _commands(block: Block, folder: Path) -> str:
    """Run all commands; the text block that follows is what they print together, with or without
    stderr."""
    expected = (block.shows or "").splitlines()
    printed = ["", ""]
    for command in commands_of(block.text):
        if _SERVES.match(command):
            wrong, out, both = _serve(command, expected, folder), block.shows or "", ""
        else:
            wrong, out, both = _command(command, folder)
        if wrong:
            return f"{command}\n{wrong}"
        printed = [printed[0] + out, printed[1] + both]
    return differs(expected, printed[0]) and differs(expected, printed[1]) if expected else ""


def _command(command: str, folder: Path) -> tuple[str, str, str]:
    """Run a command; return what is wrong with it, its stdout, and both streams."""
    if _CHANGES.match(command):
        return "changes the machine, or needs something real; say why it is not run", "", ""
    code = re.search(r"  # exit code (\d+)", command)
    done = _run(["bash", "-c", command], folder)
    both = done.stdout + done.stderr
    wrong = done.returncode != (int(code[1]) if code else 0)
    return f"exit code {done.returncode}\n{both}" if wrong else "", done.stdout, both


def _serve(command: str, expected: list[str], folder: Path) -> str:
    """Start a server on a free port, read as many lines as are expected (at least one), and stop
    it."""
    command = "exec " + (
        re.sub(r"--port \d+", "--port 0", command) if "--port" in command else f"{command} --port 0"
    )
    shown = ""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=_environment(), **pipes
    ) as server:
        try:
            for _ in expected or [""]:
                shown += server.stdout.readline()  # type: ignore[union-attr] # it is a pipe
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=TIMEOUT)
        finally:
            server.kill()
    if not shown.strip() or server.returncode:
        return f"exit code {server.returncode}\n{shown}{errors}"
    return differs(expected, shown) if expected else ""


def _reads(read: Any, block: Block) -> str:
    try:
        read(block.text)
    except (ValueError, configparser.Error) as error:
        return str(error)
    return ""


def _yaml(block: Block, folder: Path) -> str:
    """Parse YAML with the reader of its kind: fault rules, scenario, tool config, formats,
    workflow, ..."""
    from sfusion.fakes.faults import parse_rules
    from sfusion.harness.lab.scenarios import parse_scenarios
    from sfusion.harness.lab.scenarios.model import Scenario
    from sfusion_tools.formats.declared import read_formats
    from sfusion_tools.tool_registry import initialize_tools_from_config

    try:
        data = yaml.safe_load(block.text)
        match data:
            case [{"what": _}, *_]:
                parse_rules(block.text)
            case {"scenario": _}:
                parse_scenarios(block.text, file=block.place, base=folder)
            case {"tools": list()}:
                initialize_tools_from_config(_saved(block, folder))
            case {"jobs": dict(jobs), **workflow}:
                return _workflow(jobs, workflow)
            case {"repos": list(repos)}:
                return _hooks(repos)
            case dict() if all(isinstance(one, dict) and "call" in one for one in data.values()):
                list(read_formats(_saved(block, folder)))
            case dict() if set(data) <= {*Scenario.model_fields, "matrix", "extends"}:
                whole = {
                    "scenario": "part",
                    "about": "x",
                    "promises": ["every_call_ends_once"],
                    **data,
                }
                if "rollouts" not in whole:
                    whole.setdefault("load", {"calls": 1})
                parse_scenarios(yaml.safe_dump(whole), file=block.place, base=folder)
            case _:
                return (
                    "neither fault rules, a scenario, a part of one, a tool config, "
                    "formats, a workflow, hooks"
                )
    except Exception as error:  # every error of a reader is a problem of the page
        return f"{type(error).__name__}: {error}"
    return ""


def _saved(block: Block, folder: Path) -> Path:
    """Write the block to a file."""
    file = folder / f"block_{block.line}.yaml"
    file.write_text(block.text, encoding="utf-8")
    return file


def _workflow(jobs: dict[str, Any], workflow: dict[Any, Any]) -> str:
    """Check a GitHub workflow: it has a trigger, each step does one thing and all ``sfusion``
    options exist."""
    if True not in workflow and "on" not in workflow:  # YAML 1.1 reads `on` as true
        return "a workflow without `on`"
    for name, job in jobs.items():
        if "runs-on" not in job:
            return f"job {name} does not say what it runs on"
        for step in job["steps"]:
            if ("uses" in step) == ("run" in step):
                return f"job {name}: a step has either `uses` or `run`: {step}"
            if wrong := _action(step):
                return f"job {name}: {wrong}"
            for line in str(step.get("run", "")).replace("\\\n", " ").splitlines():
                if wrong := _options(line.strip()):
                    return f"job {name}: {wrong}"
    return ""


def _action(step: dict[str, Any]) -> str:
    """Report inputs of a step that our own action does not have."""
    known = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    unknown = (
        set(step.get("with", {})) - set(known) if "/sfusion@" in step.get("uses", "") else set()
    )
    return f"our action has no input {', '.join(sorted(unknown))}" if unknown else ""


def _hooks(repos: list[dict[str, Any]]) -> str:
    """Report hooks of a pre-commit configuration that this repository does not have."""
    known = {
        hook["id"]
        for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    }
    unknown = {hook["id"] for repo in repos for hook in repo["hooks"]} - known
    return f"no hook is called {', '.join(sorted(unknown))}" if unknown else ""


def _options(line: str) -> str:
    """Report options of a line that the ``sfusion`` command does not have."""
    words = line.split()
    if words[:1] != ["sfusion"]:
        return ""
    known = _run(["bash", "-c", f"sfusion {words[1]} --help"], None)
    missing = [word for word in words if word.startswith("--") and word not in known.stdout]
    return f"sfusion {words[1]} has no {', '.join(missing)}" if known.returncode or missing else ""
