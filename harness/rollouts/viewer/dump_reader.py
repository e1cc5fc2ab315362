"""A directory of dumped rollouts: one file per step, one line per sample."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from sfusion.harness.errors import NoDump
from sfusion.harness.rollouts.viewer.lines import LineIndex
from sfusion.harness.rollouts.viewer.sample import Sample, read_sample

REQUESTS = "requests"


class StepFile:
    """The samples of one step, read from the file when they are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.index = LineIndex(path)
        requests = path.parent / REQUESTS / path.name
        self._requests = LineIndex(requests) if requests.is_file() else None
        self.sample = lru_cache(maxsize=512)(self.read)

    def __len__(self) -> int:
        return len(self.index)

    def read(self, number: int) -> Sample:
        """Read the sample in this line, which must be indexed already; ``sample`` does the same with a cache."""
        request = None
        if self._requests is not None and self._requests.extend_to(number):
            request = self._requests.read(number)
        return read_sample(self.index.read(number), number, request)


def open_dump(path: Path) -> list[StepFile]:
    """Return the steps in a directory of ``<step>.jsonl`` files, in order, or the step of one such file."""
    if not path.exists():
        raise NoDump(f"{path} does not exist: give the directory of a rollout dump")
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"), key=_order)
    if not files:
        raise NoDump(
            f"{path} has no .jsonl file: give the directory of a rollout dump "
            "(verl: trainer.rollout_data_dir; sfusion rollout: --out)"
        )
    try:
        return [StepFile(file) for file in files]
    except OSError as error:
        raise NoDump(f"{error.filename}: cannot be read: {error.strerror}") from error


def _order(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return (int(number.group()) if number else -1, path.name)
