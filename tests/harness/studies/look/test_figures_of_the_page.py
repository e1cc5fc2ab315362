"""Every figure on a page of ``look``, computed in another way from the lines of the same log."""

from __future__ import annotations

import json
import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.reports.run_report import duration
from sfusion_tools.outcome import FAILURES
from tests.harness.studies.look.made_up import START, degrading
from tests.harness.studies.look.test_look_command import write

NO_ANSWER = ("unreachable", "bad_arguments")


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[dict[str, Any]], str, dict[str, Any], str]:
    """The lines of a log, and its page, JSON and summary."""
    folder = tmp_path_factory.mktemp("figures")
    log = write(folder / "events.ndjson", degrading(1500))
    done = CliRunner().invoke(
        app,
        [
            "look",
            str(log),
            "--html",
            str(folder / "page.html"),
            "--json",
            str(folder / "look.json"),
        ],
    )
    assert done.exit_code == 0
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    page = unescape((folder / "page.html").read_text())
    return lines, page, json.loads((folder / "look.json").read_text()), done.output


def tiles(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))


def seconds(text: str) -> float:
    """What a duration says, in seconds."""
    units = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
    return sum(
        float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (ms|min|s|h)", text)
    )


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def spans(lines: list[dict[str, Any]], kind: str) -> list[tuple[float, float]]:
    found = []
    for line in lines:
        for one in line["attempts"]:
            began = line["began"] + one["after"]
            found.append(
                (began, began + one["seconds"])
                if kind == "in_flight"
                else (began - one["waited"], began)
            )
    return found


def crowd(parts: list[tuple[float, float]], at: float) -> int:
    return sum(began <= at < ended for began, ended in parts)


def test_tiles(shown: Any) -> None:
    lines, page, _, _ = shown
    found = tiles(page)
    failed = sum(line["outcome"] in FAILURES for line in lines)
    took = [line["seconds"] for line in lines if line["outcome"] not in NO_ANSWER]
    assert found["calls"] == f"{len(lines):,}"
    assert found["failed"] == f"{failed / len(lines):.1%}"
    assert found["attempts"] == f"{sum(len(line['attempts']) for line in lines):,}"
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        assert seconds(found[name]) == pytest.approx(percentile(took, share), rel=0.03)
    ended = max(line["began"] + line["seconds"] for line in lines)
    assert found["time"] == duration(ended - min(line["began"] for line in lines))


@pytest.mark.parametrize(("tile", "kind", "curve"), [
    ("most in flight", "in_flight", "inFlight"), ("longest queue", "waiting", "waiting"),
])  # fmt: skip
def test_peaks_are_those_of_the_curve_and_of_the_log(
    shown: Any, tile: str, kind: str, curve: str
) -> None:
    lines, page, _, _ = shown
    parts = spans(lines, kind)
    drawn = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])[curve]  # type: ignore[index]
    peak = max(crowd(parts, began) for began, _ in parts)
    assert int(tiles(page)[tile]) == max(drawn[1])
    assert max(drawn[1]) == pytest.approx(peak, abs=1)


def test_outcomes_heading_and_axis(shown: Any) -> None:
    lines, page, told, output = shown
    counts = Counter(line["outcome"] for line in lines)
    key = re.findall(r"</i>(\w+) ([\d,]+) \(([\d.]+%)\)</span>", page)
    assert key == [
        (kind, f"{count:,}", f"{count / len(lines):.1%}") for kind, count in counts.most_common()
    ]
    failed = sum(count for kind, count in counts.items() if kind in FAILURES)
    when = "2025-11-15 09:46:40 UTC to 2025-11-15 10:46:40 UTC"
    heading = f"{len(lines):,} calls, {failed / len(lines):.1%} failed, {when}"
    assert output.startswith(heading)
    assert heading in page
    assert f"{max(row['calls'] for row in told['over_time']):,} calls at most in one bar" in page


def test_bars_hold_what_happened_in_their_time(shown: Any) -> None:
    lines, page, told, _ = shown
    happened = [
        (line["began"] + sum(one["after"] + one["seconds"] for one in line["attempts"]), line)
        for line in lines
    ]
    crowds = {name: spans(lines, name) for name in ("in_flight", "waiting")}
    for row in told["over_time"]:
        own = [line for at, line in happened if row["start"] <= at < row["end"]]
        assert row["outcomes"] == Counter(line["outcome"] for line in own)
        assert row["failed"] == sum(line["outcome"] in FAILURES for line in own)
        took = [line["seconds"] for line in own if line["outcome"] not in NO_ANSWER]
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            assert row[name] == (pytest.approx(percentile(took, share), rel=0.02) if took else None)
        for name, parts in crowds.items():
            inside = sum(
                max(0.0, min(ended, row["end"]) - max(began, row["start"]))
                for began, ended in parts
            )
            assert row[name] == pytest.approx(inside / (row["end"] - row["start"]), abs=0.001)
    bars = re.findall(r"<g><title>(.*?)</title>", page)
    assert len(bars) >= len(told["over_time"])


def test_sandboxes(shown: Any) -> None:
    lines, page, _, _ = shown
    for name in ("http://10.0.0.1:8080", "http://10.0.0.2:8080"):
        own = [one for line in lines for one in line["attempts"] if one["sandbox"] == name]
        failed = sum(one["outcome"] in FAILURES for one in own)
        took = [one["seconds"] for one in own if one["outcome"] not in NO_ANSWER]
        cells = re.search(rf'<td class="name">{re.escape(name)}</td>(.*?)</tr>', page)[1]  # type: ignore[index]
        attempts, share, p50, p95 = re.findall(r">([^<]+)</td>", cells)
        assert (attempts, share) == (f"{len(own):,}", f"{failed / len(own):.1%}")
        assert seconds(p50) == pytest.approx(percentile(took, 0.5), rel=0.03)
        assert seconds(p95) == pytest.approx(percentile(took, 0.95), rel=0.03)


def test_faults_malformed_calls_and_what_the_model_read(shown: Any) -> None:
    lines, page, told, _ = shown
    struck = Counter(one["fault"] for line in lines for one in line["attempts"] if "fault" in one)
    assert told["faults"] == struck
    assert f'<td class="name">busy</td><td class="number">{struck["busy"]:,}</td>' in page
    assert '<td class="name">code is missing</td><td class="number">1</td>' in page
    counts = Counter(line["outcome"] for line in lines)
    assert [(kind, count) for kind, count, _ in told["read"]] == counts.most_common()


def test_turns_and_the_suspect_are_when_the_log_changed(shown: Any) -> None:
    lines, page, told, _ = shown
    bad = [line["began"] + line["seconds"] for line in lines if line["outcome"] == "throttled"]
    worse, better = (turn for turn in told["turns"] if turn["what"] == "failed")
    width = (told["over_time"][0]["end"] - told["over_time"][0]["start"]) / 4
    assert worse["at"] == pytest.approx(min(bad), abs=2 * width)
    assert better["at"] == pytest.approx(max(bad), abs=2 * width)
    inside = [
        line for line in lines if worse["at"] <= line["began"] + line["seconds"] < better["at"]
    ]
    share = sum(line["outcome"] in FAILURES for line in inside) / len(inside)
    assert worse["after"] == pytest.approx(share, abs=0.02)
    assert "http://10.0.0.2:8080 does worse than the others" in page
    assert min(bad) > START


def test_the_page_says_how_many_calls_its_timeline_shows(shown: Any) -> None:
    lines, page, _, output = shown
    drawn = len(json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["calls"])  # type: ignore[index]
    assert f"The timeline shows {drawn:,} of {len(lines):,} calls" in page
    assert output.rstrip().splitlines()[-1].startswith("Next: sfusion learn ")
