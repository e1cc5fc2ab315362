"""What the server reports is the program's time; the rest of a request is a queue, the cost of
starts, or the way there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.knowledge import limit_to_try
from sfusion.harness.studies.learn.learned import learn
from sfusion.harness.studies.sweep.measured import with_measured
from sfusion_tools.record import Call
from tests.cases import every
from tests.harness.studies.made_calls import attempt_at, call_at

RUN = 0.1
"""Seconds that the server reports of programs that sleep 0.2 s, as in a real production."""


def production(
    *, limit: int = 16, calls: int = 250, cost: float = 0.0, beside: float = 0.1, seed: int = 5
) -> list[Call]:
    """A client keeps ``limit`` requests in flight; each waits ``cost`` seconds for the start of
    each program before it, and takes some seconds beside that. Times vary as on a real server."""
    draw = random.Random(seed)
    ends = [0.0] * limit
    loop = 0.0
    found = []
    for number in range(calls):
        ends.sort()
        began = ends[0]
        started = began
        if cost:
            started = loop = max(loop, began) + cost * draw.lognormvariate(0.0, 0.4)
        ran = RUN * draw.lognormvariate(0.0, 0.1)
        ends[0] = started + ran + beside * draw.lognormvariate(0.0, 0.15)
        sent = attempt_at(began, ends[0] - began, "s", 200, "ok", waited=began, execution_time=ran)
        found.append(call_at(f"c{number}", 0.0, ends[0], "client", "ok", "w", (sent,)))
    return found


SERIAL = {"cost": 0.07}
"""Starts one after the other: 16 in flight take 1.22 s."""
FIXED = {"beside": 1.12}
"""The way there takes 1.12 s, however many are in flight."""


@every((SERIAL, FIXED), str)
def test_programs_have_the_time_that_the_server_reports(kind: dict[str, Any]) -> None:
    learned = learn(production(**kind))
    (program,) = learned.programs
    assert program.seconds is not None
    assert program.seconds.median == pytest.approx(RUN, rel=0.1)
    checked = check(learned, scenario_text(learned, "x", "x"))
    assert checked.agrees, [row for row in checked.rows if not row.agrees]


@pytest.mark.parametrize("seed", range(4))
def test_a_cost_of_starts_is_found_although_nearly_all_met_the_same_load(seed: int) -> None:
    learned = learn(production(**SERIAL, seed=seed))
    assert learned.headline == "spawn"
    model = learned.sandboxes[0].slowness.model
    assert model["spawn_cost"] == pytest.approx(SERIAL["cost"], rel=0.2)


@pytest.mark.parametrize("seed", range(4))
def test_a_delay_that_a_light_load_has_too_is_no_cost_of_starts(seed: int) -> None:
    learned = learn(production(**FIXED, seed=seed))
    overhead = learned.sandboxes[0].overhead
    assert overhead is not None
    assert overhead.is_fixed
    assert overhead.delay.median == pytest.approx(1.12, rel=0.1)
    assert learned.sandboxes[0].slowness.model == {}
    assert "overhead" in [cause.kind for cause in learned.causes]


@every((SERIAL, FIXED), str)
def test_without_a_light_load_it_says_that_it_cannot_tell(kind: dict[str, Any]) -> None:
    in_the_middle = production(**kind)[60:]
    learned = learn(in_the_middle)
    assert learned.sandboxes[0].slowness.model == {}
    unknown = learned.knowledge.unknown
    assert "whether that is a queue in the server, the cost of starts or the way there" in unknown
    assert "with rate_limit 12" in unknown, "it never halves a running production"
    assert learned.knowledge.least == learned.knowledge.most == 16


@every(((1, 2), (2, 3), (3, 4), (4, 3), (16, 12), (64, 48)), str)
def test_an_experiment_never_halves_a_running_production(case: tuple[int, int]) -> None:
    limit, other = case
    assert limit_to_try(limit) == other


def swept(tmp_path: Path, scenario: str, model: dict[str, Any]) -> tuple[int, str]:
    (tmp_path / "learned.yaml").write_text(scenario)
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(model))
    arguments = ["--vary", "tools.rate_limit=4,16", "--seeds", "1", "--jobs", "1"]
    files = [str(tmp_path / "learned.yaml"), "--model", str(tmp_path / "model.yaml")]
    result = CliRunner().invoke(app, ["sweep", *files, *arguments])
    return result.exit_code, result.output


def test_a_measured_model_takes_the_place_of_the_rest(tmp_path: Path) -> None:
    text = scenario_text(learn(production(**FIXED)[60:]), "learned", "a log")
    (learned,) = parse_scenarios(text)
    assert [rule.name for rule in learned.sandbox.faults] == ["overhead"]
    file = tmp_path / "model.yaml"
    file.write_text("sandbox: {model: {kind: unbounded, spawn_cost: 0.07}}\n")
    measured = with_measured(learned, file)
    assert measured.sandbox.faults == []
    assert measured.sandbox.model.spawn_cost == 0.07


def test_the_doubt_of_a_log_stays_unless_its_own_programs_were_measured(tmp_path: Path) -> None:
    text = scenario_text(learn(production(**SERIAL)[60:]), "learned", "a log")
    model: dict[str, Any] = {"sandbox": {"model": {"kind": "unbounded", "spawn_cost": 0.07}}}
    code, shown = swept(tmp_path, text, model)
    assert (code, "a queue in the server" in shown) == (0, True), shown
    sleeping = {"rate_limit": [1, 32], "unknown": "how programs share cores"}
    code, shown = swept(tmp_path, text, {**model, "observed": sleeping})
    assert (code, shown.splitlines()[-1]) == (1, "tools.rate_limit: cannot tell")
    assert "the model of --model: how programs share cores" in shown
    own = {"observed": {"rate_limit": [1, 32]}, "load": {"program": {"seconds": 0.2}}}
    code, shown = swept(tmp_path, text, {**model, **own})
    assert (code, shown.splitlines()[-1]) == (0, "tools.rate_limit: 4"), shown
    assert "a queue in the server" not in shown


def test_programs_that_were_measured_alone_take_the_place_of_those_of_the_log(
    tmp_path: Path,
) -> None:
    text = scenario_text(learn(production(**FIXED)[60:]), "learned", "a log")
    (learned,) = parse_scenarios(text)
    file = tmp_path / "model.yaml"
    alone = {"load": {"program": {"seconds": {"choice": [0.2, 0.3]}}}}
    file.write_text(yaml.safe_dump({"sandbox": {"model": "unbounded"}, **alone}))
    (program,) = with_measured(learned, file).plain["load"]["program"]
    assert program["seconds"] == {"choice": [0.2, 0.3]}


@every(
    (
        ("[{}]", [{"seconds": 0.2}]),  # learned from a log without durations
        ("{seconds: 2}", {"seconds": 0.2}),
        (
            "[{seconds: 100000}, {share: 2, arguments: {kode: x}}]",
            [{"seconds": 100_000}, {"share": 2, "arguments": {"kode": "x"}}],
        ),
    ),
    str,
)
def test_measured_programs_replace_all_but_those_that_never_end_or_begin(
    case: tuple[str, Any], tmp_path: Path
) -> None:
    programs, expected = case
    (scenario,) = parse_scenarios(f"""
scenario: x
about: x
load: {{program: {programs}}}
promises: [every_call_ends_once]
""")
    file = tmp_path / "model.yaml"
    file.write_text("{sandbox: {model: unbounded}, load: {program: {seconds: 0.2}}}")
    assert with_measured(scenario, file).plain["load"]["program"] == expected
