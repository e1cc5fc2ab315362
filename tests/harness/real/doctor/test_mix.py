"""The knee is measured with the user's own programs, and the result goes into a sweep once."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox, ProgramScript
from sfusion.harness.cli import app
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.real.doctor.knee import model_file
from sfusion.harness.real.doctor.mix import Mix, mix_of_files, mix_of_log
from sfusion.harness.studies.sweep.measured import with_measured
from sfusion_tools.errors import InputError
from tests.harness.real.doctor.servers import GREETS, PATIENT, examined, only, seen
from tests.sfusion_tools.sandbox.helpers import virtually

SWEEP = only("connection", "ping", "run_code", "throughput")
PLAN = replace(PATIENT, levels=16, sweep_seconds=100.0)
SHORT, LONG = "short()", "long()"


def logged(code: str, seconds: float, **more: str) -> str:
    attempt = {"outcome": "ok", "run_seconds": seconds}
    call = {"event_log": 1, "began": 1.0, "outcome": "ok", "code": code, "attempts": [attempt]}
    return json.dumps({**call, **more}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three programs of four are short."""
    file = tmp_path / "events.ndjson"
    lines = [logged(LONG if n % 4 == 0 else SHORT, 1.0 if n % 4 == 0 else 0.1) for n in range(40)]
    file.write_text("".join(lines) + logged("int main() {}", 0.1, language="cpp"))
    return file


def test_a_mix_has_long_and_short_programs_in_the_shares_of_the_log(log: Path) -> None:
    mix = mix_of_log(log)
    assert mix.says == "40 programs of events.ndjson"
    for count in (12, 48):
        picked = mix.pick(count)
        assert picked.count(LONG) == count // 4
        assert picked == mix.pick(count), "the same in every sweep"
        assert picked == sorted(picked), "the long ones first: none of them is left for the end"


def test_a_log_without_code_says_how_to_get_it(tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text('{"event_log": 1, "began": 1.0, "outcome": "ok", "attempts": []}\n')
    with pytest.raises(InputError, match=r"include: \[code\]"):
        mix_of_log(file)
    done = CliRunner().invoke(app, ["doctor", "http://127.0.0.1:9", "--log", str(file)])
    assert (done.exit_code, "include: [code]" in done.output) == (2, True), done.output


def test_a_packed_log_is_refused_as_such(log: Path) -> None:
    packed = log.with_suffix(".ndjson.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    with pytest.raises(InputError, match=r"events\S*\.gz: it is packed; unpack it"):
        mix_of_log(packed)


def test_files_and_a_log_are_not_given_together(log: Path, tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    program.write_text("print(1)")
    assert mix_of_files([program, program]).programs == ("print(1)", "print(1)")
    both = ["--log", str(log), "--program", str(program)]
    done = CliRunner().invoke(app, ["doctor", "http://127.0.0.1:9", *both])
    assert (done.exit_code, "give one of them" in done.output) == (2, True), done.output


@virtually
async def test_the_knee_of_mixed_programs_is_that_of_their_mean(tmp_path: Path) -> None:
    """Four cores; a quarter of the programs takes ten times as long as the others."""
    scripts = [
        ProgramScript(pattern="short", seconds=0.1),
        ProgramScript(pattern="long", seconds=1.0, exit=1),
        GREETS,
    ]
    model = {"kind": "unbounded", "cores": 4}
    mix = Mix((SHORT, SHORT, SHORT, LONG), "4 programs")
    async with FakeSandbox(executor="scripted", scripts=scripts, model=model) as sandbox:
        result = await examined(sandbox.url, replace(PLAN, mix=mix), checks=SWEEP)
    assert "measured with 4 programs" in seen(result, "rate-limit")
    measured = result.measured
    assert measured["server_model"]["model"]["cores"] == pytest.approx(4, rel=0.15)
    text = model_file(measured, "x")
    found = yaml.safe_load(text)
    assert found["observed"] == {"rate_limit": [4, None]}, "fewer were seen to do less"
    alone = found["load"]["program"]["seconds"]["choice"]
    assert sum(seconds > 0.5 for seconds in alone) == len(alone) / 4

    file = tmp_path / "model.yaml"
    file.write_text(text)
    learned = """
scenario: learned
about: Its programs have the server's queue in them.
load: {calls: 40, concurrency: 16, program: [{seconds: 2.5}]}
observed: {rate_limit: [16, 16], unknown: is that a queue}
promises: [every_call_ends_once]
"""
    (scenario,) = parse_scenarios(learned)
    with_model = with_measured(scenario, file)
    assert with_model.plain["load"]["program"] == [{"seconds": {"choice": alone}}]
    assert with_model.observed is not None
    assert with_model.observed.unknown == ""


@virtually
async def test_long_programs_do_not_hide_what_more_at_a_time_do() -> None:
    """A server without any limit: twice as many at a time are twice as many per second."""
    scripts = [
        ProgramScript(pattern="short", seconds=0.1),
        ProgramScript(pattern="long", seconds=2.0),
        GREETS,
    ]
    mix = Mix((SHORT, SHORT, SHORT, LONG), "4 programs")
    async with FakeSandbox(executor="scripted", scripts=scripts) as sandbox:
        result = await examined(sandbox.url, replace(PLAN, mix=mix), checks=SWEEP)
    mean = (3 * 0.1 + 2.0) / 4
    measured = {point["concurrency"]: point["throughput"] for point in result.measured["sweep"]}
    assert max(measured) >= 8
    assert measured == pytest.approx({level: level / mean for level in measured}, rel=0.15)


@virtually
async def test_programs_that_sleep_leave_open_how_programs_share_cores() -> None:
    async with FakeSandbox(executor="scripted", scripts=[GREETS]) as sandbox:
        result = await examined(sandbox.url, replace(PLAN, sweep_sleep=0.05), checks=SWEEP)
    observed = yaml.safe_load(model_file(result.measured, "x"))["observed"]
    assert observed["rate_limit"] == [1, 16], "throughput still rose there"
    assert "how your programs share cores is not in it" in observed["unknown"]
