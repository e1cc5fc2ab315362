"""The steps of a dump and their lines, read when they are needed: samples with their turns, or what
is wrong."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

from sfusion_tools.bounded_input import MAX_LINE, parse_json
from sfusion_tools.errors import InputError

from ...errors import NoDump

_BLOCK = 1 << 20
"""Bytes that are read at once (chosen)."""


class LineIndex:
    """The offset of every line, eight bytes each, found block by block.

    Lines can be read as soon as they are indexed, also while another thread extends the index.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._ends = array("Q")
        self.scanned = 0
        """Number of bytes indexed so far."""
        self._extending = Lock()
        self._reading = Lock()
        # Held open: a filter reads every line of a big file.
        self._file = path.open("rb")
        finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def is_complete(self) -> bool:
        return self.scanned >= self.size

    def extend(self, blocks: int = 1) -> bool:
        """Index the next blocks; return False if the file was indexed completely before."""
        with self._extending, self.path.open("rb") as file:
            if self.is_complete:
                return False
            file.seek(self.scanned)
            for _ in range(blocks):
                block = file.read(_BLOCK)
                self._ends.extend(self.scanned + found.end() for found in re.finditer(b"\n", block))
                self.scanned = self.scanned + len(block) if block else self.size
                if self.is_complete:
                    if self.size and (not self._ends or self._ends[-1] < self.size):
                        self._ends.append(self.size)  # the last line does not end with a line break
                    break
        return True

    def extend_to(self, line: int) -> bool:
        """Index as far as this line; return False if the file has fewer lines."""
        while line >= len(self) and self.extend():
            pass
        return line < len(self)

    def read(self, line: int) -> bytes:
        """Return an indexed line without its line break; of one longer than ``MAX_LINE``, one byte
        more than that."""
        start = self._ends[line - 1] if line else 0
        with self._reading:
            self._file.seek(start)
            return self._file.read(min(self._ends[line] - start, MAX_LINE + 1)).rstrip(b"\r\n")


_SHOWN = ("input", "output")
_PREVIEW = 200
"""Characters of a field that a list shows (chosen: more than a line of a terminal)."""


@dataclass(frozen=True)
class Sample:
    """A line of a dump and of the requests file beside it."""

    number: int
    """Its line in the file, counted from 0."""
    input: str = ""
    output: str = ""
    score: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Every key but input and output, then those of the request."""
    problem: str | None = None
    """Why the line is not a sample; ``output`` is then the line itself."""

    @property
    def outcomes(self) -> dict[str, int]:
        """How many calls ended with which outcome; empty if the dump does not have it."""
        found = self.fields.get("outcomes")
        if not isinstance(found, Mapping):
            return {}
        return {str(name): count for name, count in found.items() if isinstance(count, int)}

    @property
    def standing(self) -> list[str]:
        """Its group and its advantage in that, as far as the dump has them."""
        group = next(
            (self.fields[key] for key in ("uid", "group") if self.fields.get(key) is not None), None
        )
        said = [] if group is None else [f"group {str(group)[:40]}"]
        advantage = finite_score(self.fields.get("advantage"))
        return said if advantage is None else [*said, f"advantage {advantage:+.3f}"]

    @property
    def tags(self) -> set[str]:
        """What ``outcome:`` matches: outcomes of calls, refusals, the state and what ended the
        request."""
        tags = set(self.outcomes)
        refused = self.fields.get("refused")
        if isinstance(refused, Mapping):
            tags |= {str(name) for name in refused}
        for key in ("state", "ended_by", "finish_reason", "outcome"):
            value = self.fields.get(key)
            if isinstance(value, str):
                tags.add(value)
        if self.problem is not None:
            tags.add("malformed")
        return tags

    @property
    def text(self) -> str:
        """The text that searches look at."""
        return f"{self.input}\n{self.output}"

    @property
    def preview(self) -> str:
        """The question in one line, or what is wrong with the line."""
        if self.problem is not None:
            return self.problem
        body = self.input.rstrip().removesuffix("assistant").rstrip()
        for role in ("\nuser\n", "<|im_start|>user\n"):
            _, mark, rest = body.rpartition(role)
            if mark:
                body = rest
                break
        return " ".join(body[: 2 * _PREVIEW].split())[:_PREVIEW]


def read_sample(raw: bytes, number: int, request: bytes | None = None) -> Sample:
    """Read a line and, if there is one, the line of its request. A malformed line is a sample with
    a ``problem``."""
    record, problem = _object(raw)
    if record is None:
        return Sample(number, output=raw.decode("utf-8", errors="replace"), problem=problem)
    extra = (_object(request)[0] if request is not None else None) or {}
    fields = {key: value for key, value in record.items() if key not in _SHOWN}
    fields |= {key: value for key, value in extra.items() if key not in record}
    missing = [key for key in _SHOWN if not isinstance(record.get(key), str)]
    if missing:
        found = ", ".join(record) or "nothing"
        return Sample(
            number,
            output=json.dumps(record, ensure_ascii=False, indent=2),
            fields=fields,
            problem=f"no text in {' and '.join(missing)} (found keys: {found})",
        )
    return Sample(
        number, record["input"], record["output"], finite_score(record.get("score")), fields
    )


def _object(raw: bytes) -> tuple[dict[str, Any] | None, str | None]:
    if not raw.strip():
        return None, "an empty line"
    if len(raw) > MAX_LINE:
        return None, f"longer than {MAX_LINE:,} bytes"
    try:
        record = parse_json(raw, "line", constants=True)
    except InputError as error:
        return None, str(error).removeprefix("line: ")
    if not isinstance(record, dict):
        return None, f"a JSON {type(record).__name__}, not an object"
    return record, None


def finite_score(value: Any) -> float | None:
    """Return a number of a dump; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number that no float can hold
        return None


REQUESTS = "requests"


def requests_beside(path: Path) -> Path:
    """Return the file of the requests of the samples in a file; line by line they are parallel."""
    return path.parent / REQUESTS / path.name


class StepFile:
    """The samples of one step, read from the file when they are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.index = LineIndex(path)
        requests = requests_beside(path)
        self._requests = LineIndex(requests) if requests.is_file() else None
        self.sample = lru_cache(maxsize=512)(self.read)

    def __len__(self) -> int:
        return len(self.index)

    def read(self, number: int) -> Sample:
        """Read the sample in this line, which must be indexed already; ``sample`` does the same
        with a cache."""
        request = None
        if self._requests is not None and self._requests.extend_to(number):
            request = self._requests.read(number)
        return read_sample(self.index.read(number), number, request)


def open_dump(path: Path) -> list[StepFile]:
    """Return the steps in a directory of ``<step>.jsonl`` files, in order, or the step of one such
    file."""
    try:
        return [StepFile(file) for file in dump_files(path)]
    except OSError as error:
        raise NoDump(f"{error.filename}: cannot be read: {error.strerror}") from error


def dump_files(path: Path) -> list[Path]:
    """Return the files of a dump, in the order of their steps; raise NoDump if there are none."""
    if not path.exists():
        raise NoDump(f"{path} does not exist: give the directory of a rollout dump")
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"), key=_order)
    if not files:
        raise NoDump(
            f"{path} has no .jsonl file: give the directory of a rollout dump "
            "(verl: trainer.rollout_data_dir; sfusion rollout: --out)"
        )
    return files


def _order(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return (int(number.group()) if number else -1, path.name)


_ROLES = "system|user|assistant|tool|developer"
_WITH_TOKENS = re.compile(rf"<\|im_start\|>({_ROLES})\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
# Decoding without special tokens leaves only the name of the role, alone on its line.
_WITHOUT_TOKENS = re.compile(rf"^({_ROLES})$\n?", re.MULTILINE)


def turn_texts(text: str, first_role: str = "assistant") -> list[tuple[str, str]]:
    """Split a text into roles and what they said.

    What precedes the first role belongs to ``first_role``.
    """
    if "<|im_start|>" in text:
        head = text[: text.index("<|im_start|>")].removesuffix("<|im_end|>\n")
        turns = [(match[1], match[2]) for match in _WITH_TOKENS.finditer(text)]
    else:
        head, *rest = _WITHOUT_TOKENS.split(text)
        turns = list(zip(rest[::2], rest[1::2], strict=True))
    if head.strip():
        turns.insert(0, (first_role, head))
    return [(role, body.strip("\n")) for role, body in turns]
