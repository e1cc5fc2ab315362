"""Recorded texts, and ways to cut a text into pieces."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sfusion_tools.formats import Format, Parsed, format_names

DATA = Path(__file__).parent / "data"
TOOLS: list[dict[str, Any]] = json.loads((DATA / "tools.json").read_text(encoding="utf-8"))

ALIKE = frozenset(
    {
        *("qwen25", "longcat", "internlm"),
        *("glm47", "hunyuan_v3", "hunyuan_v3_open"),
        *("deepseekv4", "seed_oss", "step3", "minimax_m2", "dots"),
        *("nemotron", "hunyuan_a13b", "granite", "phi4_mini"),
        *("deepseekv31", "functionary_v31", "functiongemma", "granite_20b_fc"),
    }
)
"""Formats that differ from another one only in their markers."""


def every_parser() -> list[str]:
    """The formats without those that differ from an earlier one only in their markers."""
    return [name for name in format_names() if name not in ALIKE]


@functools.cache
def records() -> tuple[dict[str, Any], ...]:
    found = []
    for file in sorted(DATA.glob("*.jsonl")):
        # Not splitlines(): a recorded text contains U+2028, which it treats as a line break.
        found.extend(
            json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line
        )
    return tuple(found)


def chunkings(text: str, cuts: Iterable[int] = ()) -> Iterator[list[str]]:
    """Yield one piece, single characters, odd sizes, a few random cuts, and a cut at each of
    ``cuts``."""
    yield [text]
    yield list(text)
    for size in (2, 3, 7, 16):
        yield [text[at : at + size] for at in range(0, len(text), size)]
    for seed in range(3):
        yield _random(text, seed)
    for cut in cuts:
        yield [text[:cut], text[cut:]]


def streamed(form: Format, pieces: Iterable[str], tools: Any = TOOLS, **options: Any) -> Parsed:
    """Parse the pieces as a stream."""
    stream = form.stream(tools, **options)
    deltas = [delta for piece in pieces for delta in stream.feed(piece)]
    return Parsed.of([*deltas, *stream.finish()])


def plain(parsed: Parsed) -> list[dict[str, Any]]:
    return [{"name": call.name, "arguments": call.arguments} for call in parsed.calls]


def _random(text: str, seed: int) -> list[str]:
    pieces = []
    at = 0
    while at < len(text):
        size = 1 + hashlib.blake2b(f"{seed}/{at}".encode(), digest_size=1).digest()[0] % 12
        pieces.append(text[at : at + size])
        at += size
    return pieces
