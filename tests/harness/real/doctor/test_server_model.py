"""The server model that follows from a sweep of a sandbox."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.scenarios import read_scenarios
from sfusion.harness.real.doctor.examination import Examination
from sfusion.harness.real.doctor.knee import FittedModel, Point, fit_model, model_file
from sfusion.harness.real.doctor.settings import SandboxSettings

LEVELS = (1, 2, 4, 8, 16)


def points(*throughputs: float, alone: float) -> list[Point]:
    return [
        Point(level, rate, max(alone, level / rate), 2 * level)
        for level, rate in zip(LEVELS, throughputs, strict=True)
    ]


@pytest.mark.parametrize(
    ("throughputs", "alone", "sleeps", "model"),
    [
        ((10, 20, 40, 57, 57), 0.1, 0.1, {"kind": "queue", "workers": 6}),
        ((10, 20, 40, 58, 58), 0.1, None, {"kind": "unbounded", "cores": 5.8}),
        ((7, 14, 24, 25, 25), 0.14, 0.1, {"kind": "unbounded", "spawn_cost": 0.04}),
        ((7, 13, 26, 40, 40), 0.15, 0.1, {"kind": "queue", "workers": 6}),
        ((10, 20, 40, 80, 160), 0.1, 0.1, {"kind": "unbounded"}),
        ((10, 20, 40, 60, 20), 0.1, None, {"kind": "unbounded", "cores": 6.0}),
    ],
)
def test_what_limits_throughput_becomes_the_model(
    throughputs: tuple[float, ...], alone: float, sleeps: float | None, model: dict[str, Any]
) -> None:
    found = fit_model(points(*throughputs, alone=alone), sleeps=sleeps)
    assert found is not None
    assert found.model == model


def test_a_collapse_is_named_because_no_model_has_it() -> None:
    found = fit_model(points(10, 20, 40, 60, 20, alone=0.1), sleeps=None)
    assert found is not None
    assert "throughput falls, which no model does" in found.reasons[1]


@pytest.mark.parametrize(
    ("refusal", "model"),
    [
        ((429, 2.0), {"kind": "quota", "in_flight": 5, "retry_after": 2.0}),
        ((429, None), {"kind": "quota", "in_flight": 5}),
        ((503, None), {"kind": "queue", "workers": 4, "waiting": 1, "status": 503}),
    ],
)
def test_refusals_become_a_quota_or_a_queue(
    refusal: tuple[int, float | None], model: dict[str, Any]
) -> None:
    measured = [
        Point(1, 10, 0.1, 2),
        Point(2, 20, 0.1, 4),
        Point(4, 40, 0.1, 8),
        Point(8, 40, 0.1, 16, throttled=6),
    ]
    found = fit_model(measured, sleeps=0.1, status=refusal[0], retry_after=refusal[1])
    assert found is not None
    assert found.model == model


def test_no_model_of_a_sandbox_that_does_not_work() -> None:
    assert fit_model([Point(1, 0, 0, 2, failed=2)], sleeps=0.1) is None


def _measured(measured: list[Point], fitted: FittedModel) -> dict[str, Any]:
    model = asdict(fitted) | {"programs": "programs that sleep 0.1 s"}
    return {"sweep": [asdict(point) for point in measured], "server_model": model}


def test_the_file_is_a_commented_part_of_a_scenario(tmp_path: Path) -> None:
    measured = points(10, 20, 40, 57, 57, alone=0.1)
    fitted = fit_model(measured, sleeps=0.1)
    assert fitted is not None
    text = model_file(_measured(measured, fitted), "http://a\nb: 1")
    (tmp_path / "model.yaml").write_text(text)
    (tmp_path / "mine.yaml").write_text(
        "extends: model.yaml\nscenario: mine\nabout: It.\nload: {calls: 1}\npromises: "
        "[every_call_ends_once]\n"
    )
    (scenario,) = read_scenarios(tmp_path / "mine.yaml")
    assert scenario.sandbox.model.as_data() == {"kind": "queue", "workers": 6}
    assert "#         8        57.0          0.140 s        0" in text


def test_doctor_writes_what_it_measured_for_a_sweep(tmp_path: Path) -> None:
    model, scenario = tmp_path / "model.yaml", tmp_path / "mine.yaml"
    scenario.write_text(
        "scenario: mine\nabout: It.\nload: {calls: 24, program: {seconds: 0.1}}\npromises: "
        "[every_call_ends_once]\n"
    )
    measured = [
        Point(1, 10, 0.1, 2),
        Point(2, 20, 0.1, 4),
        Point(4, 40, 0.1, 8),
        Point(8, 40, 0.1, 16, throttled=6),
    ]
    fitted = fit_model(measured, sleeps=0.1, status=429, retry_after=1.0)
    assert fitted is not None
    model.write_text(model_file(_measured(measured, fitted), "http://127.0.0.1:9/run_code"))
    swept = CliRunner().invoke(
        app,
        [
            "sweep",
            str(scenario),
            "--vary",
            "tools.rate_limit=4,16",
            "--seeds",
            "1",
            "--jobs",
            "1",
            "--model",
            str(model),
        ],
    )
    assert "the sandbox gives 429" in swept.output
    assert "tools.rate_limit: 4" in swept.output


def test_without_a_model_to_write_the_command_fails_though_nothing_breaks_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def throttled(settings: SandboxSettings, *_: object, **__: object) -> Examination:
        return Examination(settings, reached=True)

    monkeypatch.setattr("sfusion.harness.real.doctor.command.examine", throttled)
    model = tmp_path / "model.yaml"
    found = tmp_path / "found.json"
    options = ["--model-out", str(model), "--json", str(found)]
    done = CliRunner().invoke(app, ["doctor", "http://127.0.0.1:9", *options])
    assert (done.exit_code, model.exists()) == (1, False)
    assert json.loads(found.read_text())["exit_code"] == 1
    assert "model.yaml was not written: the sweep measured nothing" in done.output


def test_a_model_needs_the_sweep(tmp_path: Path) -> None:
    command = [
        "doctor",
        "http://127.0.0.1:9",
        "--quick",
        "--model-out",
        str(tmp_path / "model.yaml"),
    ]
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, "--model-out needs the sweep" in refused.output) == (2, True)
