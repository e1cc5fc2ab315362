"""Reads rollout dumps of any trainer step by step, for their groups, scores and lost calls."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sfusion_tools.advantages import Handling
from sfusion_tools.bounded_input import MAX_LINE, bounded_lines, parse_json, read_bounded
from sfusion_tools.errors import InputError, near
from sfusion_tools.wording import counted

from ..core.dumps.files import file_step, rollout_files
from ..core.dumps.rollout import KEYS, Rollout, first_of, read_rollout
from ..core.dumps.sample import requests_beside
from ..core.dumps.trainers import LOST_BY, trainer_of
from ..core.logs.reading import repeats
from ..errors import BadOption, NoDump
from .evidence import CallsOfSample, Evidence

_GZIP = b"\x1f\x8b"
_MOST_HELD = 200_000
"""Samples of unfinished steps that are kept (chosen: 30 MB). Steps may interleave within that."""
_FEWEST_DOUBLED = 8
"""Different lines in a row that must occur twice, where no id tells siblings apart (chosen: a few
short answers repeat by chance)."""
_SHOWN_KEYS = 14
"""Keys of a record that an error names (chosen: a line or two)."""


@dataclass(slots=True)
class DumpedSample:
    """What is kept of a line while its step is read."""

    line: int
    score: float
    group: Hashable
    ended: CallsOfSample
    tokens: float
    """NaN if it is not known."""

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
    unscored_groups: Counter[Hashable] = field(default_factory=Counter)
    """How many samples without a score each group has."""
    lines: array[int] = field(default_factory=lambda: array("q"))
    """A hash of each line."""
    has_ids: bool = True
    """Every line names its trajectory."""

    @property
    def doubled(self) -> int:
        """Lines that are copies of others.

        Without ids, siblings may answer alike, so only stretches count that occur again line for
        line, and a step in which every line has its copy.
        """
        different = Counter(self.lines)
        copies = len(self.lines) - len(different)
        if not copies or self.has_ids:
            return copies
        common = reduce(math.gcd, different.values())
        if common > 1 and len(different) >= _FEWEST_DOUBLED:
            return copies
        return sum(length for length in _repeated(self.lines) if length >= _FEWEST_DOUBLED)


def _repeated(lines: Sequence[int]) -> Iterator[int]:
    """Yield the length of each stretch of different lines that occurs again, in the same order."""
    first: dict[int, int] = {}
    length = 0
    for place, line in enumerate(lines):
        before = first.setdefault(line, place)
        if before == place:
            yield length
            length = 0
        elif length and before == first[lines[place - 1]] + 1:
            length += 1
        else:
            yield length
            length = 1
    yield length


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
    """The steps of some dumps. Steps of one dump may interleave and spread over files."""

    def __init__(
        self,
        dumps: Sequence[Path],
        evidence: Evidence,
        keys: Mapping[str, tuple[str, ...]] = KEYS,
        on_problem: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``on_problem`` is called for each line that is not a sample."""
        listed = [(place, file) for place, dump in enumerate(dumps) for file in rollout_files(dump)]
        repeated = repeats([file for _, file in listed])
        self._listed = [pair for place, pair in enumerate(listed) if place not in repeated]
        self.files = [file for _, file in self._listed]
        self.notes = [f"{repeated[place]}." for place in sorted(repeated)]
        """What is odd about the files."""
        self.doubts: list[str] = []
        """What makes figures of this dump untrustworthy."""
        self.total_bytes = sum(file.stat().st_size for file in self.files)
        self.bytes = 0
        self.by_input = 0
        """Samples whose group the dump does not name, so that they were grouped by their input."""
        self.with_id = 0
        self.trainers: Counter[str] = Counter()
        """Samples by the trainer whose kind of line they have, other than verl."""
        self.handling: Handling | None = None
        """What that trainer does with samples that it declares lost, if there were any."""
        self.missing = {name for name in keys if keys[name] != KEYS[name]}
        """Names whose key was given but is in no line."""
        self._evidence = evidence
        self._keys = keys
        self._problem = on_problem
        self._owner: dict[int, int] = {}
        """The dump that each step was first found in."""
        self._returned: set[int] = set()
        self._doubled: dict[int, int] = {}
        self._split: set[int] = set()
        self._shared: set[int] = set()

    def __iter__(self) -> Iterator[DumpedStep]:
        for dump in dict.fromkeys(place for place, _ in self._listed):
            yield from self._steps(dump)
        if self._shared:
            self.doubts.append(
                f"{_steps_named(self._shared)} in more than one of the dumps, and each place "
                "is counted as a step of its own; give one training at a time."
            )
        if self._doubled:
            count = sum(self._doubled.values())
            occur = "1 line occurs" if count == 1 else f"{count:,} lines occur"
            where = f"step {min(self._doubled)}"
            if len(self._doubled) > 1:
                where = f"{len(self._doubled)} steps from {min(self._doubled)} on"
            self.doubts.append(f"{occur} twice, in {where}: is the dump copied into itself?")
        if self._split:
            self.doubts.append(
                f"{_steps_named(self._split)} in places that are more than {_MOST_HELD:,} samples "
                "apart, so groups are cut: put the lines of a step together."
            )

    def _steps(self, dump: int) -> Iterator[DumpedStep]:
        held: dict[int, DumpedStep] = {}
        count = 0
        for place, file in self._listed:
            if place != dump:
                continue
            before = self.bytes
            for number, line, record, request in self._records(file):
                count += self._add(
                    held,
                    file,
                    number=number,
                    line=line,
                    record=record,
                    request=request,
                )
                while count > _MOST_HELD and len(held) > 1:
                    first = held.pop(next(iter(held)))
                    count -= len(first.samples)
                    yield self._finished(first, dump)
            self.bytes = before + file.stat().st_size
        for number in sorted(held):
            yield self._finished(held[number], dump)

    def _add(
        self,
        held: dict[int, DumpedStep],
        file: Path,
        *,
        number: int,
        line: bytes,
        record: Mapping[str, Any],
        request: Mapping[str, Any],
    ) -> int:
        """Put the samples of a line where they belong; return how many they are."""
        count = 0
        for rollout in self._rollouts(record, request):
            here = _step_of(rollout.step, file)
            step = held.get(here)
            if step is None:
                step = held[here] = DumpedStep(here, file)
            sample = self._sample(number, here, rollout, request)
            count += 1
            step.lines.append(hash((line, str(rollout.id))))
            step.has_ids = step.has_ids and rollout.id is not None
            if math.isnan(sample.score):
                step.unscored += 1
                step.unscored_groups[sample.group] += 1
                step.unscored_lost += sample.lost
            else:
                step.samples.append(sample)
        return count

    def _finished(self, step: DumpedStep, dump: int) -> DumpedStep:
        """Note what is odd about a step before it is returned."""
        if self._owner.setdefault(step.step, dump) != dump:
            self._shared.add(step.step)
        elif step.step in self._returned:
            self._split.add(step.step)
        self._returned.add(step.step)
        doubled = step.doubled
        if doubled:
            self._doubled[step.step] = doubled
        step.lines = array("q")
        return step

    def _rollouts(self, record: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Rollout]:
        """Yield the samples of a line, with what the request beside it adds."""
        trainer = trainer_of(record)
        flat = [record] if trainer is None else trainer.flatten(record)
        for line in flat:
            both = {**request, **line} if request else line
            if self.missing:
                self.missing = {
                    name for name in self.missing if first_of(both, self._keys[name]) is None
                }
            if trainer is not None:
                self.trainers[trainer.name] += 1
                if LOST_BY in line:
                    self.handling = trainer.handling
            yield read_rollout(both, self._keys)

    def _records(
        self, file: Path
    ) -> Iterator[tuple[int, bytes, Mapping[str, Any], Mapping[str, Any]]]:
        """Yield the lines of a file that are objects, with their requests."""
        beside = requests_beside(file)
        with ExitStack() as stack:
            lines = self._open(file, stack)
            requests = None
            if beside.is_file():
                requests = bounded_lines(stack.enter_context(beside.open("rb")), str(beside))
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
                missing = self._missing_of(record)
                if missing:
                    self._problem(f"{file}:{number}: {missing}")
                    continue
                yield number, line, record, request
            if requests is not None and (more := paired + sum(1 for _ in requests)) != number:
                self.notes.append(
                    f"{beside} has {counted(more, 'line')}, {file.name} has "
                    f"{counted(number, 'sample')}: they are of "
                    "different runs or one is cut off, and lines that stand side by side "
                    "may not belong together."
                )

    def _open(self, file: Path, stack: ExitStack) -> Iterator[tuple[int, bytes]]:
        """Return the lines of a file; a file of rLLM is one object over many lines."""
        try:
            opened = stack.enter_context(file.open("rb"))
            if opened.read(len(_GZIP)) == _GZIP:
                raise NoDump(f"{file}: is compressed; unpack it first, as in gunzip {file.name}")
        except OSError as error:
            raise NoDump(f"{error.filename}: cannot be read: {error.strerror}") from None
        if file.suffix == ".json":
            return iter([(1, read_bounded(file, MAX_LINE))])
        opened.seek(0)
        return bounded_lines(opened, str(file))

    def _missing_of(self, record: Mapping[str, Any]) -> str:
        """Say which keys a line lacks; empty if it can be read."""
        if trainer_of(record) is not None:
            return ""
        output = first_of(record, self._keys["output"])
        missing = []
        if not isinstance(output, str | list):
            missing.append("output")
        if not any(key in record for key in self._keys["score"]):
            missing.append("score")
        if not missing:
            return ""
        keys = ", ".join(str(key)[:30] for key in list(record)[:_SHOWN_KEYS]) or "none"
        wanted = [f"{name} ({' or '.join(self._keys[name])})" for name in missing]
        options = " ".join(f"--key {name}=KEY" for name in missing)
        return f"no {' and no '.join(wanted)}; its keys are {keys}; name them: {options}"

    def _sample(
        self, line: int, step: int, rollout: Rollout, request: Mapping[str, Any]
    ) -> DumpedSample:
        """Read a line; its score is NaN if it has none."""
        group = None if rollout.group == "" else rollout.group
        if group is None:
            text = rollout.prompt.encode("utf-8", "surrogatepass")
            group = blake2b(text, digest_size=8).digest()
        elif not isinstance(group, Hashable):
            group = str(group)
        ended = self._evidence.of(rollout, request, step, group)
        if rollout.score is None:
            return DumpedSample(line, math.nan, group, ended, math.nan)
        if ended.source:
            self._evidence.used[ended.source] += 1
        self.with_id += rollout.id is not None
        self.by_input += isinstance(group, bytes)
        tokens = math.nan if rollout.tokens is None else rollout.tokens
        return DumpedSample(line, rollout.score, group, ended, tokens)


def _steps_named(steps: set[int]) -> str:
    if len(steps) == 1:
        return f"Step {min(steps)} occurs"
    return f"{len(steps)} steps, {min(steps)} first, occur"


def _object(line: bytes, place: str) -> Mapping[str, Any]:
    record = parse_json(line, place, constants=True)
    if not isinstance(record, dict):
        advice = ""
        if isinstance(record, list):
            name = place.partition(":")[0]
            advice = f"; write one sample in each line, as in jq -c '.[]' {name} > lines.jsonl"
        raise InputError(f"{place}: a JSON {type(record).__name__}, not an object{advice}")
    return record


def _step_of(step: Any, file: Path) -> int:
    """Return the step that a line says, also as 3.0 or "3", else that in the name of its file."""
    if isinstance(step, str) and re.fullmatch(r"\d{1,9}", step):
        return int(step)
    is_number = isinstance(step, int | float) and not isinstance(step, bool)
    if is_number and 0 <= step < 1e9 and step == int(step):
        return int(step)
    return file_step(file)
