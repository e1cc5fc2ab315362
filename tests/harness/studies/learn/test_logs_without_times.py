"""What a log does not say is left out of its scenario, and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.studies.learn.attempts import joined
from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned, learn

LINE = 'INFO:     10.0.0.7:40312 - "POST /run_code HTTP/1.1" {status}\n'


def learned_from(tmp_path: Path, lines: list[str]) -> tuple[Learned, str, dict[str, Any]]:
    (tmp_path / "uvicorn.log").write_text("".join(lines))
    learned = learn(joined(read_records([tmp_path / "uvicorn.log"])))
    text = scenario_text(learned, "learned", "an access log")
    return learned, text, yaml.safe_load(text)


def test_no_seconds_are_learned_from_a_log_without_times(tmp_path: Path) -> None:
    status = ["500 Internal Server Error" if 400 <= n < 500 else "200 OK" for n in range(600)]
    learned, text, data = learned_from(tmp_path, [LINE.format(status=one) for one in status])
    assert data["load"] == {"calls": 600, "concurrency": 16, "program": [{}]}
    assert set(data["tools"]) == {"enable_global_rate_limit", "max_attempts"}
    (rule,) = data["sandbox"]["faults"]
    assert (rule["after"], rule["times"], rule["what"]) == (400, 100, {"status": 500})
    assert (
        learned.causes[0].says == "status 500 from request 401 to request 500, 100% of the requests"
    )
    assert " s to " not in text
    assert "assumed" in text
    assert learned.remarks == (
        "the log has no times: how calls arrive, how long programs run, limits and outages "
        "cannot be learned from it; "
        "16 callers are assumed, and programs that take no time",
    )
    checked = check(learned, text)
    assert checked.agrees, checked


def test_no_durations_are_learned_from_a_log_without_them(tmp_path: Path) -> None:
    lines = [
        f"2026-03-01 10:{n // 600:02d}:{n // 10 % 60:02d}.{n % 10}00 "
        + LINE.format(status="429 Too Many Requests" if 200 <= n < 240 else "200 OK")
        for n in range(600)
    ]
    learned, text, data = learned_from(tmp_path, lines)
    assert data["load"]["program"] == [{}]
    assert data["load"]["think"] == {"uniform": [0, pytest.approx(59.9, abs=0.1)]}
    assert "default_timeout" not in data["tools"]
    assert data["sandbox"]["faults"][0]["between"] == [
        pytest.approx(20, abs=0.1),
        pytest.approx(24, abs=0.1),
    ]
    assert "model" not in data["sandbox"], "how many were in flight is not known"
    (remark,) = learned.remarks
    assert remark.startswith(
        "the log has no durations: how long programs run, how many calls are under way"
    )
    assert check(learned, text).agrees
