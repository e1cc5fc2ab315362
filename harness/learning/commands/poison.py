"""``sfusion poison``: show what lost calls did to a training.

Reads the rollouts that a trainer dumps: verl's trainer.rollout_data_dir, lines of TRL, verifiers,
prime-rl, NeMo Gym, NeMo RL, slime, miles, rLLM and open-instruct, sfusion rollout --out. Samples
whose last tool call was lost are recognised by the event log of the tool, by what the dump says, or
by texts that tools are known to write.

Exit code 0. With --fail-above or --limit, 1 if lost calls did too much, and 2 if nothing tells; 2
if the input is wrong.

Example: sfusion poison dumps --events logs --html poison.html
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument

from sfusion_tools.advantages import Estimator, Handling

from ....fakes.faults.pattern import check_pattern
from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import Html, Json
from ...core.logs.reading import UnreadableLines, read_records
from ...errors import BadOption, NoDump
from ...reports import Reports
from ..answer import answer
from ..dumps import DumpedStep, DumpReader, read_keys
from ..evidence import Evidence
from ..figures import Weighting
from ..gate import read_limits
from ..poison import Poison
from ..poison_page import PoisonReporter, render_poison
from ..poison_sentences import first_sentences, headline, notes


@command
def poison(
    dumps: Annotated[
        list[Path],
        Argument(metavar="DUMP", help="Directories of a trainer's dumps, or files of them."),
    ],
    events: Annotated[
        list[Path] | None, option("Event logs of the tool, or folders of them. Repeatable.", "LOG")
    ] = None,
    estimator: Annotated[
        Estimator, option("How the trainer makes advantages of scores.")
    ] = Estimator.GRPO,
    trained: Annotated[
        Handling | None,
        option(
            "What the trainer did with lost samples: zero (trained on their score), mask, exclude "
            "or drop. Default: zero, or what a known trainer does with samples that it declares "
            "lost."
        ),
    ] = None,
    weigh: Annotated[
        Weighting | None,
        option("What a sample weighs in the loss. Default: tokens where the dump has them."),
    ] = None,
    lost_pattern: Annotated[
        str | None,
        option("A regular expression: a tool message that matches was a lost call.", "REGEX"),
    ] = None,
    output_pattern: Annotated[
        str | None,
        option("A regular expression: a tool message that matches is a program's output.", "REGEX"),
    ] = None,
    key: Annotated[
        list[str] | None,
        option(
            "Another key of the dump for input, output, score, step, group, id (of the "
            "trajectory), tokens, lost (number of lost calls) or reward_lost. Repeatable.",
            "NAME=KEY",
        ),
    ] = None,
    between: Annotated[
        str | None,
        option(
            "Explain the drop between these steps instead of the largest one, as in 10-20,21-30.",
            "STEPS,STEPS",
        ),
    ] = None,
    scores: Annotated[
        str, option("Scores of a failed and of a passed sample.", "LOW,HIGH")
    ] = "0,1",
    fail_above: Annotated[
        float | None,
        option(
            "Gate for CI: exit with 1 if the share of lost samples, their share of the gradient's "
            "weight or the share of dead groups (at most one healthy sample) is above this; twice "
            "that in a window of 10 steps, five times that in a step. Exit with 2 if nothing "
            "tells.",
            "SHARE",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        option(
            "Set one limit of the gate: lost, weight, dead, moved, unclear or missing, each .all, "
            ".window or .step, or coverage. Repeatable.",
            "NAME=SHARE",
        ),
    ] = None,
    html: Html = None,
    json: Json = None,
) -> int:
    keys = read_keys(key or ())
    bounds = _bounds(scores)
    steps = None if between is None else _between(between)
    _check_share("--fail-above", fail_above)
    limits = read_limits(fail_above, limit or ())
    _check_handling(trained)
    _check_pattern("--lost-pattern", lost_pattern)
    _check_pattern("--output-pattern", output_pattern)
    Reports(html=html, json=json).check()
    problems = UnreadableLines()
    evidence = Evidence(
        pattern=lost_pattern,
        output_pattern=output_pattern,
        lost_key=next(iter(keys["lost"]), None),
        reward_keys=keys["reward_lost"],
    )
    if events:
        _add_events(evidence, events, problems)
    reader = DumpReader(dumps, evidence, keys, problems)
    found = Poison(estimator, bounds)
    with PoisonReporter(text_stream(json), reader.total_bytes) as reporter:
        for step in _uncollected(reader):
            found.trained = trained or reader.handling or Handling.ZERO
            found.add(step)
            reporter.read(reader.bytes)
        _check_read(found, dumps, problems)
        _check_keys(reader, key or ())
        result = answer(
            found,
            reader,
            evidence,
            limits,
            weigh=weigh,
            between=steps,
            programs=evidence.programs.losing(),
            unread=problems.count,
        )
        if steps is not None and result.drop is None:
            raise BadOption(f"--between {between}: the dump has no samples in one of these")
        if html is not None:
            write_file(html, render_poison(result, list(map(str, dumps))))
        said = [f"{headline(result)}.", *first_sentences(result), *notes(result)]
        write_json(json, result.as_data(said))
        reporter.tell(result)
        for problem in problems.first:
            reporter.print(problem, "dim")
        if fail_above is None and not limit:
            return 0
        return reporter.tell_gate(result)


def _uncollected(reader: DumpReader) -> Iterator[DumpedStep]:
    """Yield the steps with the garbage collector off.

    What is read has no cycles, and looking for them among the samples that are kept takes a fifth
    of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield from reader
    finally:
        if was_on:
            gc.enable()


def _add_events(evidence: Evidence, events: list[Path], problems: UnreadableLines) -> None:
    evidence.events.add(read_records(events, problems))
    if not evidence.events.calls:
        named = ", ".join(map(str, events))
        raise BadOption(
            f"--events {named}: no call of a tool in it; give the tool's event log, not a dump"
        )


def _check_read(found: Poison, dumps: Sequence[Path], problems: UnreadableLines) -> None:
    """Raise NoDump if no sample was read."""
    if not any(figures.samples or figures.unscored for _, figures in found.steps):
        why = problems.first[0] if problems.first else "all files are empty"
        raise NoDump(f"{', '.join(map(str, dumps))}: no sample in it; {why}")


def _check_share(name: str, share: float | None) -> None:
    if share is not None and not 0 <= share <= 1:
        raise BadOption(f"{name} {share:g}: give a share from 0 to 1, such as 0.05")


def _check_handling(trained: Handling | None) -> None:
    """Refuse what no trainer does, though poison computes it for comparison."""
    if trained in (Handling.FAILED, Handling.PASSED):
        raise BadOption(f"--trained {trained.value}: expected zero, mask, exclude or drop")


def _check_pattern(name: str, pattern: str | None) -> None:
    try:
        if pattern == "":
            raise ValueError("an empty one matches every message")
        check_pattern(pattern)
    except ValueError as error:
        raise BadOption(f"{name}: {error}") from None


def _check_keys(reader: DumpReader, given: Sequence[str]) -> None:
    """Refuse keys that no line has. Lost calls may be counted only where there are some, so that
    one is only told."""
    for text in given:
        name = text.partition("=")[0]
        if name in reader.missing and name not in ("lost", "reward_lost"):
            raise BadOption(f"--key {text}: no line of the dump has this key")
        if name in reader.missing:
            reader.notes.append(f"No line of the dump has the key of --key {text}.")


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise BadOption(f"--scores {text}: give two numbers, such as 0,1 or -1,1") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadOption(f"--scores {text}: the first must be below the second, and both finite")
    return low, high


_STRETCHES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?,(\d{1,9})(?:-(\d{1,9}))?")


def _between(text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    found = _STRETCHES.fullmatch(text)
    if found is None:
        raise BadOption(f"--between {text}: give two steps or stretches, such as 10-20,21-30")
    return _stretch(found[1], found[2]), _stretch(found[3], found[4])


def _stretch(first: str, last: str | None) -> tuple[int, int]:
    """Return the first and the last step; without a last one it is a single step."""
    return int(first), int(last or first)
