"""The release workflow as far as it can run here: the check of the version, and its steps."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfusion_tools._version import __version__
from tests import ROOT

JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def step(job: str, name: str) -> dict[str, Any]:
    return next(each for each in JOBS[job]["steps"] if each.get("name") == name)


def compare_version(folder: Path, *, tag: str, changelog: str) -> bool:
    """Run the step that compares the version in a copy of what it reads; return if it passes."""
    (folder / "sfusion_tools").mkdir(exist_ok=True)
    version = (ROOT / "sfusion_tools" / "_version.py").read_text(encoding="utf-8")
    (folder / "sfusion_tools" / "_version.py").write_text(version, encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    script = step("build", "Compare the version with the tag and the changelog")["run"]
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "TAG": tag},
        check=False,
    )
    return done.returncode == 0


def test_a_tag_is_released_only_with_its_version_and_a_dated_entry(tmp_path: Path) -> None:
    heading = re.search(rf"(?m)^## {re.escape(__version__)} .*$", CHANGELOG)
    assert heading, f"CHANGELOG.md has no entry for {__version__}"
    dated = CHANGELOG.replace(heading[0], f"## {__version__} (2026-12-01)")
    undated = CHANGELOG.replace(heading[0], f"## {__version__} (unreleased)")
    tag = f"v{__version__}"
    assert compare_version(tmp_path, tag=tag, changelog=dated)
    assert not compare_version(tmp_path, tag=tag, changelog=undated)
    assert not compare_version(tmp_path, tag=f"{tag}.1", changelog=dated)


def test_what_is_released_is_what_ci_package_built_and_installed() -> None:
    build = step("build", "Build wheel and source archive, and install each from scratch")
    package = ROOT / build["run"]
    assert os.access(package, os.X_OK)
    assert 'twine" check --strict' in package.read_text(encoding="utf-8")
    for job in ("release", "publish"):
        assert JOBS[job]["needs"] == "build"
        (download,) = (each for each in JOBS[job]["steps"] if "download" in each.get("uses", ""))
        assert download["with"]["name"] == "dist"
        assert not any("checkout" in each.get("uses", "") for each in JOBS[job]["steps"])


@pytest.mark.parametrize("page", ["docs/ci.md", "docs/journal.md"])
def test_pages_name_the_version_that_there_is(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r'(?:sfusion-|"sfusion": ")(\d+\.\d+\.\d+)', text)
    assert named
    assert set(named) == {__version__}
