"""WebSocket frames, in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfusion.fakes.wire.frames import (
    FrameError,
    FrameReader,
    Opcode,
    accept_key,
    close_frame,
    frame,
)

MASK = b"\x01\x02\x03\x04"


def sent(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """A frame as a client sends it."""
    whole = frame(Opcode.TEXT, data)
    head = whole[1 : len(whole) - len(data)]
    masked = bytes(byte ^ MASK[place % 4] for place, byte in enumerate(data))
    first = (0x80 if last else 0) | opcode
    return bytes([first, head[0] | 0x80]) + head[1:] + MASK + masked


def test_the_handshake_is_answered_as_in_the_standard() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(1, 50))
def test_messages_come_in_any_pieces(messages: list[bytes], step: int) -> None:
    reader = FrameReader()
    data = b"".join(sent(Opcode.BINARY, message) for message in messages)
    found = []
    for start in range(0, len(data), step):
        found += reader.feed(data[start : start + step])
    assert [message.data for message in found] == messages


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_lengths_of_every_kind(size: int) -> None:
    assert FrameReader().feed(sent(Opcode.TEXT, b"x" * size))[0].data == b"x" * size


def test_fragments_make_one_message_and_control_frames_may_come_between() -> None:
    data = (
        sent(Opcode.TEXT, b"one ", last=False)
        + sent(Opcode.PING, b"!")
        + sent(Opcode.CONTINUATION, b"two")
    )
    ping, message = FrameReader().feed(data)
    assert (ping.opcode, ping.data) == (Opcode.PING, b"!")
    assert (message.opcode, message.data) == (Opcode.TEXT, b"one two")


def test_a_close_frame_has_a_code() -> None:
    assert FrameReader().feed(sent(Opcode.CLOSE, close_frame(1011)[2:]))[0].close_code == 1011
    assert FrameReader().feed(sent(Opcode.CLOSE, b""))[0].close_code == 1005


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.TEXT, b"no mask"), 1002),
        (b"\xf1\x80" + MASK, 1002),
        (b"\x83\x80" + MASK, 1002),
        (sent(Opcode.CONTINUATION, b"of nothing"), 1002),
        (b"\x81\xff" + (1 << 40).to_bytes(8, "big") + MASK, 1009),
    ],
)
def test_what_is_not_the_protocol_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(FrameError) as refused:
        FrameReader().feed(data)
    assert refused.value.code == code
