"""The files of a training's dump, in whatever folders a trainer puts them."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import NoDump
from .sample import REQUESTS

_STEP = re.compile(r"step[_-]?(\d{1,9})")
_NUMBER = re.compile(r"\d{1,9}")
_CONVERT = {
    ".parquet": (
        "import pandas, sys; [pandas.read_parquet(f).to_json(f + '.jsonl', orient='records', "
        "lines=True) for f in sys.argv[1:]]"
    ),
    ".pt": (
        "import json, sys, torch; [open(f + '.jsonl', 'w').writelines(json.dumps(s, default=str) "
        "+ '\\n' for s in torch.load(f, weights_only=False)['samples']) for f in sys.argv[1:]]"
    ),
}
"""One line of Python, in the trainer's own environment, that makes lines of a binary dump."""


def rollout_files(path: Path) -> list[Path]:
    """Return the files of a dump in the order of their steps; raise NoDump if there are none.

    Folders are searched to the bottom: prime-rl and rLLM have one for each step. Of prime-rl's two
    records of a step, the one of all episodes is read, and no evaluation.
    """
    if not path.exists():
        raise NoDump(f"{path} does not exist: give the directory of a rollout dump")
    if path.is_file():
        _check_readable(path)
        return [path]
    found = [file for file in path.rglob("*.jsonl") if REQUESTS not in file.relative_to(path).parts]
    found = [file for file in found if not _is_left_out(file)]
    found = found or [file for file in path.rglob("*.json") if is_episode(file)]
    if not found:
        for file in sorted(path.rglob("*")):
            _check_readable(file)
        names = sorted(file.name for file in path.rglob("*") if file.is_file())
        there = f"; it has {', '.join(names[:3])}{', …' if len(names) > 3 else ''}" if names else ""
        raise NoDump(
            f"{path} has no .jsonl file{there}: give the directory of a rollout dump "
            "(verl: trainer.rollout_data_dir; sfusion rollout: --out)"
        )
    return sorted(found, key=lambda file: (file_step(file, missing=-1), str(file)))


def is_episode(file: Path) -> bool:
    """Is it a file of rLLM, which is one object over many lines?"""
    return file.suffix == ".json" and file.name.startswith("episode")


def _is_left_out(file: Path) -> bool:
    """Is a file a second record of what another one holds, or an evaluation?"""
    folders = file.parts[-4:-1]
    if file.name == "traces.jsonl" and folders[-1] == "effective":
        return (file.parent.parent / "all" / file.name).exists()
    return file.name == "traces.jsonl" and "eval" in folders


def _check_readable(file: Path) -> None:
    """Refuse files that only the trainer's own libraries can read, with how to convert them."""
    code = _CONVERT.get(file.suffix)
    if code is not None:
        raise NoDump(
            f"{file}: is not text. Make lines of it with the Python of your training, and give "
            f'the new file: python -c "{code}" {file.name}'
        )


def file_step(file: Path, missing: int = 0) -> int:
    """Return the step that a file's name, or that of its folder, says."""
    for name in (file.stem, *(folder.name for folder in list(file.parents)[:4])):
        if (found := _STEP.search(name)) is not None:
            return int(found[1])
    digits = _NUMBER.search(file.stem)
    return int(digits[0]) if digits else missing
