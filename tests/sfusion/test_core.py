"""The core works without any extra, and what needs one says which and exits with code 3."""

from __future__ import annotations

import re
import signal
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests import ROOT
from tests.sfusion.installing import Environment

pytestmark = pytest.mark.xdist_group("wheel")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
USER_EXTRAS = sorted(set(EXTRAS) - {"all", "test"})
HERMES = (
    '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "print(1)"}}\n</tool_call>\n'
)
FAULTS = "- {first: 1, what: {status: 503}}\n"
WORKING = {
    "list": "throttled-gateway",
    "check scenarios": ": all valid",
    "explain in_flight_within_limit": "in_flight_within_limit",
    "parse --format hermes call.txt": "1 call",
}
"""Commands that need no extra, and what they print."""
MISSING = {
    "run --world ray single-node": "ray",
    "limiter": "ray",
    "run --sandbox docker single-node": "docker",
    "doctor docker": "docker",
    "view .": "view",
    "rollout --tokenizer . --out out": "hf",
}
"""Commands and the extra that each needs."""
TOOL = """\
import asyncio
from sfusion import FakeSandbox
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

async def main():
    async with FakeSandbox(executor="python") as sandbox:
        tool = SandboxFusionTool({"sandbox_fusion_url": sandbox.url, "limiter": "local"})
        trajectory, _ = await tool.create()
        response, _, metrics = await tool.execute(trajectory, {"code": "print(6 * 7)"})
        await tool.release(trajectory)
        print(response.text.strip(), metrics["outcome"])

asyncio.run(main())
"""


def test_core_install_has_no_extras(core: Environment, tmp_path: Path) -> None:
    code = (
        "from importlib.util import find_spec\n"
        "extras = ('ray', 'faker', 'docker', 'textual', 'transformers', 'ipykernel')\n"
        "print([name for name in extras if find_spec(name)])"
    )
    assert core.python(code, cwd=tmp_path) == "[]"


def test_bundled_scenarios_run_without_extras(core: Environment, tmp_path: Path) -> None:
    done = core.run("sfusion", "run", "-k", "rotten or single-node", "--out", "runs", cwd=tmp_path)
    assert re.search(r"\d+ runs: every promise held", done.stdout)
    assert (tmp_path / "runs" / "single-node" / "report.html").is_file()


@pytest.fixture(scope="module")
def ended(
    core: Environment, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, subprocess.CompletedProcess[str]]:
    """How these commands ended, all run by one process."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "call.txt").write_text(HERMES)
    (folder / "scenarios").symlink_to(core.packages / "sfusion" / "scenarios")
    commands = [*WORKING, *MISSING]
    return dict(zip(commands, core.sfusion(*map(str.split, commands), cwd=folder), strict=True))


@pytest.mark.parametrize("command", WORKING)
def test_list_check_explain_and_parse_work_without_extras(
    command: str, ended: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    assert (ended[command].returncode, ended[command].stderr) == (0, "")
    assert WORKING[command] in ended[command].stdout


def test_tool_and_local_limiter_work_without_extras(core: Environment, tmp_path: Path) -> None:
    assert core.python(TOOL, cwd=tmp_path) == "42 ok"


def test_serve_sglang_works_without_extras(core: Environment, tmp_path: Path) -> None:
    with _served(core, tmp_path, "serve", "sglang", "--port", "0") as url:
        assert urllib.request.urlopen(url + "/health").status == 200


def test_serve_sandbox_and_proxy_work_without_extras(core: Environment, tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(FAULTS)
    with (
        _served(core, tmp_path, "serve", "sandbox", "--port", "0") as behind,
        _served(core, tmp_path, "proxy", behind, "--port", "0", "--faults", "faults.yaml") as url,
    ):
        assert urllib.request.urlopen(url + "/v1/ping").read() == b'"pong"'


@pytest.mark.parametrize("command", MISSING)
def test_missing_extras_are_named_with_exit_code_3(
    command: str, ended: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    done = ended[command]
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"pip install 'sfusion[{MISSING[command]}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_pytest_plugin_imports_nothing_heavy(core: Environment, tmp_path: Path) -> None:
    """The plugin is imported at every start of pytest; benchmarks measure its time, this counts its
    modules."""
    code = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import sfusion.harness.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    loaded = core.python(code, cwd=tmp_path)
    ours = [
        "sfusion",
        "sfusion.harness",
        "sfusion.harness.pytest_plugin",
        "sfusion_tools",
        "sfusion_tools._lazy",
    ]
    assert loaded == str(ours)


def test_the_lowest_versions_are_those_that_the_project_states() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    stated = [
        *project["dependencies"],
        *(text for name in extras if name not in ("all", "test") for text in extras[name]),
    ]
    pinned = [
        line
        for line in (ROOT / "lowest.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert pinned == sorted(text.partition(",")[0].replace(">=", "==") for text in stated)


def test_extra_all_includes_every_user_extra() -> None:
    assert EXTRAS["all"] == [f"sfusion[{','.join(USER_EXTRAS)}]"]


class _served:
    """A server started by a command; gives the URL that it prints."""

    def __init__(self, core: Environment, folder: Path, *arguments: str) -> None:
        self._command = [str(core.bin / "sfusion"), *arguments]
        self._folder = folder

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"http://[\w.]+:\d+", line):
                return found.group()
        raise AssertionError(
            f"{self._command} ended with {self._process.wait()} and printed no address"
        )

    def __exit__(self, *exc: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
