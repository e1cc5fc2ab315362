"""The wire on which processes tell their events, and the load in shorter time."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sfusion.fakes.faults import Distribution
from sfusion.harness.journal import Event
from sfusion.harness.scenarios.model import CancelPart, LoadPart
from sfusion.harness.scenarios.program import ProgramPart
from sfusion.harness.worlds import wire as wire_module
from sfusion.harness.worlds.scaling import ScaledWorkload
from sfusion.harness.worlds.wire import Gathering, Wire, WireRecorder
from sfusion.harness.worlds.workload import Workload


class Heard:
    """What a gathering told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.came: list[str] = []
        self.gone: asyncio.Queue[str] = asyncio.Queue()
        self.gathering = Gathering(
            self.events.append, came=lambda name, _: self.came.append(name), gone=self.gone.put_nowait
        )

    def wire(self) -> Wire:
        return self.gathering.wire({"127.0.0.1:8080": "sandbox-1"}, {"hunter2": "headers.Authorization"})


@asynccontextmanager
async def gathering() -> AsyncIterator[Heard]:
    heard = Heard()
    async with heard.gathering:
        yield heard


async def test_events_arrive_with_names_and_without_secrets() -> None:
    async with gathering() as heard:
        recorder = await asyncio.to_thread(WireRecorder, heard.wire(), "n1-w1")
        recorder.note("client", "attempt_started", endpoint="http://127.0.0.1:8080", note="hunter2")
        recorder.close()
        assert await heard.gone.get() == "n1-w1"
        assert heard.came == ["n1-w1"]
        (event,) = heard.events
        assert event["endpoint"] == "http://sandbox-1"
        assert event["note"] == "<secret>"
        assert event["leaked"] == ["headers.Authorization"]
        assert heard.gathering.clock_error == 0.0


async def test_a_line_cut_off_by_the_death_of_its_process_is_not_counted() -> None:
    async with gathering() as heard:
        wire = heard.wire()
        with socket.create_connection((wire.host, wire.port)) as process:
            process.sendall(json.dumps({"token": wire.token, "process": "n1-w1", "at": 0.0}).encode() + b"\n")
            process.sendall(b'{"at": 1, "source": "world", "event": "called"}\n{"at": 2, "source": "wor')
        assert await heard.gone.get() == "n1-w1"
        assert [event["event"] for event in heard.events] == ["called"]


@pytest.mark.parametrize(
    "hello", [b"", b"GET / HTTP/1.1\r\n\r\n", b'{"token": "guessed", "process": "n1-w1", "at": 0}\n']
)
async def test_a_stranger_is_not_heard(hello: bytes) -> None:
    async with gathering() as heard:
        wire = heard.wire()
        reader, writer = await asyncio.open_connection(wire.host, wire.port)
        writer.write(hello + b'{"at": 1, "source": "world", "event": "called"}\n')
        writer.write_eof()
        assert await reader.read() == b"", "hung up"
        writer.close()
        assert (heard.came, heard.events) == ([], [])


async def test_the_clock_of_another_machine_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events get the gathering machine's time, and the journal says how exact that is."""
    here = threading.get_ident()
    # In this test another thread is another machine, whose clock is a thousand seconds ahead.
    real = time.monotonic
    ahead = SimpleNamespace(monotonic=lambda: real() + (0.0 if threading.get_ident() == here else 1000.0))
    monkeypatch.setattr(wire_module, "time", ahead)

    def tell(wire: Wire) -> None:
        recorder = WireRecorder(wire, "n2-w1")
        recorder.note("world", "called", call="c1")
        recorder.close()

    async with gathering() as heard:
        await asyncio.to_thread(tell, replace(heard.wire(), machine="another one"))
        await heard.gone.get()
        now = real() - heard.gathering.zero
        error = heard.gathering.clock_error
        assert 0 < error < 500
        assert -error - 1e-5 <= heard.events[0]["at"] <= now + error + 1e-5


def test_a_scaled_load_is_the_same_load_in_shorter_time() -> None:
    load = LoadPart(
        calls=50,
        program=[ProgramPart(seconds=Distribution.model_validate({"uniform": [1, 9]}))],
        think=Distribution.model_validate({"uniform": [1, 2]}),
        cancel=CancelPart(share=0.5, after=Distribution.model_validate({"uniform": [1, 2]})),
    )
    whole, scaled = Workload(load, 7), ScaledWorkload(load, 7, 0.1, 30.0)
    for number in range(1, 51):
        assert scaled.written(number).seconds == pytest.approx(whole.written(number).seconds / 10, abs=1e-6)
        assert scaled.think(number) == pytest.approx(whole.think(number) / 10)
        after = whole.cancelled_after(number)
        assert scaled.cancelled_after(number) == (None if after is None else pytest.approx(after / 10))


def test_a_program_that_is_to_run_out_of_its_time_is_not_shortened() -> None:
    load = LoadPart(calls=1, program=[ProgramPart(seconds=Distribution(numbers=(40.0,)))])
    assert ScaledWorkload(load, 7, 0.1, 30.0).written(1).seconds == 40.0
    assert ScaledWorkload(load, 7, 0.1, 30.0).written(1).intent(30.0)["kind"] == "program_timeout"
