"""Output is cut, lost and blocked like on the real server."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.sandbox.executors.python import PythonExecutor, output, packets
from sfusion.fakes.sandbox.executors.python.output import decoded
from sfusion.fakes.sandbox.executors.python.packets import (
    PACKET,
    as_here,
    bytes_waiting,
    is_large_write,
    packet_cost,
)
from sfusion_tools.output_sizes import PIPE_BYTES
from tests.fakes.sandbox.executors.calls import ran
from tests.sfusion_tools.sandbox.helpers import until

linux = pytest.mark.skipif(not as_here(), reason="these are the limits of Linux's sockets")
LIMIT = {"Finished": 60.0, "TimeLimitExceeded": 5.0}
"""Seconds that a program is given which should end like this."""

Capture = tuple[output.PacketCapture, int]


@pytest.fixture
async def capture() -> AsyncIterator[Capture]:
    """What a program writes to the descriptor is captured by the stream."""
    stream = output.PacketCapture(asyncio.get_running_loop())
    writer = os.dup(stream.fileno())
    yield stream, writer
    os.close(writer)
    stream.close()


@linux
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("written", "status", "kept"),
    [
        (219_263, "Finished", 219_263),
        (219_264, "Finished", 219_264),
        (219_265, "Finished", 219_264),
        (438_528, "Finished", 219_264),
        (438_529, "TimeLimitExceeded", 219_264),
    ],
)
async def test_one_large_write_is_cut_like_on_the_real_server(
    executor: PythonExecutor, stream: str, written: int, status: str, kept: int
) -> None:
    # A write that waits is cut short if the machine stops the program for a moment.
    code = (
        f"import os\nx = b'x' * {written}\nwhile x: x = x[os.write({1 + (stream == 'stderr')}, x):]"
    )
    result = await ran(executor, code, run_timeout=LIMIT[status])
    assert (result.status, len(getattr(result, stream))) == (status, kept)


@linux
@pytest.mark.parametrize(
    ("size", "status", "kept"),
    [
        (131_000, "Finished", 131_000),
        (150_000, "Finished", 136_000),
        (320_000, "Finished", 136_000),
        (340_000, "TimeLimitExceeded", 136_000),
    ],
)
async def test_small_writes_are_cut_like_on_the_real_server(
    executor: PythonExecutor, size: int, status: str, kept: int
) -> None:
    # The seventeenth write is the first to pass 131,072 bytes.
    code = (
        f"import os\nfor at in range(0, {size}, 8_000): os.write(1, b'x' * min(8_000, {size} - at))"
    )
    result = await ran(executor, code, run_timeout=LIMIT[status])
    assert (result.status, len(result.stdout or "")) == (status, kept)


@linux
async def test_what_python_buffers_decides_where_its_lines_are_cut(
    executor: PythonExecutor,
) -> None:
    """Programs run on the fake's Python: 3.13 writes nine such lines at a time, older ones
    eight."""
    result = await ran(
        executor, "import sys\nfor _ in range(150): sys.stdout.write('x' * 999 + '\\n')"
    )
    assert len(result.stdout or "") == (135_000 if sys.version_info >= (3, 13) else 136_000)


@linux
@pytest.mark.parametrize("read_in_time", [0, 13, 14, 15, 16])
@pytest.mark.parametrize(("each", "kept", "in_buffer"), [(8_000, 17, 24), (16_384, 9, 13)])
async def test_small_writes_that_pile_up_block_the_program_no_earlier(
    capture: Capture, each: int, kept: int, in_buffer: int, read_in_time: int
) -> None:
    read_in_time = max(read_in_time - 17 + kept, 0)
    stream, writer = capture

    def write(count: int) -> None:
        for _ in range(count):
            os.write(writer, bytes(each))

    await asyncio.to_thread(write, read_in_time)
    await until(lambda: not bytes_waiting(stream._ours))
    rest = asyncio.get_running_loop().run_in_executor(None, write, kept + in_buffer - read_in_time)
    while bytes_waiting(stream._ours) != in_buffer * each:
        pass  # the loop reads nothing meanwhile
    await rest
    assert len(stream.take()) == kept * each


@linux
async def test_a_program_that_writes_before_its_buffer_is_resized_may_write_as_much(
    capture: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each, read_in_time, kept, in_buffer = 16_000, 6, 9, 13
    stream, writer = capture
    thread = 0

    def late(function: Callable[..., Any]) -> Callable[..., Any]:
        def when_written(*arguments: Any) -> Any:
            while not (bytes_waiting(stream._ours) and is_waiting(thread)):
                pass
            return function(*arguments)

        return when_written

    def write(count: int) -> None:
        nonlocal thread
        thread = threading.get_native_id()
        for _ in range(count):
            os.write(writer, bytes(each))

    for name in ("_set_buffer", "cost_waiting"):
        monkeypatch.setattr(packets, name, late(getattr(packets, name)))
    await asyncio.to_thread(write, read_in_time)
    await until(lambda: not bytes_waiting(stream._ours))
    rest = asyncio.get_running_loop().run_in_executor(None, write, kept + in_buffer - read_in_time)
    while not (bytes_waiting(stream._ours) == in_buffer * each and is_waiting(thread)):
        pass
    await rest
    assert len(stream.take()) == kept * each
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        os.write(writer, bytes(each))


def is_waiting(thread: int) -> bool:
    """Return whether a thread of this process is asleep, here in a write."""
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@linux
@pytest.mark.parametrize("read_in_time", [0, 13, 14, 15, 16])
async def test_a_program_that_polls_its_output_is_told_of_the_room_that_is_left(
    capture: Capture, read_in_time: int
) -> None:
    """Node and asyncio do; such a program waited until its time limit, or found its output
    closed."""
    each, kept, at_once, in_buffer = 8_000, 17, 20, 24
    stream, writer = capture
    for count in (read_in_time, at_once):
        for _ in range(count):
            os.write(writer, bytes(each))
        await until(lambda: not bytes_waiting(stream._ours) or not stream._reading)
    assert len(stream.take()) == kept * each
    os.set_blocking(writer, False)
    assert select.select([writer], [writer], [], 0) == ([], [writer], [])
    for _ in range(in_buffer - (read_in_time + at_once - kept)):
        assert os.write(writer, bytes(each)) == each
    with pytest.raises(BlockingIOError):
        os.write(writer, bytes(each))


@linux
@pytest.mark.parametrize("arrived", [1, 2, 3, 4, 5])
async def test_a_large_write_is_not_read_while_a_piece_of_it_is_on_its_way(
    capture: Capture, arrived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, writer = capture
    on_its_way = packet_cost(PACKET)
    looks = 0

    def cost_waiting(theirs: socket.socket) -> int:
        nonlocal looks
        looks += 1
        return packets.cost_waiting(theirs) + on_its_way

    monkeypatch.setattr(output, "cost_waiting", cost_waiting)
    os.write(writer, bytes(arrived * PACKET))
    await until(lambda: looks > 10 or stream._held)
    on_its_way = 0
    async with asyncio.timeout(60):  # a writer that is never woken
        await asyncio.to_thread(os.write, writer, bytes(2 * PIPE_BYTES - arrived * PACKET))
    assert len(stream.take()) == PIPE_BYTES


@linux
async def test_a_small_write_that_arrives_late_does_not_change_where_the_others_are_cut(
    capture: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each, written = 8_000, 20
    stream, writer = capture
    on_its_way = packet_cost(each)
    looks = 0

    def cost_waiting(theirs: socket.socket) -> int:
        nonlocal looks, on_its_way
        looks += bytes_waiting(stream._ours) < written * each
        if looks == 5:  # in the middle of telling packets apart
            packets.let_go_on(theirs)  # the kernel has let this one pass long ago
            os.write(writer, bytes(each))
            packets.hold(theirs)
            on_its_way = 0
        return packets.cost_waiting(theirs) + on_its_way

    monkeypatch.setattr(output, "cost_waiting", cost_waiting)
    for _ in range(written):
        os.write(writer, bytes(each))
    await until(lambda: not stream._reading)
    assert (len(stream.take()), on_its_way) == (17 * each, 0)


@linux
async def test_nothing_is_lost_if_the_next_write_begins_when_the_last_packet_is_read(
    capture: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each, written = 8_000, 17
    stream, writer = capture

    def cost_waiting(theirs: socket.socket) -> int:
        return packets.cost_waiting(theirs) or packet_cost(each)  # its bytes are still on their way

    monkeypatch.setattr(output, "cost_waiting", cost_waiting)
    for _ in range(written):
        os.write(writer, bytes(each))
    await until(lambda: not bytes_waiting(stream._ours))
    assert len(stream.take()) == written * each
    os.set_blocking(writer, False)
    assert os.write(writer, bytes(PIPE_BYTES)) == PIPE_BYTES


@linux
async def test_stdout_and_stderr_have_separate_limits(executor: PythonExecutor) -> None:
    result = await ran(
        executor, "import os; os.write(1, b'o' * 200_000); os.write(2, b'e' * 200_000)"
    )
    assert (len(result.stdout or ""), len(result.stderr or "")) == (200_000, 200_000)


@linux
async def test_endless_output_times_out_and_is_bounded(executor: PythonExecutor) -> None:
    result = await ran(executor, "yes", "bash", run_timeout=3.0)
    assert result.status == "TimeLimitExceeded"
    assert 131_072 < len(result.stdout or "") <= 219_264


async def test_a_byte_that_is_not_utf8_replaces_its_stream(executor: PythonExecutor) -> None:
    result = await ran(executor, r"printf 'ok\xff'; echo fine >&2", "bash")
    expected = (
        "[DecodeError] 'utf-8' codec can't decode byte 0xff in position 2: invalid start byte"
    )
    assert (result.stdout, result.stderr, result.return_code) == (expected, "fine\n", 0)


def test_text_is_decoded_without_changes() -> None:
    assert decoded("é\0\r\n".encode()) == "é\0\r\n"


@pytest.mark.parametrize(
    ("written", "status", "kept"),
    [
        (1_000, "Finished", 1_000),
        (300_000, "Finished", 219_264),
        (2_000_000, "TimeLimitExceeded", 219_264),
    ],
)
async def test_on_other_systems_all_output_counts_as_one_large_write(
    executor: PythonExecutor, monkeypatch: pytest.MonkeyPatch, written: int, status: str, kept: int
) -> None:
    monkeypatch.setattr(output, "as_here", lambda: False)
    result = await ran(executor, f"head -c {written} /dev/zero", "bash", run_timeout=LIMIT[status])
    assert (result.status, len(result.stdout or "")) == (status, kept)


@linux
@settings(max_examples=25)
@given(st.integers(PACKET, 6 * PACKET))
def test_any_large_write_is_recognised_as_one(size: int) -> None:
    whole, rest = divmod(size, PACKET)
    assert is_large_write(size, whole * packet_cost(PACKET) + (packet_cost(rest) if rest else 0))


@linux
@settings(max_examples=25)
@given(st.integers(20, 9_000), st.integers(5, 200))
def test_piled_up_small_writes_are_not_taken_for_one_large_write(each: int, count: int) -> None:
    assert each * count < 4 * PACKET or not is_large_write(each * count, count * packet_cost(each))
