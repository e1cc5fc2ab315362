"""What came out, beside what was predicted; and the curves."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.svg_file import svg_file
from sfusion.harness.reports.line_chart import ChartLine, ChartPoint, LineChart

from .conditions import Condition
from .predictions import closed_form_keeps

Record = Mapping[str, Any]

CLOSE = 0.1
"""Mean distance of P(tool) that was the goal."""
HEALTHY_END = 0.99
"""P at the end of every training without lost calls, about."""
MOSTLY = 0.95
"""Share of right directions that was the goal."""


def read(file: Path) -> list[Record]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def chosen_key(record: Record) -> str:
    """What the model chooses: the tool, or, where it always calls, to call several times."""
    return "several" if record["condition"]["start"] == "several" else "tool"


def without_seed(name: str) -> str:
    return name.rpartition("-s")[0]


def write_report(folder: Path, images: Path) -> str:
    """Draw the curves as images; return what came out as Markdown."""
    trainings = read(folder / "trainings.jsonl")
    baselines = read(folder / "baselines.jsonl")
    predictions = {record["name"]: record for record in read(folder / "predictions.jsonl")}
    images.mkdir(parents=True, exist_ok=True)
    curves = images / "real-training-curves.svg"
    curves.write_text(svg_file(*charts(baselines, trainings)), encoding="utf-8")
    story = images / "real-training-story.svg"
    story.write_text(svg_file(*story_charts(baselines, trainings)), encoding="utf-8")
    parts = [_table(trainings, predictions), _goals(trainings, predictions)]
    return "\n\n".join(parts)


BEGIN = "<!-- made by: python -m benchmarks.training report --write docs/real-trainings.md -->"
END = "<!-- end -->"


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _table(trainings: Sequence[Record], predictions: Mapping[str, Record]) -> str:
    """Return a row for each condition, over its seeds."""
    rows = [
        "| training | P before | P real | P predicted (range) | said "
        "| score real | score predicted | head's skill |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_condition: dict[str, list[Record]] = defaultdict(list)
    for record in trainings:
        by_condition[without_seed(record["name"])].append(record)
    for name, records in by_condition.items():
        key = chosen_key(records[0])
        told = [predictions[record["name"]] for record in records if record["name"] in predictions]
        cells = [
            name,
            _spread(record["before"][key] for record in records),
            _spread(record["after"][key] for record in records),
            _predicted(told),
            ", ".join(sorted({each["told"] for each in told})),
            _spread(record["after"]["score"] for record in records),
            _spread(each["score"] for each in told),
            f"{_mean(records, 'before')} → {_mean(records, 'after')}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _mean(records: Sequence[Record], when: str) -> str:
    return f"{fmean(record[when]['head'] for record in records):.2f}"


def _predicted(told: Sequence[Record]) -> str:
    if not told:
        return "–"
    low = min(each["range"][0] for each in told)
    high = max(each["range"][1] for each in told)
    return f"{_spread(each['predicted'] for each in told)} ({low:.2f}–{high:.2f})"


def _spread(values: Iterable[float]) -> str:
    found = sorted(values)
    if not found:
        return "–"
    if found[-1] - found[0] < 0.005:
        return f"{found[0]:.2f}"
    return f"{found[0]:.2f}–{found[-1]:.2f}"


def _goals(trainings: Sequence[Record], predictions: Mapping[str, Record]) -> str:
    """Return how well the toy predicted, by the goals that were set before."""
    right = 0
    distances: list[float] = []
    score_distances: list[float] = []
    said_kept: list[str] = []
    below_healthy: list[str] = []
    simple: list[float] = []
    simple_right = 0
    inside = 0
    outside = 0
    unsure = 0
    wrong: list[str] = []
    for record in trainings:
        told = predictions.get(record["name"])
        if told is None:
            continue
        key = chosen_key(record)
        began = record["before"][key]
        real = record["after"][key]
        distances.append(abs(real - told["predicted"]))
        score_distances.append(abs(record["after"]["score"] - told["score"]))
        inside += told["range"][0] <= real <= told["range"][1]
        outside += not told["range"][0] - 0.05 <= real <= told["range"][1] + 0.05
        unsure += told["told"] == "cannot tell"
        if (real >= began) == (told["predicted"] >= told["began"]):
            right += 1
        else:
            wrong.append(record["name"])
        if told["told"] == "kept" and real < began / 2:
            said_kept.append(record["name"])
        if told["told"] == "kept" and real < HEALTHY_END / 2:
            below_healthy.append(record["name"])
        keeps = closed_form_keeps(Condition(**record["condition"]), record["before"])
        simple.append(abs(real - float(keeps)))
        simple_right += (real >= began) == keeps
    count = len(distances)
    lines = [
        f"- direction right: {right} of {count} ({right / count:.0%}; goal {MOSTLY:.0%})",
        f"- mean distance of P: {fmean(distances):.3f} (goal {CLOSE})",
        f"- mean distance of the score on a healthy sandbox: {fmean(score_distances):.3f}",
        f'- "kept" was said and P ended below half of its start: {len(said_kept)} (goal 0); '
        f"below half of what it is without lost calls: {len(below_healthy)}",
        f"- the closed form, which knows only the skills at the start: direction right in "
        f"{simple_right} of {count}, mean distance {fmean(simple):.3f}",
        f"- within the range: {inside} of {count}; more than 0.05 away from it: {outside}; "
        f'"cannot tell" was said {unsure} times',
    ]
    lines += [f"- wrong direction: {name}" for name in wrong]
    lines += [f"- said kept, ended below half of healthy: {name}" for name in below_healthy]
    return "\n".join(lines)


def charts(baselines: Sequence[Record], trainings: Sequence[Record]) -> list[LineChart]:
    """Return the curves of docs/learning.md."""
    plain = _plain(baselines, trainings)
    return [
        _over_shares(plain, "noisy", "tool", "P(tool) of a model that knows more than it shows"),
        _over_shares(plain, "natural", "score", "Healthy score of a model that was taught half"),
        _over_shares(plain, "several", "several", "Share that still makes four calls"),
        _outage(trainings),
    ]


def story_charts(baselines: Sequence[Record], trainings: Sequence[Record]) -> list[LineChart]:
    """Return the curves of README.md: one start, what it chose and what that cost."""
    plain = _plain(baselines, trainings)
    return [
        _over_shares(plain, "several", "several", "Samples that still make four calls, not one"),
        _over_shares(plain, "several", "score", "Score of the trained model, healthy sandbox"),
    ]


def _plain(baselines: Sequence[Record], trainings: Sequence[Record]) -> list[Record]:
    """Return the trainings at the usual rate whose calls are lost one by one."""
    everything = [*baselines, *trainings]
    usual = max(record["condition"]["rate"] for record in everything)
    return [record for record in everything if _is_plain(record, usual)]


def _is_plain(record: Record, rate: float) -> bool:
    condition = record["condition"]
    special = condition["outage"] or condition["quota"] or condition["kl"]
    usual = condition["std"] and condition["attempts"] == 1 and condition["rate"] == rate
    return usual and not special


NAMES = {"zero": "scored 0", "mask": "loss mask only", "exclude": "left out"}
_TOGETHER = 2
"""Steps that make one point of the outage's curve: of single steps one sees the noise."""


def _outage(trainings: Sequence[Record]) -> LineChart:
    """Return P(tool) over the steps, of which some had no sandbox."""
    mine = [record for record in trainings if record["condition"]["outage"]]
    lines: list[ChartLine] = []
    for handling, name in NAMES.items():
        curves = [
            record["steps"]["tool"] for record in mine if record["condition"]["lost"] == handling
        ]
        points = []
        for first in range(0, min(map(len, curves), default=0), _TOGETHER):
            values = [fmean(curve[first : first + _TOGETHER]) for curve in curves]
            points.append(_point(values, f"steps {first + 1} to {first + _TOGETHER}"))
        lines.append(ChartLine(name, points))
    labels = [
        str(_TOGETHER * place + 1) for place in range(max(len(each.points) for each in lines))
    ]
    shaded = []
    if mine:
        first, last = mine[0]["condition"]["outage"]
        shaded = [((first - 1) // _TOGETHER, (last - 1) // _TOGETHER)]
    title = "P(tool) in steps without a sandbox, and after them"
    return LineChart(title, "step", labels, lines, shaded=shaded)


def _over_shares(records: Sequence[Record], start: str, what: str, title: str) -> LineChart:
    mine = [record for record in records if record["condition"]["start"] == start]
    shares = sorted({record["condition"]["share"] for record in mine})
    lines: list[ChartLine] = []
    for handling, name in NAMES.items():
        points = []
        for share in shares:
            values = [
                record["after"][what]
                for record in mine
                if record["condition"]["share"] == share
                and (record["condition"]["lost"] == handling or not share)
            ]
            points.append(_point(values, f"{share:.0%} lost"))
        lines.append(ChartLine(name, points))
    labels = [f"{share:.0%}" for share in shares]
    return LineChart(title, "calls lost", labels, lines, numbers=shares)


def _point(values: Sequence[float], note: str) -> ChartPoint:
    if not values:
        return ChartPoint(None)
    mean = fmean(values)
    return ChartPoint(mean, min(values), max(values), f"{note}: {mean:.2f}")
