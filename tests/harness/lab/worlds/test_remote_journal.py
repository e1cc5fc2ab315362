"""The journal server that collects the events of other processes, and scaled workloads."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sfusion.fakes.faults import Distribution
from sfusion.harness.core.journal import Event
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.parts import CancelPart, LoadPart
from sfusion.harness.lab.scenarios.program import ProgramPart
from sfusion.harness.lab.worlds import recorder as remote_journal
from sfusion.harness.lab.worlds.calling import Workload
from sfusion.harness.lab.worlds.recorder import JournalAddress, JournalServer, RemoteRecorder


class Received:
    """A journal server and what it reported."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connected: list[str] = []
        self.has_connected = asyncio.Event()
        self.disconnected: asyncio.Queue[str] = asyncio.Queue()
        self.server = JournalServer(
            self.events.append,
            on_connect=self._on_connect,
            on_disconnect=self.disconnected.put_nowait,
        )

    def _on_connect(self, name: str, at: float) -> None:
        self.connected.append(name)
        self.has_connected.set()

    def address(self) -> JournalAddress:
        return self.server.address(
            {"127.0.0.1:8080": "sandbox-1"}, {"hunter2": "headers.Authorization"}
        )


@asynccontextmanager
async def journal_server() -> AsyncIterator[Received]:
    received = Received()
    async with received.server:
        yield received


async def test_events_arrive_with_names_and_without_secrets() -> None:
    async with journal_server() as received:
        recorder = await asyncio.to_thread(RemoteRecorder, received.address(), "n1-w1")
        recorder.note("client", "attempt_started", endpoint="http://127.0.0.1:8080", note="hunter2")
        recorder.note("client", "returned", pieces=["is hunter2", {"from": 1, "to": 9}])
        recorder.note("client", "returned", fields={"error": {"headers": ["hunter2"]}})
        recorder.close()
        assert await received.disconnected.get() == "n1-w1"
        assert received.connected == ["n1-w1"]
        event, in_pieces, in_fields = received.events
        assert event["endpoint"] == "http://sandbox-1"
        assert event["note"] == "<secret>"
        assert in_pieces["pieces"] == ["is <secret>", {"from": 1, "to": 9}]
        assert in_fields["fields"] == {"error": {"headers": ["<secret>"]}}
        assert [event["leaked"] for event in received.events] == [["headers.Authorization"]] * 3
        assert received.server.clock_error == 0.0


async def test_a_line_cut_off_by_the_death_of_its_process_is_dropped() -> None:
    async with journal_server() as received:
        address = received.address()
        with socket.create_connection((address.host, address.port)) as process:
            process.sendall(
                json.dumps({"token": address.token, "process": "n1-w1", "at": 0.0}).encode() + b"\n"
            )
            process.sendall(
                b'{"at": 1, "source": "world", "event": "called"}\n{"at": 2, "source": "wor'
            )
        assert await received.disconnected.get() == "n1-w1"
        assert [event["event"] for event in received.events] == ["called"]


async def test_what_processes_sent_before_they_ended_is_read_although_the_run_is_over() -> None:
    async with journal_server() as received:
        address = received.address()
        with socket.create_connection((address.host, address.port)) as process:
            process.sendall(
                json.dumps({"token": address.token, "process": "limiter", "at": 0.0}).encode()
                + b"\n"
            )
            await received.has_connected.wait()
            process.sendall(b'{"at": 1, "source": "limiter", "event": "expired"}\n' * 1000)
    assert len(received.events) == 1000


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_fork_that_lives_on_does_not_hide_the_end_of_its_parent() -> None:
    async with journal_server() as received:
        recorder = await asyncio.to_thread(RemoteRecorder, received.address(), "n1-w1")
        child = os.fork()
        if child == 0:
            signal.pause()
        recorder.close()
        try:
            async with asyncio.timeout(60):
                assert await received.disconnected.get() == "n1-w1"
        finally:
            os.kill(child, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, child, 0)


@pytest.mark.parametrize(
    "hello",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b'{"token": "guessed", "process": "n1-w1", "at": 0}\n'],
)
async def test_a_client_without_the_token_is_ignored(hello: bytes) -> None:
    async with journal_server() as received:
        address = received.address()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(hello + b'{"at": 1, "source": "world", "event": "called"}\n')
        writer.write_eof()
        assert await reader.read() == b"", "the connection was closed"
        writer.close()
        assert (received.connected, received.events) == ([], [])


async def test_events_of_another_machine_are_converted_to_the_clock_of_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal says how exact the conversion is."""
    here = threading.get_ident()
    # Here another thread plays another machine, whose clock is a thousand seconds ahead.
    real = time.monotonic
    ahead = SimpleNamespace(
        monotonic=lambda: real() + (0.0 if threading.get_ident() == here else 1000.0)
    )
    monkeypatch.setattr(remote_journal, "time", ahead)

    def send(address: JournalAddress) -> None:
        recorder = RemoteRecorder(address, "n2-w1")
        recorder.note("world", "called", call="c1")
        recorder.close()

    async with journal_server() as received:
        await asyncio.to_thread(send, replace(received.address(), machine="another one"))
        await received.disconnected.get()
        now = real() - received.server.zero
        error = received.server.clock_error
        assert 0 < error < 500
        assert -error - 1e-5 <= received.events[0]["at"] <= now + error + 1e-5


def test_a_scaled_load_makes_the_same_draws_with_shorter_durations() -> None:
    load = LoadPart(
        calls=50,
        program=[ProgramPart(seconds=Distribution.model_validate({"uniform": [1, 9]}))],
        think=Distribution.model_validate({"uniform": [1, 2]}),
        cancel=CancelPart(share=0.5, after=Distribution.model_validate({"uniform": [1, 2]})),
    )
    scenario = Scenario(scenario="scaled", about="shorter", seed=7, load=load)
    whole, scaled = Workload(scenario), Workload(scenario, 0.1)
    for number in range(1, 51):
        assert scaled.prepare(number).seconds == pytest.approx(
            whole.prepare(number).seconds / 10, abs=1e-6
        )
        assert scaled.think(number) == pytest.approx(whole.think(number) / 10)
        after = whole.cancelled_after(number)
        assert scaled.cancelled_after(number) == (
            None if after is None else pytest.approx(after / 10)
        )


def test_a_program_meant_to_exceed_its_timeout_is_not_shortened() -> None:
    load = LoadPart(calls=1, program=[ProgramPart(seconds=Distribution(numbers=(40.0,)))])
    scenario = Scenario(scenario="long", about="longer than its timeout", seed=7, load=load)
    assert Workload(scenario, 0.1).prepare(1).seconds == 40.0
    assert Workload(scenario, 0.1).prepare(1).intent(30.0)["kind"] == "program_timeout"
