"""The command ``sfusion sweep``: the grid in sim, files, and errors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.core.figures import RunFigures, figures_of
from sfusion.harness.lab.runs import read_tasks, run_scenario
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios import parse_scenarios, scenario_files
from sfusion.harness.lab.scenarios.program import ENDLESS
from sfusion.harness.studies.sweep.command import SweepOptions, SweepReporter
from sfusion.harness.studies.sweep.grid import Axis, Grid, GridSample, Measured, play_sample
from sfusion.harness.studies.sweep.measured import with_measured
from sfusion.harness.studies.sweep.result import SweepResult
from tests.cases import every

SCENARIO = """\
scenario: gateway
about: A gateway admits 4 requests at a time.
sandbox: {model: {kind: quota, in_flight: 4, retry_after: 1}}
load: {calls: 24, concurrency: 12, program: {seconds: 200ms}}
promises: [every_call_ends_once]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(SCENARIO)
    return path


def sweep(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sweep", *map(str, arguments)])
    return result.exit_code, result.output


def test_pauses_between_steps_cost_no_throughput() -> None:
    """A limit that halves the calls per second within the steps seemed to cost 2 %."""
    found = []
    for pause in (1, 500):
        (planned,) = parse_scenarios(
            f"""
scenario: steps
about: Three steps of a training, with updates between them.
load: {{calls: 24, concurrency: 8, steps: 3, step_pause: {pause}, program: {{seconds: 1}}}}
promises: [every_call_ends_once]
"""
        )
        found.append(play_sample(Task(planned, "sim")).figures)
    assert found[1].seconds > 1000
    assert found[1].throughput == pytest.approx(found[0].throughput, rel=0.01)


def test_the_grid_is_played_and_the_limit_of_the_gateway_recommended(
    scenario: Path, tmp_path: Path
) -> None:
    arguments = [
        "--vary",
        "tools.rate_limit=2,4,8",
        "--vary",
        "load.concurrency=8,12",
        "--seeds",
        "2",
        "--jobs",
        "1",
    ]
    code, text = sweep(scenario, *arguments, "--out", tmp_path / "o")
    assert code == 0, text
    assert "[6/6] tools.rate_limit 8, load.concurrency 12: " in text
    assert "concurrency 8: 4: 20 calls per second" in text
    assert "8 loses" in text
    assert "(the sandbox gives 429 to" in text
    assert text.rstrip().splitlines()[-1].startswith("tools.rate_limit: 4 (")
    assert "      -> 4            8 " in text
    found = json.loads((tmp_path / "o" / "sweep.json").read_text())
    assert found["recommended"]["value"] == 4
    assert found["settings"][0]["values"] == {"tools.rate_limit": 2, "load.concurrency": 8}
    page = (tmp_path / "o" / "sweep.html").read_text(encoding="utf-8")
    assert page.count("<svg class=") == 4
    assert "<title>4: 20" in page


def total_of_four(tmp_path: Path, least: int) -> Path:
    """A scenario that was learned from four processes, each with a limiter of its own."""
    observed = f"observed: {{rate_limit: [{least}, null], processes: 4}}\n"
    scenario = tmp_path / "learned.yaml"
    scenario.write_text(SCENARIO.replace("in_flight: 4", "in_flight: 12") + observed)
    return scenario


@every(
    (
        ("2,8", 1, "tools.rate_limit: 8 (2 in each of 4 processes)"),
        ("3,7", 1, "tools.rate_limit: 7 (1 in each of 4 processes, 4 in all)"),
        ("3,7", 6, "tools.rate_limit: 7 (2 in each of 4 processes, 8 in all)"),
        ("1,2", 1, "tools.rate_limit: 2 (1 in each of 4 processes, 4 in all)"),
    ),
    str,
)
def test_a_total_limit_is_also_named_for_each_process(
    case: tuple[str, int, str], tmp_path: Path
) -> None:
    values, least, says = case
    scenario = total_of_four(tmp_path, least)
    vary = ["--vary", f"tools.rate_limit={values}", "--seeds", "1", "--jobs", "1"]
    code, told = sweep(scenario, *vary, "--json", tmp_path / "sweep.json")
    assert (code, told.rstrip().splitlines()[-1]) == (0, says)
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert (found["recommended"]["value"], found["processes"]) == (int(values[-1]), 4)


def test_limits_of_processes_are_named_under_every_condition_and_with_a_model(
    tmp_path: Path,
) -> None:
    scenario = total_of_four(tmp_path, 1)
    model = tmp_path / "model.yaml"
    model.write_text("sandbox:\n  model: {kind: queue, workers: 12}\n")
    vary = ["--vary", "tools.rate_limit=2,8", "--vary", "load.concurrency=11,12"]
    told = sweep(scenario, *vary, "--seeds", "1", "--jobs", "1", "--model", model)[1]
    last = told.rstrip().splitlines()[-1]
    assert last.startswith("tools.rate_limit: 8 (2 in each of 4 processes; ")


def test_every_setting_is_played_with_the_same_seeds(scenario: Path) -> None:
    (task,) = read_tasks([scenario], "sim")
    tasks = list(
        Grid((Axis("tools.rate_limit", (2, 4)),), 3).tasks(
            replace(task, scenario=task.scenario.changed(seed=5))
        )
    )
    played = [(one.scenario.seed, one.scenario.stated_limit) for one in tasks]
    assert played == [(5, 2), (6, 2), (7, 2), (5, 4), (6, 4), (7, 4)]


def test_figures_are_those_of_the_journal() -> None:
    (result,) = run_scenario(SCENARIO, tools={"rate_limit": 12})
    figures = figures_of(result.journal)
    events = [event for event in result.journal.events if event["event"] == "answered"]
    assert figures.outcomes == {"ok": 24}
    assert figures.attempts == len(events)
    assert figures.refused == figures.wasted == sum(event["status"] == 429 for event in events) > 0
    assert figures.throughput == pytest.approx(24 / figures.seconds)
    assert 0.2 <= figures.p50 <= figures.p95 <= figures.p99 <= figures.seconds


def test_a_model_from_doctor_replaces_the_scenarios(scenario: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    model.write_text("sandbox:\n  model: {kind: queue, workers: 2}\n")
    arguments = ["--vary", "tools.rate_limit=2,8", "--seeds", "1", "--jobs", "1", "--json", "-"]
    result = CliRunner().invoke(app, ["sweep", str(scenario), *arguments, "--model", str(model)])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["recommended"]["value"] == 2
    model.write_text("sandbox: {}\n")
    code, text = sweep(scenario, *arguments, "--model", model)
    assert (code, "expected `sandbox: {model: ...}`" in text) == (2, True)
    model.write_text("sandbox: {model: {kind: quote}}\n")
    code, text = sweep(scenario, *arguments, "--model", model)
    assert (code, "did you mean 'quota'?" in text) == (2, True)


def test_a_measured_model_replaces_what_stood_for_it_and_leaves_what_never_ends(
    tmp_path: Path,
) -> None:
    (learned,) = parse_scenarios(
        "scenario: learned\nabout: Some programs never end, and the server takes its time.\n"
        "sandbox:\n  faults:\n"
        "  - {name: server-time, what: {delay: 1}}\n"
        "  - {name: gateway, every: 9, what: {status: 502}}\n"
        "load:\n  calls: 4\n  program: [{seconds: 9}, {seconds: 100000}]\n"
        "observed: {server_time: [server-time]}\n"
    )
    model = tmp_path / "model.yaml"
    model.write_text(
        "sandbox: {model: {kind: queue, workers: 2}}\nload: {program: {seconds: 0.5}}\n"
    )
    plain = with_measured(learned, model).plain
    assert [rule["name"] for rule in plain["sandbox"]["faults"]] == ["gateway"]
    assert [one["seconds"] for one in plain["load"]["program"]] == [0.5, ENDLESS]


def test_keys_of_a_whole_tool_config_are_varied_in_its_first_tool(scenario: Path) -> None:
    tool = (
        "[{class_name: sfusion_tools.sandbox_fusion_tools.SandboxFusionTool, config: "
        "{rate_limit: 3}}]"
    )
    scenario.write_text(SCENARIO + f"tools: {tool}\n")
    code, text = sweep(scenario, "--vary", "tools.rate_limit=2,4", "--seeds", "1", "--jobs", "1")
    assert (code, "tools.rate_limit: 4" in text) == (0, True), text


def test_models_are_compared_and_none_is_recommended(scenario: Path, tmp_path: Path) -> None:
    models = "sandbox.model={kind: queue, workers: 2},{kind: queue, workers: 4},unbounded"
    page = tmp_path / "page.html"
    code, text = sweep(scenario, "--vary", models, "--seeds", "1", "--jobs", "1", "--html", page)
    assert (code, "->" in text) == (0, False), text
    assert text.splitlines()[-1].startswith("3 values of sandbox.model compared")
    assert "{kind: queue, workers: 2}" in page.read_text()


def test_scenarios_are_compared_and_none_is_recommended(scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "wider.yaml"
    other.write_text(SCENARIO.replace("in_flight: 4", "in_flight: 12"))
    both = f"scenario={scenario},{other}"
    code, text = sweep(scenario, "--vary", both, "--seeds", "1", "--jobs", "1")
    assert (code, "->" in text) == (0, False), text
    assert text.splitlines()[-1].startswith("2 scenarios compared")
    code, text = sweep(
        scenario, "--vary", both, "--vary", "tools.rate_limit=4,12", "--seeds", "1", "--jobs", "1"
    )
    assert (code, text.splitlines()[-1].endswith("under both conditions)")) == (0, True), text


def test_nothing_is_recommended_beyond_what_a_log_showed(scenario: Path) -> None:
    scenario.write_text(IDLE + "observed: {rate_limit: [1, 4], unknown: what more would do}\n")
    code, text = sweep(scenario, "--vary", "tools.rate_limit=4,12", "--seeds", "1", "--jobs", "1")
    assert (code, text.splitlines()[-1]) == (1, "tools.rate_limit: cannot tell")
    assert "simulated, 12 would do" in text
    assert "what more would do" in text
    assert "tools.rate_limit 12: beyond what the log tells" in text
    rows = [line.split()[0] for line in text.splitlines() if line.startswith("   ")]
    assert rows == ["4"], "a figure that cannot be trusted is not printed"
    assert "1 setting left out" in text


IDLE = SCENARIO.replace("{kind: quota, in_flight: 4, retry_after: 1}", "unbounded")


@every(
    (
        ("rate_limit: [1, 4]", ["load.calls=24,25", "tools.rate_limit=4,12"], ""),
        ("rate_limit: [1, 4]", ["tools.default_timeout=5,6", "tools.rate_limit=4,12"], ""),
        ("callers: 12", ["tools.rate_limit=4,12,24", "load.concurrency=12,24"], ""),
        ("callers: 12", ["tools.default_timeout=5,6", "load.concurrency=12,24"], ""),
        ("callers: 12", ["tools.rate_limit=4,8,12", "load.concurrency=12,24"], "12"),
    ),
    str,
)
def test_what_a_log_does_not_tell_is_not_recommended_under_conditions_either(
    case: tuple[str, list[str], str], tmp_path: Path
) -> None:
    observed, varied, recommended = case
    learned = tmp_path / "learned.yaml"
    learned.write_text(IDLE + f"observed: {{{observed}}}\n")
    vary = [word for each in varied for word in ("--vary", each)]
    code, text = sweep(learned, *vary, "--seeds", "1", "--jobs", "1")
    last = text.splitlines()[-1]
    if recommended:
        assert (code, last.startswith(f"tools.rate_limit: {recommended} (")) == (0, True), text
    else:
        assert (code, "cannot tell" in last) == (1, True), text


@every(
    (
        ("[8, 12]", "[1, 12]", 0, "tools.rate_limit: 8 ("),
        ("[8, 12]", "[1, 4]", 1, "tools.rate_limit: cannot tell: no value is known under all"),
        ("[8, 12]", "[4, 4]", 1, "tools.rate_limit: cannot tell"),
    ),
    str,
)
def test_each_of_several_learned_scenarios_has_a_reach_of_its_own(
    case: tuple[str, str, int, str], tmp_path: Path
) -> None:
    """The gateway admits 4: more is refused, and a log that only has more does not tell."""
    *reaches, expected_code, expected = case
    files = [tmp_path / "friday.yaml", tmp_path / "monday.yaml"]
    for file, reach in zip(files, reaches, strict=True):
        file.write_text(SCENARIO + f"observed: {{rate_limit: {reach}, unknown: the rest}}\n")
    vary = ["--vary", f"scenario={files[0]},{files[1]}", "--vary", "tools.rate_limit=1,4,8,12"]
    code, text = sweep(files[0], *vary, "--seeds", "1", "--jobs", "1")
    last = text.splitlines()[-1]
    assert (code, last.startswith(expected)) == (expected_code, True), text


def test_a_figure_that_cannot_be_trusted_is_not_on_the_page_either(
    scenario: Path, tmp_path: Path
) -> None:
    scenario.write_text(IDLE + "observed: {rate_limit: [1, 4], unknown: what more would do}\n")
    arguments = ["--vary", "tools.rate_limit=4,12", "--seeds", "1", "--jobs", "1"]
    sweep(scenario, *arguments, "--out", tmp_path)
    page = (tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "<title>4: 20" in page
    assert "<title>12: " not in page
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert [setting["trusted"] for setting in found["settings"]] == [True, False]


def test_each_condition_of_a_page_is_trusted_by_itself(scenario: Path, tmp_path: Path) -> None:
    """All lines were trusted where the first condition was."""
    scenario.write_text(IDLE + "observed: {callers: 2}\n")
    arguments = ["--vary", "tools.rate_limit=1,4,8", "--vary", "load.concurrency=2,24"]
    sweep(scenario, *arguments, "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    found = json.loads((tmp_path / "sweep.json").read_text())["settings"]
    page = (tmp_path / "sweep.html").read_text(encoding="utf-8")
    trusted = sum(setting["trusted"] for setting in found)
    assert 0 < trusted < len(found)
    assert len(re.findall(r"<title>\d+: ", page)) == 4 * trusted, "four charts"


def test_exit_code_1_if_no_value_works(scenario: Path) -> None:
    scenario.write_text(
        SCENARIO.replace("sandbox: {", "sandbox: {faults: [{what: {status: 400}}], ")
    )
    code, text = sweep(scenario, "--vary", "tools.rate_limit=2,4", "--seeds", "1", "--jobs", "1")
    assert (code, "no value can be recommended" in text) == (1, True), text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--vary", "load.concurency=1,2"],
            "unknown key 'concurency' in load; did you mean 'concurrency'?",
        ),
        (["--vary", "tools.rate_limt=1"], "did you mean 'rate_limit'?"),
        (
            ["--vary", "load.concurrency=many"],
            "--vary load.concurrency=many: load.concurrency: input should be",
        ),
        (["--vary", "load.concurrency=1.5"], "--vary load.concurrency=1.5"),
        (["--vary", "load.calls.x=1"], "there is no 'x' in 24"),
        (["--vary", "promises.1=1"], "there is no '1' in a list of 1"),
        (["--vary", "load.concurrency=4..2"], "the range is empty"),
        ([], "nothing to sweep"),
        (["--vary", "load.calls=1..512", "--seeds", "1000"], "runs; at most 10,000"),
        (["--vary", "rollouts.count=1"], "turns is missing in rollouts"),
        (["--vary", "load.calls=1", "--on", "mars"], "no such place"),
        (["--vary", "sandbox.executor=python"], "add --trust"),
    ],
)
def test_wrong_input_is_explained_before_anything_runs(
    scenario: Path, arguments: list[str], words: str
) -> None:
    code, text = sweep(scenario, *arguments)
    assert (code, words in text) == (2, True), text
    assert "[1/" not in text


def test_a_narrow_terminal_shows_whole_numbers() -> None:
    class Terminal(StringIO):
        encoding = "utf-8"  # type: ignore[assignment]

        def isatty(self) -> bool:
            return True

    figures = RunFigures(4, {"ok": 4}, 1.0, 12.25, 0.1, 0.2, 0.3, attempts=6, failures={"429": 2})
    grid = Grid((Axis("tools.rate_limit", (2, 4)), Axis("load.concurrency", (16, 32))), 1)
    result = SweepResult("a", "b", 0, grid, [Measured.of([GridSample(figures)])] * 4)
    out = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        with SweepReporter(out, grid) as shown:
            shown.finish(result)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert ["->", "2", "16", "12.2", "0.1", "0.2", "0.3", "2", "2", "1"] in [
        line.split() for line in text.splitlines()
    ]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(10.0, "8 runs: about 30 s left; --seeds 1 is faster\n"), (1.0, "")],
)
def test_a_log_says_how_long_a_sweep_takes_once_the_first_runs_ended(
    seconds: float, said: str
) -> None:
    grid = Grid((Axis("tools.rate_limit", (1, 2)),), 4)
    clock = iter([0.0, seconds / 2, seconds, 2 * seconds])
    out = StringIO()
    with SweepReporter(out, grid, lambda: next(clock), side_by_side=2) as shown:
        for done in (1, 2, 3):
            shown.run_ended(done)
    assert re.sub(r"(\d+)\.\d+ s", r"\1 s", out.getvalue()) == said


def test_a_matrix_needs_a_choice(scenario: Path) -> None:
    scenario.write_text(SCENARIO + "matrix: {cluster.nodes: [1, 2]}\n")
    vary = ["--vary", "tools.rate_limit=4", "--seeds", "1", "--jobs", "1"]
    code, text = sweep(scenario, *vary)
    assert (
        code,
        "has 2 cells (gateway[nodes=1], gateway[nodes=2]); choose one with -k" in text,
    ) == (2, True)
    assert sweep(scenario, *vary, "-k", "nodes=2")[0] == 0
    assert "matches no cell" in sweep(scenario, *vary, "-k", "nodes=3")[1]


@pytest.mark.parametrize(
    ("name", "seeds", "played"),
    [
        ("throttled-gateway", None, 3),
        ("outage-trained-as-zeros", None, 10),
        ("throttled-gateway", 7, 7),
    ],
)
def test_a_training_has_more_seeds_by_default(name: str, seeds: int | None, played: int) -> None:
    task = read_tasks(scenario_files([name]), "sim")[0]
    assert SweepOptions(name, seeds=seeds).seeds_of(task) == played


LOCKSTEP = """
scenario: lockstep
about: An outage ends for all callers at once, so that they pause together from then on.
tools: {max_attempts: 2}
load: {calls: 450, concurrency: 16, think: 0.5, program: {seconds: 0.3}}
events: [{at: 10s, crash: sandbox-1, seconds: 8}]
promises: [every_call_ends_once]
"""


def test_pauses_of_callers_are_time_that_a_batch_takes(tmp_path: Path) -> None:
    """Where all callers paused at once, that time did not count: 16 seemed a quarter faster than
    12, and the batch took as long."""
    (tmp_path / "lockstep.yaml").write_text(LOCKSTEP)
    code, output = sweep(
        tmp_path / "lockstep.yaml", "--vary", "tools.rate_limit=12,16", "--seeds", 1, "--jobs", 1
    )
    assert (code, output.splitlines()[-1]) == (0, "tools.rate_limit: 12"), output


OUTAGE = """
scenario: outage
about: For ten seconds every request is answered with 500.
tools: {max_attempts: 1}
sandbox: {faults: [{name: down, between: [5, 15], phase: after, what: {status: 500}}]}
load: {calls: 250, concurrency: 5, program: {seconds: 0.5}}
promises: [every_call_ends_once]
"""
WEDGE = """
scenario: wedge
about: For ten seconds the sandbox answers nothing.
tools: {max_attempts: 1, default_timeout: 1, transport_margin: 0.1}
events: [{at: 5s, wedge: sandbox-1, seconds: 10}]
load: {calls: 250, concurrency: 5, program: {seconds: 0.5}}
promises: [every_call_ends_once]
"""


@pytest.mark.parametrize("written", [OUTAGE, WEDGE], ids=["fault", "wedge"])
def test_a_slow_client_is_not_better_because_an_outage_strikes_fewer_of_its_calls(
    written: str, tmp_path: Path
) -> None:
    """It was recommended to halve a running production."""
    (tmp_path / "outage.yaml").write_text(written)
    code, output = sweep(
        tmp_path / "outage.yaml", "--vary", "tools.rate_limit=2,5", "--seeds", 1, "--jobs", 1
    )
    assert (code, output.splitlines()[-1]) == (0, "tools.rate_limit: 5"), output


@pytest.mark.parametrize("command", [["sweep", "--vary", "tools.rate_limit=4"], ["train"]])
def test_no_seed_at_all_is_refused(command: list[str]) -> None:
    """Zero was taken for the default, and three seeds were played."""
    name, *given = command
    result = CliRunner().invoke(app, [name, "outage-trained-as-zeros", *given, "--seeds", "0"])
    assert (result.exit_code, "--seeds" in result.output) == (2, True), result.output
