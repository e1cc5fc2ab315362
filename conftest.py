"""What all tests share; at the top of the repository, so that a checkout runs its tests without
being installed."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import pytest
import typer.main

from sfusion_tools.sandbox.fleet import process_fleet

# An installed sfusion brings its pytest plugin along; in a bare checkout it is loaded from here.
_plugins = (
    () if entry_points(group="pytest11", name="sfusion") else ("sfusion.harness.pytest_plugin",)
)
pytest_plugins = ("tests.attacks.results", *_plugins)

# Before anything imports Ray: no telemetry, logs as they come.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

# Tests start hundreds of interpreters that import the same modules: compile each of these once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# xdist and GitHub set these, and what commands print would differ.
for _name in ("COLUMNS", "GITHUB_ACTIONS"):
    os.environ.pop(_name, None)

# Every run draws the same examples, however busy the machine is; what a random one finds would look
# like a flaky test.
with suppress(ImportError):  # the environments with verl do not have it
    from hypothesis import HealthCheck, settings

    quiet = [HealthCheck.too_slow]
    settings.register_profile(
        "same", derandomize=True, deadline=None, max_examples=40, suppress_health_check=quiet
    )
    # Forty fixed examples find nothing new: a weekly job draws others, and keeps those that fail in
    # its database.
    settings.register_profile(
        "random", deadline=None, max_examples=400, suppress_health_check=quiet, print_blob=True
    )
    settings.load_profile(os.environ.get("SFUSION_EXAMPLES", "same"))

    # It also draws constants that it finds in the modules loaded so far, which depend on the tests
    # that ran before.
    from hypothesis.internal.conjecture import providers

    providers._get_local_constants = lambda: providers._local_constants

# Shells start background jobs with Ctrl-C ignored, and every process that a test starts would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Looking for cycles every 700 objects is a twentieth of the processor time of all tests.
gc.set_threshold(20_000)

# Typer needs 0.1 s to build the command line, which it would do for every command that a test runs.
typer.main.get_command = cache(typer.main.get_command)  # type: ignore[assignment]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Three workers more than cores, because some wait: for Ray, for commands in other processes,
    and for the time limits of real programs."""
    return (
        None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else len(os.sched_getaffinity(0)) + 3
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.units import GroupsAndFiles

    if config.getvalue("dist") != "loadgroup":  # named on the command line
        return None
    config.option.loadscopereorder = (
        False  # by the number of tests, which says little about their time
    )
    return GroupsAndFiles(config, log)


def pytest_collection_finish() -> None:
    """Thousands of tests are there until the end; the garbage collector need not look at them
    again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quick_pytest() -> None:
    """A pytest that a test starts loads no plugins that are slow to import and have no part in
    the test."""
    unneeded = ("anyio", "cacheprovider", "faker", "hypothesispytest", "schemathesis")
    os.environ["PYTEST_ADDOPTS"] = " ".join(f"-p no:{name}" for name in unneeded)


@pytest.fixture(autouse=True)
def nothing_inherited() -> Iterator[None]:
    """A sandbox that gets the port of an earlier one must not inherit its reputation, nor a test
    another one's path."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    process_fleet().forget()
