"""Bytes of strangers: no parser crashes, hangs or takes more than linear time. ``with_atheris.py``
looks deeper."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from tests.fuzz import targets
from tests.fuzz.targets import TARGETS, http_requests, journal_reader

SCENARIO = b"""scenario: x
about: y
tools: {rate_limit: 3}
sandbox: {faults: [{name: a, every: 2, phase: after, what: {status: 503, retry_after: 1}}],
  model: {kind: quota, in_flight: 8}}
load: &l {calls: 8, concurrency: 2, program: [{seconds: {uniform: [0.1, 1]}, prints: "{call}\\n"}]}
events: [{at: 1s, kill: n1-w1}]
promises: [no_stall, {outcomes: {ok: all}}]
"""
JOURNAL = b"""{"journal":2,"scenario":"x","cell":"","seed":0,"world":"sim"}
{"at":0.5,"source":"world","event":"began","workers":["n1-w1"],"limit":null}
{"at":1e3,"source":"server","event":"arrived","call":"c0001","attempt":1}
"""
REQUEST = (
    b"POST /run_code HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
    b'35\r\n\r\n{"code":"x","language":"python"}   '
)
CHUNKED = (
    b"POST /run_code HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
    b"chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
)
CALLS = (
    b'\x03Hm. <tool_call>{"name": "code_interpreter", "arguments": {"code": "print(1)\\n"}}'
    b'</tool_call>\n[TOOL_CALLS][{"name": "a", "arguments": {}}]'
    b'<|python_tag|>{"name": "b", "parameters": {"k": [1, {}]}}'
)
SAMPLES = {
    "yaml_loader": [
        SCENARIO,
        b"a: &a [1, *a]\n",
        b"? [x]\n: !!python/name:os.system\n---\n%YAML 9.9\n",
    ],
    "scenario_reader": [SCENARIO],
    "fault_rules": [
        b"- {first: 3, what: {status: 503}}\n",
        b"faults: [{code: '(a+)+$', what: hang}]\n",
    ],
    "journal_reader": [JOURNAL],
    "tool_calls": [CALLS],
    "http_requests": [REQUEST, CHUNKED, REQUEST + CHUNKED],
}
SPLICES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b": ",
            b"{",
            b"[",
            b"}",
            b"]",
            b'"',
            b"\\",
            b"*l",
            b"&l ",
            b"<<: ",
            b"1e999",
            b"-0",
            b"\xff",
            b"\xed\xa0\x80",
            b"NaN",
            b"null",
            b"\x00",
            b"9" * 30,
            b"Content-Length: 1\r\n",
            b"\r\n\r\n",
            b"</tool_call>",
        ]
    ),
)


@st.composite
def damaged(draw: Any, name: str) -> bytes:
    """A sample with some bytes replaced, doubled or left out."""
    data: bytes = draw(st.sampled_from(SAMPLES[name]))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 12)))
        piece = draw(SPLICES) if draw(st.booleans()) else data[at:until] * 2
        data = data[:at] + piece + data[until:]
    return data


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "http_requests"])
def test_damaged_input_is_read_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_FILE", tmp_path / "journal")
    target = partial_journal(tmp_path) if name == "journal_reader" else TARGETS[name]
    seen: set[bool] = set()

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(damaged(name))
    def check(data: bytes) -> None:
        seen.add(bool(target(data)))

    check()
    assert True in seen, "everything was refused: the samples are no longer valid"


def partial_journal(folder: Path) -> Callable[[bytes], int]:
    return lambda data: journal_reader(data, folder / "journal")


def test_damaged_requests_are_answered_or_closed_and_the_next_client_is_served() -> None:
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(damaged("http_requests"))
    def check(data: bytes) -> None:
        http_requests(data)

    check()
    assert http_requests(REQUEST + REQUEST) == 2


def steps(work: Callable[[bytes], Any], data: bytes) -> int:
    """How many functions are called and returned from while ``work`` runs."""
    count = 0

    def profile(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    gc.disable()  # what other tests have left is not counted
    sys.setprofile(profile)
    try:
        work(data)
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


GROWING: dict[str, Callable[[int], bytes]] = {
    "yaml_loader-list": lambda n: b"- {a: 1}\n" * n,
    "yaml_loader-brackets": lambda n: b"[" * n,
    "yaml_loader-aliases": lambda n: (
        b"a: &a [1]\n" + b"".join(b"k%d: *a\n" % one for one in range(n))
    ),
    "scenario_reader-rules": lambda n: (
        SCENARIO + b"sandbox: {faults: [" + b"{what: hang}," * n + b"]}\n"
    ),
    "scenario_reader-unknown": lambda n: (
        SCENARIO + b"".join(b"key%d: 1\n" % one for one in range(n))
    ),
    "fault_rules-rules": lambda n: b"- {what: hang}\n" * n,
    "journal_reader-events": lambda n: JOURNAL + b'{"at":1,"source":"a","event":"b"}\n' * n,
    "journal_reader-one-line": lambda n: (
        JOURNAL + b'{"at":1,"source":"a","event":"b","x":' + b"[" * n
    ),
}


@pytest.mark.parametrize("name", GROWING)
def test_twice_the_input_is_at_most_twice_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = (
        partial_journal(tmp_path) if name.startswith("journal") else TARGETS[name.partition("-")[0]]
    )
    target(GROWING[name](50))  # what is made on first use
    one, two, four = (steps(target, GROWING[name](50 * factor)) for factor in (1, 2, 4))
    assert four - two <= 2.2 * (two - one) + 200


def test_pipelined_requests_are_at_most_linear_work() -> None:
    def serve(data: bytes) -> None:
        async def run() -> None:
            async with FakeSandbox() as sandbox:
                await targets._exchange(sandbox.port, data)

        run_virtually(run())

    ping = b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
    serve(ping)
    one, two, four = (steps(serve, ping * count) for count in (10, 20, 40))
    assert four - two <= 2.4 * (two - one) + 2000
