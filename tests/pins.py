"""Writes constraints.txt: the newest versions that pyproject.toml allows, for every Python that it
is tested with.

``tox -e pin`` runs it. Interpreters are found as ``python3.11`` and so on, unless arguments name
others.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import ROOT

CONSTRAINTS = ROOT / "constraints.txt"

HEAD = """\
# Exact versions of everything that the test command of README.md installs. Made by `tox -e pin`,
# which takes the newest versions that pyproject.toml allows; CONTRIBUTING.md, "Versions", says
# when. Do not edit.
"""


def project() -> dict[str, Any]:
    """What pyproject.toml states."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def supported(stated: Mapping[str, Any]) -> list[str]:
    """The Python versions of the classifiers, such as ``3.11``, oldest first."""
    found = re.findall(r"Python :: (3\.\d+)'", str(stated["project"]))
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def resolve(python: str, requirements: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The version of the interpreter, and of everything that pip would install with it into an
    empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--report",
            str(report),
        ]
        subprocess.run([*pip, *requirements], check=True)
        resolved = json.loads(report.read_text(encoding="utf-8"))
    # Only names and versions: the report also holds the addresses of the package index.
    every = {
        _canonical(one["metadata"]["name"]): one["metadata"]["version"]
        for one in resolved["install"]
    }
    return resolved["environment"]["python_version"], {
        name: every[name] for name in every if name != "sfusion"
    }


def lines(resolved: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The pins of these Pythons, oldest first, with a marker where they differ."""
    for name in sorted({name for pins in resolved.values() for name in pins}):
        pinned = [(python, pins[name]) for python, pins in resolved.items() if name in pins]
        groups = [
            [python for python, _ in group]
            for _, group in itertools.groupby(pinned, key=lambda one: one[1])
        ]
        for group, following in itertools.zip_longest(groups, groups[1:]):
            since = [f'python_version >= "{group[0]}"'] if group is not groups[0] else []
            until = [f'python_version < "{following[0]}"'] if following else []
            marker = " and ".join(since + until)
            yield f"{name}=={resolved[group[0]][name]}" + (f"; {marker}" if marker else "")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: Sequence[str]) -> None:
    stated = project()
    pythons = supported(stated)
    requirements = [
        f"{ROOT}[test]",
        "tox",
        *stated["build-system"]["requires"],
        "editables",  # hatchling asks for it when it builds an editable install
        *(text for group in stated["dependency-groups"].values() for text in group),
    ]
    found = dict(
        resolve(python, requirements)
        for python in arguments or [f"python{version}" for version in pythons]
    )
    if missing := [version for version in pythons if version not in found]:
        sys.exit(f"no interpreter was given for Python {', '.join(missing)}; nothing was written")
    text = HEAD + "".join(
        f"{line}\n" for line in lines({version: found[version] for version in pythons})
    )
    CONSTRAINTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
