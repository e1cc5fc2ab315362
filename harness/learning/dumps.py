"""Reads rollout dumps step by step for their groups, scores and lost calls; only one step is in
memory at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sfusion_tools.bounded_input import bounded_lines, parse_json
from sfusion_tools.errors import InputError, near
from sfusion_tools.wording import counted

from ..core.dumps.sample import dump_files, finite_score, requests_beside
from ..core.logs.dump_records import step_of
from ..core.logs.reading import repeats
from ..errors import BadOption, NoDump
from .evidence import CallsOfSample, Evidence

KEYS: Mapping[str, tuple[str, ...]] = {
    "input": ("input",),
    "output": ("output",),
    "score": ("score",),
    "step": ("step",),
    "group": ("uid", "group"),
    "id": ("request_id", "trajectory"),
    "lost": (),
}
"""What is read of a line, and the keys that it is looked for under, unless told."""
_LARGEST = 1e100
"""A score beyond this is none: its square is not a number."""
_GZIP = b"\x1f\x8b"
_MOST_TOKENS = 10**9


@dataclass(slots=True)
class DumpedSample:
    """What is kept of a line while its step is read."""

    line: int
    score: float
    group: Hashable
    ended: CallsOfSample
    tokens: float

    @property
    def lost(self) -> bool:
        """True if its last call was lost, so that its score says nothing about the model."""
        return self.ended.last_lost

    @property
    def recovered(self) -> bool:
        """True if it lost a call but got a result later."""
        return self.ended.lost > 0 and not self.ended.last_lost


@dataclass
class DumpedStep:
    """The samples of one step, as far as they have a score."""

    step: int
    file: Path
    samples: list[DumpedSample] = field(default_factory=list)
    unscored: int = 0
    unscored_lost: int = 0
    """Samples without a score whose last call was lost."""


def read_keys(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read options such as ``group=prompt_id``; raise BadOption."""
    found = dict(KEYS)
    for text in texts:
        name, equals, key = text.partition("=")
        if not equals or not key or name not in KEYS:
            known = f"{text!r}: {near(name, KEYS)}" if equals and key else repr(text)
            raise BadOption(
                f"--key {known}; expected NAME=KEY with one of {', '.join(KEYS)}, as in "
                "group=prompt_id"
            )
        found[name] = (key,)
    return found


class DumpReader:
    """The steps of some dumps, in the order of the files and their lines. The lines of a step stand
    together."""

    def __init__(
        self,
        dumps: Sequence[Path],
        evidence: Evidence,
        keys: Mapping[str, tuple[str, ...]] = KEYS,
        on_problem: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``on_problem`` is called for each line that is not a sample."""
        files = [file for dump in dumps for file in dump_files(dump)]
        repeated = repeats(files)
        self.files = [file for place, file in enumerate(files) if place not in repeated]
        self.notes = [f"{repeated[place]}." for place in sorted(repeated)]
        """What is odd about the files."""
        self.total_bytes = sum(file.stat().st_size for file in self.files)
        self.bytes = 0
        self.by_input = 0
        """Samples whose group the dump does not name, so that they were grouped by their input."""
        self.with_id = 0
        self.missing = {name for name in keys if keys[name] != KEYS[name]}
        """Names whose key was given but is in no line."""
        self._evidence = evidence
        self._keys = keys
        self._problem = on_problem

    def __iter__(self) -> Iterator[DumpedStep]:
        seen: set[int] = set()
        twice: set[int] = set()
        for file in self.files:
            before = self.bytes
            for step in self._steps(file):
                (twice if step.step in seen else seen).add(step.step)
                yield step
            self.bytes = before + file.stat().st_size
        if twice:
            which = (
                f"Step {min(twice)} occurs"
                if len(twice) == 1
                else f"{len(twice)} steps, {min(twice)} first, occur"
            )
            self.notes.append(
                f"{which} in more than one place. Each place is counted as a step of its "
                "own, so groups that are "
                "spread over them are cut: put the lines of a step together, and read one "
                "training at a time."
            )

    def _steps(self, file: Path) -> Iterator[DumpedStep]:
        step: DumpedStep | None = None
        for number, record, request in self._records(file):
            here = int(step_of(file, {"step": _whole(_first(record, self._keys["step"]))}))
            if step is None or step.step != here:
                if step is not None:
                    yield step
                step = DumpedStep(here, file)
            sample = self._sample(number, record, request)
            if not math.isnan(sample.score):
                step.samples.append(sample)
            else:
                step.unscored += 1
                step.unscored_lost += sample.lost
        if step is not None:
            yield step

    def _records(self, file: Path) -> Iterator[tuple[int, Mapping[str, Any], Mapping[str, Any]]]:
        beside = requests_beside(file)
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(file.open("rb"))
                if opened.read(len(_GZIP)) == _GZIP:
                    raise NoDump(
                        f"{file}: is compressed; unpack it first, as in gunzip {file.name}"
                    )
                opened.seek(0)
                lines = bounded_lines(opened, str(file))
                requests = None
                if beside.is_file():
                    requests = bounded_lines(stack.enter_context(beside.open("rb")), str(beside))
            except OSError as error:
                raise NoDump(f"{error.filename}: cannot be read: {error.strerror}") from None
            number = paired = 0
            for number, line in lines:
                self.bytes += len(line)
                raw = next(requests, (0, b""))[1] if requests is not None else b""
                paired += raw != b""
                try:
                    record = _object(line, f"{file}:{number}")
                    request = _object(raw, f"{beside}:{number}") if raw else {}
                except InputError as error:
                    self._problem(str(error))
                    continue
                texts = [
                    key
                    for key in ("input", "output")
                    if not isinstance(_first(record, self._keys[key]), str)
                ]
                if texts:
                    keys = ", ".join(str(key)[:30] for key in list(record)[:12]) or "none"
                    self._problem(
                        f"{file}:{number}: no text in {self._keys[texts[0]][0]!r} (keys: "
                        f"{keys}); see --key"
                    )
                    continue
                yield number, record, request
            if requests is not None and (more := paired + sum(1 for _ in requests)) != number:
                self.notes.append(
                    f"{beside} has {counted(more, 'line')}, {file.name} has "
                    f"{counted(number, 'sample')}: they are of "
                    "different runs or one is cut off, and lines that stand side by side "
                    "may not belong together."
                )

    def _sample(
        self, line: int, record: Mapping[str, Any], request: Mapping[str, Any]
    ) -> DumpedSample:
        """Read a line; its score is NaN if it has none."""
        both = {**request, **record}
        self.missing = {name for name in self.missing if _first(both, self._keys[name]) is None}
        score = _first(both, self._keys["score"])
        output = _first(both, self._keys["output"])
        id, group = (_first(both, self._keys[name]) for name in ("id", "group"))
        ended = self._evidence.of(record, request, output, "" if id is None else str(id))
        number = finite_score(float(score) if isinstance(score, bool) else score)
        if number is None or abs(number) > _LARGEST:
            return DumpedSample(line=line, score=math.nan, group=None, ended=ended, tokens=math.nan)
        if ended.source:
            self._evidence.used[ended.source] += 1
        self.with_id += id is not None
        group = None if group == "" else group
        self.by_input += group is None
        if group is None:
            text = _first(both, self._keys["input"])
            group = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        tokens = request.get("tokens")
        trained = tokens.get("trained") if isinstance(tokens, Mapping) else None
        length = (
            float(trained) if isinstance(trained, int) and 0 < trained < _MOST_TOKENS else math.nan
        )
        return DumpedSample(
            line=line,
            score=number,
            group=group if isinstance(group, Hashable) else str(group),
            ended=ended,
            tokens=length,
        )


def _object(line: bytes, place: str) -> Mapping[str, Any]:
    record = parse_json(line, place, constants=True)
    if not isinstance(record, dict):
        raise InputError(f"{place}: a JSON {type(record).__name__}, not an object")
    return record


def _whole(step: Any) -> Any:
    """Return a step that was written as 3.0 or "3" as a number."""
    if isinstance(step, str) and re.fullmatch(r"\d{1,9}", step):
        return int(step)
    return int(step) if isinstance(step, float) and step.is_integer() else step


def _first(record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first key that has one; NaN, as verl writes a reward that is not a
    number, is none."""
    values = (record.get(key) for key in keys)
    return next((value for value in values if value is not None and value == value), None)
