"""A hunt on disk: what was played, what was learned, and where to go on.

``hunt.json`` holds the counts after the last complete batch, ``cases.ndjson`` a line for each case: its digest, and the
case itself if it showed something new or broke something. A batch that was interrupted is played again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Self

from sfusion.harness.atomic_files import write_file
from sfusion.harness.errors import BadOption
from sfusion.harness.folder_lock import lock_folder
from sfusion.harness.lab.promises.verdict import How
from sfusion.harness.search.hunt.case import HuntCase, HuntResult
from sfusion.harness.search.hunt.hunt import Hunt, Tally
from sfusion.harness.search.shrink import Failure
from sfusion_tools.bounded_input import MAX_LINE, bounded_lines, parse_json, read_bounded

_DAMAGED = (ValueError, LookupError, TypeError, AttributeError)
STATE, CASES = "hunt.json", "cases.ndjson"
_LOCK = ".hunt.lock"
"""Not that of runs, which may be written to the same folder while a hunt of hours uses it."""
_VERSION = 1


class Corpus:
    """The folder of one hunt, for it alone until it is left; ``tools`` tells hunts of different tools apart."""

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
            state = self._state()
        except BlockingIOError:
            raise BadOption(f"--corpus {self._folder}: another hunt is using it; give another folder") from None
        except OSError as error:
            raise BadOption(f"--corpus {self._folder}: {error.strerror}") from None
        except _DAMAGED as error:
            raise BadOption(f"--corpus {self._folder}: {STATE} is not that of a hunt: {error}") from None
        if state is None:
            write_file(self._folder / CASES, "")
            return 0
        for key, mine in (("version", _VERSION), ("seed", hunt.seed), ("tools", self._tools)):
            if state[key] != mine:
                text = f"--corpus {self._folder}: its hunt has {key} {state[key]!r:.200}, this one {mine!r:.200}"
                raise BadOption(f"{text}; give another folder")
        self._read_cases(hunt, _tally(state["tally"]).cases)
        hunt.tally = _tally(state["tally"])
        return hunt.tally.cases

    def add(self, hunt: Hunt, played: Iterable[tuple[HuntCase, HuntResult]]) -> None:
        """Write a batch that the hunt has learned from."""
        kept = {case.number for case in hunt.corpus[-1000:]}
        with (self._folder / CASES).open("a", encoding="utf-8") as file:
            for case, result in played:
                line: dict[str, Any] = {"number": case.number, "digest": case.digest}
                if case.number in kept or result.findings:
                    line |= {"data": case.data, "origin": case.origin, "promises": case.promises}
                if case.number in kept:
                    line["behaviour"] = sorted(result.behaviour)
                if result.findings:
                    line["findings"] = [{"how": one.how.as_dict(), "sentence": one.sentence} for one in result.findings]
                file.write(json.dumps(line) + "\n")
        state = {"version": _VERSION, "seed": hunt.seed, "tools": self._tools, "tally": _data(hunt.tally)}
        write_file(self._folder / STATE, json.dumps(state, indent=1) + "\n")

    def _state(self) -> dict[str, Any] | None:
        file = self._folder / STATE
        if not file.exists():
            return None
        state: dict[str, Any] = parse_json(read_bounded(file, MAX_LINE), STATE)
        _tally(state["tally"])
        return state if {"version", "seed", "tools"} <= state.keys() else None

    def _read_cases(self, hunt: Hunt, count: int) -> None:
        file = self._folder / CASES
        with file.open("rb+") as lines:
            read = bounded_lines(lines, CASES)
            for number in range(1, count + 1):
                _, line = next(read, (number, b""))
                if not line:
                    raise BadOption(f"--corpus {self._folder}: {CASES} has fewer cases than {STATE} says")
                try:
                    _learn(hunt, parse_json(line, f"line {number}"))
                except _DAMAGED as error:
                    raise BadOption(f"--corpus {self._folder}: line {number} of {CASES} is damaged: {error}") from None
            lines.truncate(lines.tell())  # an interrupted batch


def _learn(hunt: Hunt, line: dict[str, Any]) -> None:
    hunt.seen.add(line["digest"])
    if "data" not in line:
        return
    case = HuntCase(line["number"], line["data"], line["origin"], tuple(line["promises"]))
    if "behaviour" in line:
        hunt.covered.update(line["behaviour"])
        hunt.corpus.append(case)
    for one in line.get("findings", ()):
        hunt.add(Failure(How.from_dict(one["how"]), str(one["sentence"])), case)


def _data(tally: Tally) -> dict[str, Any]:
    return {
        "cases": tally.cases,
        "strikes": [[*key, count] for key, count in sorted(tally.strikes.items())],
        "states": [[*key, count] for key, count in sorted(tally.states.items())],
        "outcomes": dict(sorted(tally.outcomes.items())),
        "events": dict(sorted(tally.events.items())),
        "growth": tally.growth,
    }


def _tally(data: dict[str, Any]) -> Tally:
    tally = Tally(int(data["cases"]))
    tally.strikes.update({(kind, phase): count for kind, phase, count in data["strikes"]})
    tally.states.update({(promise, state): count for promise, state, count in data["states"]})
    tally.outcomes.update(data["outcomes"])
    tally.events.update(data["events"])
    tally.growth = [(cases, covered) for cases, covered in data["growth"]]
    return tally
