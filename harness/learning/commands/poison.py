"""``sfusion poison``: show what lost calls did to the advantages of a training.

Reads the rollouts that a trainer dumps (verl's trainer.rollout_data_dir, sfusion rollout --out,
sfusion train --dump). Samples whose last tool call was lost are recognised by the event log of the
tool, by what the dump says, or by texts that tools are known to write.

Exit code 0, or with --fail-above 1 if lost samples carry more of the gradient's weight; 2 if the
input is wrong.

Example: sfusion poison dumps --events logs --html poison.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument

from ....fakes.faults.pattern import check_pattern
from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import Html, Json
from ...core.advantages import Estimator
from ...core.logs.reading import UnreadableLines, read_records
from ...errors import BadOption, NoDump
from ...reports import Reports
from ..dumps import DumpReader, read_keys
from ..evidence import Evidence
from ..poison import Poison
from ..poison_summary import PoisonReporter, render_poison, sentences


@command
def poison(
    dumps: Annotated[
        list[Path],
        Argument(metavar="DUMP", help="Directories of <step>.jsonl files, or such files."),
    ],
    events: Annotated[
        list[Path] | None, option("Event logs of the tool, or folders of them. Repeatable.", "LOG")
    ] = None,
    estimator: Annotated[
        Estimator, option("How the trainer makes advantages of scores.")
    ] = Estimator.GRPO,
    lost_pattern: Annotated[
        str | None,
        option("A regular expression: a tool message that matches was a lost call.", "REGEX"),
    ] = None,
    key: Annotated[
        list[str] | None,
        option(
            "Another key of the dump for input, output, score, step, group, id (of the "
            "trajectory) or lost "
            "(number of lost calls). Repeatable.",
            "NAME=KEY",
        ),
    ] = None,
    scores: Annotated[
        str, option("Scores of a failed and of a passed sample.", "LOW,HIGH")
    ] = "0,1",
    fail_above: Annotated[
        float | None,
        option("Exit with 1 if lost samples carry more than this share of the weight.", "SHARE"),
    ] = None,
    html: Html = None,
    json: Json = None,
) -> int:
    keys = read_keys(key or ())
    bounds = _bounds(scores)
    if fail_above is not None and not 0 <= fail_above <= 1:
        raise BadOption(f"--fail-above {fail_above:g}: give a share from 0 to 1, such as 0.05")
    try:
        if lost_pattern == "":
            raise ValueError("an empty one matches every message")
        check_pattern(lost_pattern)
    except ValueError as error:
        raise BadOption(f"--lost-pattern: {error}") from None
    Reports(html=html, json=json).check()
    problems = UnreadableLines()
    evidence = Evidence(pattern=lost_pattern, lost_key=next(iter(keys["lost"]), None))
    if events:
        evidence.add_log(read_records(events, problems))
        if not evidence.logged_calls:
            named = ", ".join(map(str, events))
            raise BadOption(
                f"--events {named}: no call of a tool in it; give the tool's event log, not a dump"
            )
    reader = DumpReader(dumps, evidence, keys, problems)
    found = Poison(estimator, bounds)
    with PoisonReporter(text_stream(json), reader.total_bytes) as reporter:
        for step in reader:
            found.add(step)
            reporter.read(reader.bytes)
        if not found.total.samples and not found.total.unscored:
            why = problems.first[0] if problems.first else "no line in it"
            raise NoDump(f"{', '.join(map(str, dumps))}: no sample in it; {why}")
        _check_keys(reader, key or ())
        said = sentences(found, reader, evidence, problems.count)
        if html is not None:
            write_file(html, render_poison(found, said, list(map(str, dumps))))
        write_json(
            json,
            as_data(
                found=found, reader=reader, evidence=evidence, said=said, unread=problems.count
            ),
        )
        reporter.tell(found, said)
        for problem in problems.first:
            reporter.print(problem, "dim")
        if fail_above is not None:
            _check_judged(found, reader, evidence)
        share = found.total.weight_share
        if fail_above is None or share <= fail_above:
            return 0
        reporter.print(
            f"Lost samples carry {share:.1%} of the weight, more than --fail-above {fail_above:g}.",
            "red",
        )
        return 1


def _check_keys(reader: DumpReader, given: Sequence[str]) -> None:
    """Refuse keys that no line has. Lost calls may be counted only where there are some, so that
    one is only told."""
    for text in given:
        name = text.partition("=")[0]
        if name in reader.missing and name != "lost":
            raise BadOption(f"--key {text}: no line of the dump has this key")
        if name in reader.missing:
            reader.notes.append(f"No line of the dump has the key of --key {text}.")


def _check_judged(found: Poison, reader: DumpReader, evidence: Evidence) -> None:
    """Refuse to be a gate that would pass whatever happened."""
    why = ""
    if not found.total.samples:
        why = "no sample has a score"
    elif evidence.logged_calls and not evidence.matched:
        why = "no sample belongs to a trajectory of the event log"
    if why:
        raise NoDump(
            f"{', '.join(map(str, reader.files[:3]))}: {why}, so --fail-above has nothing to judge"
        )


def as_data(
    found: Poison, reader: DumpReader, evidence: Evidence, said: list[str], unread: int
) -> dict[str, object]:
    """Return the answer for ``--json``."""
    return {
        "poison": 1,
        "estimator": found.estimator.value,
        "files": list(map(str, reader.files)),
        "recognised_by": dict(evidence.used),
        "unreadable_lines": unread,
        "sentences": said,
        "total": found.total.as_data(),
        "steps": [{"step": step, **figures.as_data()} for step, figures in found.steps],
        "worst_groups": [group.as_data() for group in found.worst],
    }


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise BadOption(f"--scores {text}: give two numbers, such as 0,1 or -1,1") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadOption(f"--scores {text}: the first must be below the second, and both finite")
    return low, high
