"""A user's project: scenarios, a test, and unrelated YAML files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml  # noqa: F401 # pytester forgets what a run imported, and libyaml cannot be imported twice

QUIET = """\
scenario: quiet
about: Two callers, nothing fails.
seed: 3
load: {calls: 6, concurrency: 2}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""
LOUD = """\
scenario: loud
about: The sandbox is down, but the promise expects success.
seed: 4
tools: {max_attempts: 2}
sandbox:
  faults: [{name: down, what: {status: 503}}]
load: {calls: 3, concurrency: 1}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""
CELLS = """\
scenario: cells
about: One file, three cells.
matrix: {tools.rate_limit: [1, 2, 3]}
load: {calls: 4, concurrency: 4}
promises: [in_flight_within_limit]
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    folder = pytester.mkdir("scenarios")
    (folder / "quiet.yaml").write_text(QUIET)
    (folder / "cells.yml").write_text(CELLS)
    (folder / "_base.yaml").write_text(QUIET.replace("quiet", "base"))
    (folder / "values.yaml").write_text("scenario: {of: another kind}\n")
    (pytester.path / "deploy.yaml").write_text("kind: Deployment\nspec: {}\n")
    (pytester.path / "test_own.py").write_text("def test_own():\n    pass\n")
    return pytester.path


OTHERS = ["-W", "error"]
"""Disables plugins that are not under test, some of which take seconds to import."""
for name in ("anyio", "asyncio", "cacheprovider", "faker", "hypothesispytest", "schemathesis"):
    OTHERS += ["-p", f"no:{name}"]


@pytest.fixture
def run_pytest(pytester: pytest.Pytester) -> Run:
    """Run pytest in this process."""
    return lambda *arguments: pytester.runpytest_inprocess(*OTHERS, *arguments)


@pytest.fixture
def run_apart(pytester: pytest.Pytester) -> Run:
    """Run pytest in a new process."""
    return lambda *arguments: pytester.runpytest_subprocess(*OTHERS, *arguments)
