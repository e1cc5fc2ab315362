"""A hunt on disk: a header, then a line for each complete batch with its cases and the counts after
it.

Of a case there is its digest, and the case itself if it showed something new or broke something. A
batch that was interrupted is played again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Self

from pydantic import TypeAdapter

from sfusion_tools.bounded_input import bounded_lines, parse_json

from ...atomic_files import lock_folder
from ...core.verdict import How
from ...errors import BadOption
from ..shrink import Failure
from .case import HuntCase, HuntResult
from .hunt import Hunt, Tally

HUNT = "hunt.ndjson"
_LOCK = ".hunt.lock"
"""Not that of runs, which may be written to the same folder while a hunt of hours uses it."""
_VERSION = 2
"""Version of the file."""


class Corpus:
    """The folder of one hunt, for it alone until it is left; ``tools`` tells hunts of different
    tools apart."""

    def __init__(self, folder: Path, tools: str = "") -> None:
        self._folder = folder
        self._tools = tools
        self._lock: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def resume(self, hunt: Hunt) -> int:
        """Continue where the folder's hunt ended; return how many cases it has played."""
        if self._folder.exists() and not self._folder.is_dir():
            raise BadOption(f"--corpus {self._folder}: is a file; give a folder")
        try:
            self._lock = self._lock or lock_folder(self._folder, _LOCK, wait=False)
            if (self._folder / HUNT).exists():
                self._read(hunt)
        except BlockingIOError:
            raise BadOption(
                f"--corpus {self._folder}: another hunt is using it; give another folder"
            ) from None
        except OSError as error:
            raise BadOption(f"--corpus {self._folder}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadOption(
                f"--corpus {self._folder}: {HUNT} is not that of a hunt, or damaged: {error}"
            ) from None
        return hunt.tally.cases

    def add(self, hunt: Hunt, played: Iterable[tuple[HuntCase, HuntResult]]) -> None:
        """Write a batch that the hunt has learned from."""
        kept = {case.number for case in hunt.corpus[-1000:]}
        cases = []
        for case, result in played:
            told: dict[str, Any] = {"number": case.number, "digest": case.digest}
            if case.number in kept or result.findings:
                told |= {"data": case.data, "origin": case.origin, "promises": case.promises}
            if case.number in kept:
                told["behaviour"] = sorted(result.behaviour)
            if result.findings:
                told["findings"] = [
                    {"how": finding.how.as_dict(), "sentence": finding.sentence}
                    for finding in result.findings
                ]
            cases.append(told)
        counts = {key: value for key, value in vars(hunt.tally).items() if key != "growth"}
        with (self._folder / HUNT).open("a", encoding="utf-8") as file:
            if not file.tell():
                file.write(json.dumps(self._head(hunt)) + "\n")
            file.write(json.dumps({"cases": cases, "tally": counts}) + "\n")

    def _head(self, hunt: Hunt) -> dict[str, Any]:
        return {"version": _VERSION, "seed": hunt.seed, "tools": self._tools}

    def _read(self, hunt: Hunt) -> None:
        with (self._folder / HUNT).open("rb+") as file:
            end = 0
            for number, line in bounded_lines(file, HUNT):
                if not line.endswith(b"\n"):
                    break  # an interrupted batch
                end = file.tell()
                batch = parse_json(line, f"line {number}")
                if number > 1:
                    _learn(hunt, batch)
                    continue
                for key, mine in self._head(hunt).items():
                    if batch[key] != mine:
                        text = (
                            f"--corpus {self._folder}: its hunt has {key} "
                            f"{batch[key]!r:.200}, this one {mine!r:.200}"
                        )
                        raise BadOption(f"{text}; give another folder")
            file.truncate(end)


def _learn(hunt: Hunt, batch: dict[str, Any]) -> None:
    for told in batch["cases"]:
        hunt.seen.add(told["digest"])
        if "data" not in told:
            continue
        case = HuntCase(told["number"], told["data"], told["origin"], tuple(told["promises"]))
        if "behaviour" in told:
            hunt.covered.update(told["behaviour"])
            hunt.corpus.append(case)
        for finding in told.get("findings", ()):
            hunt.add(Failure(How.from_dict(finding["how"]), str(finding["sentence"])), case)
    growth = hunt.tally.growth
    hunt.tally = TypeAdapter(Tally).validate_python(batch["tally"])
    hunt.tally.growth = [*growth, (hunt.tally.cases, len(hunt.covered))]
