"""Builds archives of this checkout, and environments that contain only the given requirements."""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests import ROOT


def build(kind: str, out: Path, source: Path = ROOT) -> Path:
    """Build the ``wheel`` or the ``sdist`` of a checkout, without fetching anything."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = [
        path
        for path in out.iterdir()
        if path.name.endswith(".whl" if kind == "wheel" else ".tar.gz")
    ]
    return archive


class Environment:
    """A virtual environment whose packages are links to those of this one: quick to make, and
    nothing else is there."""

    def __init__(self, folder: Path, requirements: Iterable[str]) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.bin = folder / "bin"
        self.packages = (
            folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        )
        for one in _closure(requirements):
            self._link(one)

    def _link(self, one: Distribution) -> None:
        roots = {file.parts[0] for file in one.files or () if ".." not in file.parts}
        for name in roots - {"__pycache__"}:
            there = Path(str(one.locate_file(name)))
            here = self.packages / name
            if there.exists() and not here.exists():
                here.symlink_to(there)
        for script in one.entry_points.select(group="console_scripts"):
            file = self.bin / script.name
            lines = [
                f"#!{self.bin / 'python'}",
                "import sys",
                f"from {script.module} import {script.attr} as main",
            ]
            file.write_text("\n".join([*lines, "sys.exit(main())", ""]))
            file.chmod(0o755)

    def install(self, *what: str) -> None:
        """Install a wheel or ``-e FOLDER`` without its dependencies."""
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(self.bin / "python"),
            "install",
            "--no-deps",
            "--no-index",
        ]
        done = subprocess.run([*pip, "--no-build-isolation", *what], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def run(self, *command: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of this environment, apart from this process' own settings."""
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=cwd,
            capture_output=True,
            text=True,
            env=_environment(),
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def sfusion(
        self, *commands: Sequence[str], cwd: Path
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run commands one after the other, forked from one process: importing takes longer than
        most of them."""
        done = subprocess.run(
            [str(self.bin / "python"), "-c", _FORKS, json.dumps(commands)],
            cwd=cwd,
            capture_output=True,
            text=True,
            env=_environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [
            subprocess.CompletedProcess(words, *ended)
            for words, ended in zip(commands, json.loads(done.stdout), strict=True)
        ]

    def python(self, code: str, *, cwd: Path) -> str:
        """Run a few lines of Python and return what they print."""
        return self.run("python", "-c", code, cwd=cwd).stdout.strip()


_FORKS = """\
import functools, json, os, sys, tempfile
import typer.main
import sfusion.harness.lab.commands.run
from sfusion.harness.cli import app, main

typer.main.get_command = functools.cache(typer.main.get_command)
typer.main.get_command(app)

ended = []
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if not pid:
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = ["sfusion", *words]
            sys.exit(main())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        printed = [os.pread(file.fileno(), 1_000_000, 0).decode() for file in (out, errors)]
        ended.append([code, *printed])
print(json.dumps(ended))
"""


def _environment() -> dict[str, str]:
    """Return the environment without settings of this process."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "COV"))
    }
    return {**kept, "NO_COLOR": "1", "COLUMNS": "120"}


def _closure(requirements: Iterable[str]) -> list[Distribution]:
    """The distributions that these requirements need, directly and indirectly, without optional
    ones."""
    found: dict[str, Distribution] = {}
    todo = [(Requirement(text), frozenset[str]()) for text in requirements]
    while todo:
        requirement, extras = todo.pop()
        marker = requirement.marker
        if marker is not None and not any(
            marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            continue
        one = distribution(requirement.name)
        name = one.metadata["Name"].lower()
        if name in found and not requirement.extras:
            continue
        found[name] = one
        todo += [(Requirement(text), frozenset(requirement.extras)) for text in one.requires or ()]
    return list(found.values())


def core_requirements(wheel: Path) -> list[str]:
    """What the wheel requires without any extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    return [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
