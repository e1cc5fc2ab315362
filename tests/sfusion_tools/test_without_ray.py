"""Ray is optional: without it everything imports, the local limiter works, and what needs Ray names
the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.sfusion_tools.test_imports import NAMES_THAT_STAY, PACKAGES
from tests.warm import warm

NO_RAY = """if True:
    import sys

    class NoRay:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "ray":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, NoRay())
"""
HINT = "pip install 'sfusion[ray]'"


def python(
    program: str, *arguments: str, interpreter: str | Path = sys.executable
) -> subprocess.CompletedProcess[str]:
    command = [interpreter, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def without_ray(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter in which Ray cannot be imported, and has not been: the warm
    one has all else."""
    return python(NO_RAY + "\n" + program, *arguments, interpreter=warm("python"))


def test_all_public_names_can_be_imported_without_ray() -> None:
    lines = [f"import {package}" for package in PACKAGES]
    lines += [
        (
            "import sfusion_tools.reward, sfusion_tools.limiter.ray_limiter, "
            "sfusion_tools.limiter.record"
        )
    ]
    lines += [
        f"from {module} import {', '.join(names)}" for module, names in NAMES_THAT_STAY.items()
    ]
    done = python(NO_RAY + "\n" + "\n".join(lines))
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_does_not_import_ray() -> None:
    modules = [*PACKAGES, *NAMES_THAT_STAY, "sfusion_tools.reward", "sfusion.harness.cli"]
    done = python(
        f"import sys\nfor one in {modules}:\n    __import__(one)\n    assert 'ray' not in "
        "sys.modules, one"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("limiter", "warns"), [("auto", True), ("local", False)])
def test_the_tool_works_without_ray(limiter: str, warns: bool) -> None:
    done = without_ray(
        """if True:
        import asyncio
        from sfusion.fakes.sandbox import FakeSandbox
        from sfusion_tools import SandboxFusionTool

        async def main():
            async with FakeSandbox() as sandbox:
                config = {"sandbox_fusion_url": sandbox.url, "limiter": sys.argv[1]}
                tool = SandboxFusionTool(config)
                code = '1  # sfusion:call=x prints="3"'
                response, _, metrics = await tool.execute("x", {"code": code})
                print(response.text, metrics["outcome"], "ray" in sys.modules)

        asyncio.run(main())
        """,
        limiter,
    )
    assert done.stdout == "3 ok False\n", done.stderr
    warning = "Ray is not running here, so rate_limit 10 holds for this process only"
    assert (warning in done.stderr) is warns


@pytest.mark.parametrize(
    ("use", "needed_by"),
    [
        (
            "SandboxFusionTool({'sandbox_fusion_url': 'http://127.0.0.1:1', 'limiter': 'ray'})",
            "limiter: ray",
        ),
        (
            "TokenBucketWorker.options(name='x', get_if_exists=True).remote(3)",
            "a limiter for the whole cluster",
        ),
        ("TokenBucketWorker.remote()", "a limiter for the whole cluster"),
        ("init_execution_pool(2)", "init_execution_pool"),
        ("ExecutionWorker()", "a limiter for the whole cluster"),
    ],
)
def test_what_needs_ray_raises_missing_extra(use: str, needed_by: str) -> None:
    done = without_ray(
        f"""if True:
        from sfusion_tools.errors import MissingExtra
        from sfusion_tools.sandbox_fusion_tools import *
        try:
            {use}
        except MissingExtra as error:
            print(error)
        """
    )
    assert (
        done.stdout
        == f"{needed_by} needs an extra that is not installed (No module named 'ray'): {HINT}\n"
    )
    assert done.stderr == ""


def test_an_execution_worker_without_a_limiter_does_not_need_ray() -> None:
    done = without_ray(
        """if True:
        from sfusion_tools.sandbox_fusion_tools import ExecutionWorker
        worker = ExecutionWorker(enable_global_rate_limit=False)
        print(worker.execute(lambda left, right: left + right, 1, 2))
        """
    )
    assert done.stdout == "3\n", done.stderr


def test_a_tool_config_that_asks_for_ray_raises_missing_extra(tmp_path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(
        """
        tools:
          - class_name: sfusion_tools.sandbox_fusion_tools.SandboxFusionTool
            config: {sandbox_fusion_url: "http://127.0.0.1:1", limiter: ray}
        """
    )
    done = without_ray(
        """if True:
        from sfusion_tools import initialize_tools_from_config
        from sfusion_tools.errors import MissingExtra
        try:
            initialize_tools_from_config(sys.argv[1])
        except MissingExtra as error:
            print(error.exit_code, error)
        """,
        str(config),
    )
    assert done.stdout.startswith("3 limiter: ray needs an extra"), done.stderr
    assert HINT in done.stdout


@pytest.mark.parametrize("command", [[], ["--resize", "3"], ["--remove"]])
def test_the_limiter_command_exits_with_3_and_names_the_extra(command: list[str]) -> None:
    done = without_ray("from sfusion.harness.cli import main\nmain()", "limiter", *command)
    assert done.returncode == 3
    assert "sfusion limiter needs an extra that is not installed" in done.stderr
    assert HINT in done.stderr
