"""Files of strangers: whatever is in them, each reader answers or refuses with an error of ours,
and never hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sfusion.fakes.errors import FakeError
from sfusion.fakes.faults import load_rules
from sfusion.fakes.sandbox.executors.recorded import Cassette
from sfusion.fakes.sglang import ScriptedPolicy
from sfusion.harness.cli import app
from sfusion.harness.core.dumps.sample import open_dump
from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import HarnessError
from sfusion.harness.lab.runs import Task, run_one, write_run
from sfusion.harness.lab.runs.directory import read_run
from sfusion.harness.lab.scenarios import parse_scenarios, read_scenarios
from sfusion.harness.real.drift.judging import recorded_answers
from sfusion.harness.real.probes.cassette import read_recording
from sfusion.harness.real.probes.model import bundled_probes
from sfusion.harness.search.hunt.corpus import _VERSION, HUNT, Corpus
from sfusion.harness.search.hunt.hunt import Hunt
from sfusion_tools.errors import SfusionError
from sfusion_tools.tool_registry import read_entries

pytestmark = pytest.mark.xdist_group("hostile files")

OURS = (FakeError, HarnessError, SfusionError)
SCENARIO = """\
scenario: small
about: A small one.
load: {calls: 2, program: {prints: "{call}"}}
promises: [every_call_ends_once]
"""
RULES = (
    '- {name: a, code: "x+", first: 3, what: {status: 503, body: "{}"}}\n- {what: '
    "{delay: {uniform: [1, 2]}}}\n"
)
TOOLS = (
    "tools: [{class_name: a.B, config: {rate_limit: 3}, tool_schema: {type: function, "
    "function: {name: f}}}]\n"
)
SCRIPT = (
    'turns: [hello, {tool_result: "a.*b", say: hi, calls: [{name: f, arguments: {x: '
    "1}}]}]\notherwise: bye\n"
)
PROBES = (
    "about: Ten letters.\nprobes: [{id: a, about: A probe of the server., request: "
    "{path: /x, json: {}}}]\n"
)
RECORD = {
    "group": "results",
    "id": "exit-3",
    "request": {
        "method": "POST",
        "path": "/run_code",
        "headers": {"Content-Type": "application/json"},
        "json": {"code": "1"},
    },
    "response": {
        "status": 200,
        "headers": [["server", "uvicorn"]],
        "json": {"status": "Success", "run_result": None},
    },
    "elapsed_s": 0.1,
}
RECORDING = json.dumps({"cassette": {"format": 1}}) + "\n" + json.dumps(RECORD) + "\n"
TALLY = {"cases": 1, "strikes": {"a b": 1}, "states": {}, "outcomes": {}, "events": {}}
HEAD = json.dumps({"version": _VERSION, "seed": 0, "tools": ""}) + "\n"
CASE = {
    "number": 0,
    "digest": "d",
    "data": {},
    "origin": "new",
    "promises": ["every_call_ends_once"],
}
FOUND = [{"how": {"promise": "p", "kind": "k", "identity": {}, "details": {}}, "sentence": "s"}]
BATCH = (
    json.dumps({"cases": [CASE | {"behaviour": ["b"], "findings": FOUND}], "tally": TALLY}) + "\n"
)
SAMPLE = json.dumps({"input": "user\nhi\nassistant\n", "output": "4", "score": 1, "step": 1}) + "\n"


def _whole_dump(path: Path) -> None:
    for step in open_dump(path):
        while step.index.extend():
            pass
        for number in range(len(step)):
            sample = step.sample(number)
            assert sample.preview is not None
            assert sample.tags is not None


@cache
def _run_files() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        run = write_run(run_one(Task(parse_scenarios(SCENARIO)[0], "sim")), Path(folder))
        return {path.name: path.read_bytes() for path in run.iterdir()}


def _read_run_with(name: str) -> Callable[[Path], Any]:
    def read(path: Path) -> None:
        files = {**_run_files(), name: path.read_bytes()}
        for other, content in files.items():
            path.with_name(other).write_bytes(content)
        read_run(path.parent)

    return read


def _resume(path: Path) -> None:
    path.with_name(HUNT).write_bytes(path.read_bytes())
    with Corpus(path.parent, "") as corpus:
        corpus.resume(Hunt(0))


READERS: dict[str, tuple[Callable[[], str | bytes], Callable[[Path], Any]]] = {
    "scenario.yaml": (lambda: SCENARIO, read_scenarios),
    "rules.yaml": (lambda: RULES, load_rules),
    "tools.yaml": (lambda: TOOLS, read_entries),
    "script.yaml": (lambda: SCRIPT, ScriptedPolicy.load),
    "script.json": (lambda: json.dumps(["hello", {"turn": 1, "say": "hi"}]), ScriptedPolicy.load),
    "cassette.jsonl": (lambda: RECORDING, Cassette.load),
    "recording.jsonl": (
        lambda: RECORDING,
        lambda path: recorded_answers(read_recording(path), bundled_probes(), name="it"),
    ),
    "1.jsonl": (lambda: SAMPLE, _whole_dump),
    "journal": (lambda: _run_files()["journal.ndjson"], Journal.read),
    "a run's journal": (lambda: _run_files()["journal.ndjson"], _read_run_with("journal.ndjson")),
    "a run's verdict": (lambda: _run_files()["verdict.json"], _read_run_with("verdict.json")),
    "a hunt's batches": (lambda: HEAD + BATCH, _resume),
    "a run's scenario": (lambda: _run_files()["scenario.yaml"], _read_run_with("scenario.yaml")),
}

_ODD = st.sampled_from(
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"-1",
        b"NaN",
        b"1e400",
        b"9" * 400,
        b'"x"',
        b"true",
        b"\xff",
        b"\x00",
        b"&a [*a]",
        b"[" * 2000,
        b'{"a":' * 2000,
        b"\n",
        b"0x" + b"f" * 500,
        b"!!python/name:os.system",
        b"\\ud800",
        b"<<: 1",
    ]
)


@st.composite
def _damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """A good file that is cut off, or has one token replaced."""
    words = [place for place in range(len(good)) if not good[place : place + 1].isalnum()]
    start = draw(st.sampled_from([0, *words]))
    end = draw(st.sampled_from([place for place in (*words, len(good)) if place >= start][:3]))
    if draw(st.booleans()):
        return good[:start]
    return (
        good[:start]
        + draw(st.sampled_from([b"", b" ", good[start : start + 1]]))
        + draw(_ODD)
        + good[end:]
    )


@pytest.mark.parametrize("name", READERS)
def test_a_good_file_is_read(name: str, tmp_path: Path) -> None:
    good, read = READERS[name]
    content = good()
    path = tmp_path / name.replace(" ", "-")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    read(path)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=15)
def test_a_damaged_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    good, read = READERS[name]
    content = good()
    damaged = data.draw(_damaged(content.encode() if isinstance(content, str) else content))
    with TemporaryDirectory() as folder:
        path = Path(folder, name.replace(" ", "-"))
        path.write_bytes(damaged)
        with suppress(*OURS):
            read(path)


# The dumps of a training are indexed block by block, so that they may be larger than memory.
@pytest.mark.parametrize(
    "name", [name for name in READERS if name != "1.jsonl" and "'s " not in name]
)
def test_an_endless_file_is_not_read_to_its_end(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with path.open("wb") as sparse:
        sparse.truncate(1 << 36)
    with pytest.raises(OURS, match="the most that is read") as refused:
        READERS[name][1](path)
    assert isinstance(refused.value, FakeError | HarnessError | SfusionError)
    assert refused.value.exit_code == 2


@given(
    line=_damaged(
        json.dumps(
            {"id": 1, "format": "hermes", "text": '<tool_call>{"name": "f"}</tool_call>'}
        ).encode()
    )
)
@settings(max_examples=15)
def test_a_damaged_line_for_parse_is_read_or_refused(line: bytes) -> None:
    result = CliRunner().invoke(app, ["parse", "--jsonl"], input=line)
    assert result.exit_code in (0, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)
