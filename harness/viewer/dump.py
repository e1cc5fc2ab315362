"""A directory of dumped rollouts: one file a step, one line a sample."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from sfusion.harness.errors import NoDump
from sfusion.harness.viewer.lines import LineIndex
from sfusion.harness.viewer.sample import Sample, read_sample

REQUESTS = "requests"


class StepFile:
    """The samples of one step, read one by one when they are looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.index = LineIndex(path)
        beside = path.parent / REQUESTS / path.name
        self._requests = LineIndex(beside) if beside.is_file() else None
        self.sample = lru_cache(maxsize=512)(self.read)

    def __len__(self) -> int:
        return len(self.index)

    def read(self, number: int) -> Sample:
        """The sample at this place, which must be indexed; ``sample`` remembers the last ones."""
        request = None
        if self._requests is not None and self._requests.extend_to(number):
            request = self._requests.read(number)
        return read_sample(self.index.read(number), number, request)


def open_dump(path: Path) -> list[StepFile]:
    """The steps below a path, in order: a directory of ``<step>.jsonl`` files, or one such file."""
    if path.is_file():
        return [StepFile(path)]
    if not path.is_dir():
        raise NoDump(f"{path} does not exist: give the directory that rollouts were dumped to")
    files = sorted(path.glob("*.jsonl"), key=_order)
    if not files:
        raise NoDump(
            f"{path} holds no .jsonl file: give the directory that rollouts were dumped to "
            "(verl: trainer.rollout_data_dir; sfusion rollout --out)"
        )
    return [StepFile(file) for file in files]


def _order(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return (int(number.group()) if number else -1, path.name)
