"""The python executor gives the recorded answers of the real server to the same programs and
notebooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from tests.fakes.sandbox.recordings import Recording, differences, recordings, replay


def in_one_notebook(records: list[Recording]) -> Iterator[Recording]:
    """Join the records of cells alone, whose answers do not depend on what ran before: a
    kernel's start takes 1 s."""
    plain = [one for one in records if list(one.request["json"]) == ["cells"]]
    cells = [cell for one in plain for cell in one.request["json"]["cells"]]
    first = plain[0].response["json"]
    config = json.loads(first["driver"]["stdout"].removeprefix("config: ")) | {"cells": cells}
    shown = f"config: \n{json.dumps(config, indent=2, ensure_ascii=False)}\n"
    outputs = [(at, cell) for one in plain for at, cell in enumerate(one.response["json"]["cells"])]
    answer = first | {
        "driver": first["driver"] | {"stdout": shown},
        "cells": [_renumbered(cell, at, now) for now, (at, cell) in enumerate(outputs)],
    }
    request = plain[0].request | {"json": {"cells": cells}}
    yield Recording("plain_cells", "run_jupyter", request, plain[0].response | {"json": answer})
    yield from (one for one in records if one not in plain)


def _renumbered(cell: dict[str, Any], at: int, now: int) -> dict[str, Any]:
    """Tracebacks have the number of the cell; before the first, the driver has run one of its
    own."""
    renumbered: dict[str, Any] = json.loads(
        json.dumps(cell).replace(f"In[{at + 2}]", f"In[{now + 2}]")
    )
    return renumbered


def with_more_slack(record: Recording) -> Recording:
    """Return it with almost the time that its cell sleeps, 10 s less than it has: the rest is
    for a kernel to start."""
    if record.id != "total_timeout_slack":
        return record
    answer = json.loads(
        json.dumps(record.response["json"]).replace(
            'total_timeout\\": 1.0', 'total_timeout\\": 3.9'
        )
    )
    asked = record.request["json"] | {"total_timeout": 3.9}
    return replace(
        record,
        request=record.request | {"json": asked},
        response=record.response | {"json": answer},
    )


PROGRAMS = list(recordings("run_code_python", "run_code_languages"))
NOTEBOOKS = list(map(with_more_slack, in_one_notebook(list(recordings("run_jupyter")))))

KNOWN_DIFFERENCES = {
    "run_jupyter/fetch_input_json": (
        "the record fetches main.py, the real driver's source; ours is another program"
    ),
}
"""Records with a different answer, and why."""
newer = (
    "the recorded machine's Python was older and words it otherwise; programs run in "
    "the Python that runs the fake"
)
if sys.version_info >= (3, 12):
    KNOWN_DIFFERENCES |= dict.fromkeys(
        ("run_code_python/syntax_warning", "run_code_languages/pytest_error"), newer
    )
if sys.version_info >= (3, 13):
    KNOWN_DIFFERENCES["run_code_python/tab_error"] = newer

ABSENT = {
    "go",
    "dotnet",
    "rustc",
    "lua",
    "dmd",
    "ruby",
    "julia",
    "kotlin",
    "lake",
    "swiftc",
    "racket",
    "jest",
}
"""Runtimes that the recorded machine did not have."""
NEEDED = {"cpp": "g++", "nodejs": "node", "perl": "perl", "missing": "npm"}
"""What some records need, by the prefix of their names."""

PATIENT = 5.0
"""Seconds until the limit of a program that does nothing for most of them."""
BUSY = re.compile(r"while *(\((true|1)\)|True:)").search

pytestmark = [
    pytest.mark.xdist_group("recorded programs"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"),
        reason="recorded on Linux, messages and limits included",
    ),
]


def recorded_path(folder: Path) -> str:
    """Return a PATH with the programs of this machine that the recorded one also had."""
    for directory in ("/usr/local/bin", "/usr/bin", "/bin"):
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            if name not in ABSENT and not (folder / name).is_symlink():
                (folder / name).symlink_to(os.path.join(directory, name))
    return os.pathsep.join((os.path.dirname(sys.executable), str(folder)))


TINY = "run_code_python/timeout_tiny"


def with_time_to_spare(record: Recording) -> Recording:
    """Return it with later limits, where its answer depends on how fast a program is: the recorded
    machine was idle.

    A program that ends may have a minute. One that prints something and then sleeps or blocks has
    some seconds for that, and so has one that prints something and is busy then. One with nearly
    no time waits before it prints, as a fast machine with many processors has ended it by then.
    """
    asked, answer = record.request["json"], record.response["json"]
    if record.name == TINY:
        asked = asked | {"code": f"import time; time.sleep(60); {asked['code']}"}
    limits: dict[str, float] = {}
    for step in ("compile", "run"):
        result = answer.get(f"{step}_result") or {"status": ""}
        limit = f"{step}_timeout"
        if result["status"] == "Finished":
            limits[limit] = max(asked.get(limit, 0), 60.0)
        elif result["status"] == "TimeLimitExceeded" and (result["stdout"] or answer["files"]):
            limits[limit] = PATIENT
    return replace(record, request=record.request | {"json": asked | limits})


def order(record: Recording) -> int:
    """Those that only wait come first: while they do, few others compete with those that have a
    second to begin."""
    asked = record.request["json"]
    if BUSY(asked["code"]):
        return 1
    return 0 if asked.get("run_timeout") == PATIENT else 2


def answers(
    records: list[Recording], executor: PythonExecutor, at_once: int
) -> dict[str, dict[str, Any]]:
    """Replay all records concurrently: many of them wait for a timeout."""
    with FakeSandbox(executor=executor) as sandbox, ThreadPoolExecutor(at_once) as pool:
        given = pool.map(lambda record: replay(sandbox.url, record), records)
        return {record.name: answer for record, answer in zip(records, given, strict=True)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = recorded_path(tmp_path_factory.mktemp("bin"))
    return answers(
        sorted(map(with_time_to_spare, PROGRAMS), key=order), PythonExecutor(path=path), 8
    )


@pytest.fixture(scope="module")
def notebooks() -> dict[str, dict[str, Any]]:
    pytest.importorskip("ipykernel")
    # A kernel's start is all work, for which one record leaves 10 s.
    return answers(NOTEBOOKS, PythonExecutor(), 2)


def check(record: Recording, given: dict[str, dict[str, Any]]) -> None:
    answer = given[record.name]
    if record.name == "run_code_python/mem_exceeded_list" and sys.version_info >= (3, 13):
        # It prints tracebacks with Python code, for which there may be no memory left: how much is
        # left depends on the machine.
        result = answer["json"]["run_result"]
        assert "MemoryError" in result["stderr"]
        result["stderr"] = record.response["json"]["run_result"]["stderr"]
    found = differences(record, answer)
    if record.name in KNOWN_DIFFERENCES:
        assert found, f"{record.name} is the same now: take it off the list of known differences"
    else:
        assert not found


@pytest.mark.parametrize("record", PROGRAMS, ids=lambda record: record.name)
def test_programs_run_as_recorded(record: Recording, programs: dict[str, dict[str, Any]]) -> None:
    needed = NEEDED.get(record.id.partition("_")[0])
    if needed and shutil.which(needed) is None:
        pytest.skip(f"this machine has no {needed}")
    check(record, programs)


@pytest.mark.parametrize("record", NOTEBOOKS, ids=lambda record: record.name)
def test_notebooks_run_as_recorded(record: Recording, notebooks: dict[str, dict[str, Any]]) -> None:
    check(record, notebooks)
