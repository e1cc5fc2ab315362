"""The commands around scenarios, from a shell: what they print and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.commands.check import json_schema
from sfusion.harness.lab.commands.explain import explanations, names
from sfusion.harness.lab.promises import PROMISES
from sfusion.harness.lab.scenarios import bundled_folder
from sfusion.harness.lab.scenarios.reading import in_folder
from tests import ROOT
from tests.warm import warm

GOOD = """\
scenario: good
about: Ten calls and nothing wrong.
load: {calls: 10, program: {seconds: 100ms}}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""


def sfusion(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm("sfusion"), *arguments], capture_output=True, text=True, check=False
    )


def in_process(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def test_exit_code_0_when_every_promise_held(good: Path) -> None:
    done = sfusion("run", str(good), "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "held" in done.stdout
    assert "\x1b" not in done.stdout


def test_exit_code_1_when_a_promise_was_broken(good: Path) -> None:
    good.write_text(GOOD.replace("ok: all", "throttled: all"))
    done = sfusion("run", str(good), "--jobs", "1")
    assert done.returncode == 1
    assert "broken" in done.stdout
    assert "10 of 10 calls ended ok" in done.stdout


def test_exit_code_1_when_a_promise_is_unknown(good: Path) -> None:
    good.write_text(GOOD.replace("every_call_ends_once", "retry_after_honoured"))
    code, text = in_process("run", str(good), "--jobs", "1")
    assert code == 1
    assert "the sandbox never sent Retry-After" in text


def test_exit_code_2_when_the_input_is_wrong(good: Path) -> None:
    good.write_text(GOOD.replace("calls: 10", "cals: 10"))
    for command in (("run", str(good)), ("check", str(good))):
        done = sfusion(*command)
        assert done.returncode == 2
        assert done.stderr.startswith(f"{good}:3: unknown key 'cals'")
        assert "Traceback" not in done.stderr


def test_exit_code_3_when_something_outside_is_missing(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good.write_text(GOOD + "worlds: [sim, ray]\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    code, text = in_process("run", str(good), "--world", "ray")
    assert code == 3, text
    assert text.endswith("pip install 'sfusion[ray]'\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "nowhere.yaml"), "no such file, folder or bundled scenario"),
        (("run", f"{ROOT}/scenarios/single-nodes.yaml"), "scenarios/single-node.yaml'?"),
        (("run", "throttled-gatway"), "did you mean 'throttled-gateway'?"),
        (("run", "--world", "sin"), "did you mean 'sim'?"),
        (("run", "-k", "nothing-like-this"), "matches none"),
        (("run", "--tools", "missing.yaml"), "missing.yaml:1: cannot be read"),
        (("explain", "in_flight_within_limits"), "did you mean 'in_flight_within_limit'?"),
        (("replay", "nowhere"), "nowhere: no such folder; give the folder of a run"),
        (("replay", f"{ROOT}/scenarios"), "not a run: scenario.yaml is missing"),
        (("list", "nowhere"), "no such file"),
    ],
)
def test_wrong_input_gives_one_clear_sentence_and_exit_code_2(
    arguments: tuple[str, ...], words: str
) -> None:
    code, text = in_process(*arguments)
    assert code == 2
    assert words in text


def test_a_run_is_written_to_disk_and_replayed(good: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        in_process("run", str(good), "--jobs", "1", "--out", str(out), "--seed", "9", "--twice")[0]
        == 0
    )
    folder = out / "good"
    assert {"scenario.yaml", "journal.ndjson", "verdict.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert json.loads((folder / "verdict.json").read_text())["seed"] == 9
    code, text = in_process("replay", str(folder))
    assert code == 0
    assert "the same journal" in text
    code, text = in_process("replay", str(out / "goood"))
    assert code == 2
    assert "goood: no such folder; did you mean 'good'?" in text


def test_a_replay_that_differs_shows_the_first_different_line(good: Path, tmp_path: Path) -> None:
    in_process("run", str(good), "--jobs", "1", "--out", str(tmp_path))
    journal = tmp_path / "good" / "journal.ndjson"
    lines = journal.read_text().splitlines()
    lines[5] = lines[5].replace('"at":', '"at":9')
    journal.write_text("\n".join(lines) + "\n")
    code, text = in_process("replay", str(tmp_path / "good"))
    assert code == 1
    assert "the journals differ in line 6" in text
    assert "in another order" not in text


def test_what_cannot_be_replayed_says_how_to_run_it_again(good: Path, tmp_path: Path) -> None:
    in_process("run", str(good), "--jobs", "1", "--out", str(tmp_path / "my runs"))
    folder = tmp_path / "my runs" / "good"
    header, *events = (folder / "journal.ndjson").read_text().splitlines()
    header = json.dumps({**json.loads(header), "sandboxes": ["http://10.0.0.1:8080"]})
    (folder / "journal.ndjson").write_text("\n".join([header, *events]) + "\n")
    code, text = in_process("replay", str(folder))
    assert code == 2
    assert f"sfusion run '{folder}/scenario.yaml' --sandbox TARGET" in " ".join(text.split("\n"))


def test_a_replay_says_if_only_the_order_within_an_instant_differs(
    good: Path, tmp_path: Path
) -> None:
    in_process("run", str(good), "--jobs", "1", "--out", str(tmp_path))
    journal = tmp_path / "good" / "journal.ndjson"
    lines = journal.read_text().splitlines()
    times = [json.loads(line).get("at") for line in lines]
    place = next(number for number in range(2, len(lines)) if times[number] == times[number - 1])
    lines[place - 1 : place + 1] = lines[place], lines[place - 1]
    journal.write_text("\n".join(lines) + "\n")
    code, text = in_process("replay", str(tmp_path / "good"))
    assert code == 1
    assert f"the journals differ in line {place}" in text
    assert "all events are the same; some of one instant come in another order" in text


def test_a_replay_prints_no_escape_sequences_of_a_stranger_s_journal(
    good: Path, tmp_path: Path
) -> None:
    in_process("run", str(good), "--jobs", "1", "--out", str(tmp_path))
    journal = tmp_path / "good" / "journal.ndjson"
    journal.write_text(journal.read_text().replace('"cell":""', '"cell":"\\u001b[2Jgone"', 1))
    _, text = in_process("replay", str(tmp_path / "good"))
    assert "\\x1b[2Jgone" in text
    assert "\x1b" not in text


def test_cells_of_a_matrix_can_be_selected_by_name(good: Path, tmp_path: Path) -> None:
    good.write_text(GOOD + "matrix: {tools.rate_limit: [1, 2, 3]}\n")
    in_process(
        "run",
        str(good),
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "out"),
        "-k",
        "rate_limit=2 or rate_limit=3",
    )
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*") if path.is_dir()) == [
        "good[rate_limit=2]",
        "good[rate_limit=3]",
    ]


def test_list_names_every_bundled_scenario() -> None:
    code, text = in_process("list", "--names")
    assert code == 0
    files = [path.stem for path in in_folder(bundled_folder())]
    assert sorted(text.split()) == sorted(files)
    assert len(files) >= 100


def test_list_shows_the_incidents_with_their_reports() -> None:
    code, text = in_process("list", "--incidents")
    assert code == 0
    head, *lines = text.splitlines()
    assert head.split() == ["id", "incident", "about"]
    lifecycle = (bundled_folder() / "lifecycle").iterdir()
    reported = [file for file in lifecycle if "\nincident: " in file.read_text("utf-8")]
    assert len(reported) >= 15
    reproducing = [*(bundled_folder() / "incidents").iterdir(), *reported]
    assert sorted(line.split()[0] for line in lines) == sorted(file.stem for file in reproducing)
    (poisoned,) = [line for line in lines if line.startswith("poisoned-call ")]
    assert poisoned.split()[1] == "PrimeIntellect-ai/verifiers#1622"
    assert "One call made the sandbox itself fail" in poisoned
    mixed = [
        str(bundled_folder() / "single-node.yaml"),
        str(bundled_folder() / "incidents" / "poisoned-call.yaml"),
    ]
    assert in_process("list", "--incidents", "--names", *mixed)[1].split() == ["poisoned-call"]


def test_explain_explains_every_name() -> None:
    for name in names():
        assert [one.text for one in explanations(name)] not in ([], [""])
    code, text = in_process("explain", "throttled-gateway")
    assert code == 0
    assert "429" in text
    _, listed = in_process("explain")
    assert [promise for promise in PROMISES if promise not in listed] == []


def test_the_published_schema_accepts_every_bundled_scenario() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in in_folder(bundled_folder()):
        problems = [
            error.message for error in validator.iter_errors(yaml.safe_load(path.read_text()))
        ]
        assert not problems, (path.name, problems)


def test_the_published_schema_refuses_misspelt_keys() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    for wrong in (
        GOOD + "clustr: {}\n",
        GOOD.replace("calls", "cals"),
        GOOD.replace("every_call", "evry_call"),
    ):
        assert list(validator.iter_errors(yaml.safe_load(wrong)))


def test_check_prints_the_schema() -> None:
    code, text = in_process("check", "--schema")
    assert code == 0
    assert json.loads(text)["title"] == "sfusion scenario"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--sandbox", "nonsense"], 2, "'nonsense' is not a sandbox"),
        (["--sandbox", "http://127.0.0.1:8080", "--sandbox", "fake"], 2, "cannot be combined"),
        (
            ["--sandbox", "http://127.0.0.1:8080", "--world", "sim"],
            2,
            "a real sandbox needs real time",
        ),
        (["--sandbox", "http://127.0.0.1:8080", "--twice"], 2, "works only in world sim"),
        (["--sandbox", "http://127.0.0.1:8080", "rotten-compile"], 2, "not for world ray"),
        (["--sandbox", "http://user:hush@127.0.0.1:9", "single-node"], 3, "nothing answers at"),
        (["--start-timeout", "300"], 2, "--start-timeout need --world ray"),
        (
            ["--world", "ray", "--start-timeout", "0"],
            2,
            "--start-timeout 0: give a number of seconds above 0",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_starts(
    arguments: list[str], code: int, words: str
) -> None:
    found, text = in_process("run", *arguments)
    assert found == code
    assert words in text
    assert "hush" not in text


def test_the_fake_can_be_given_as_sandbox(good: Path) -> None:
    assert in_process("run", str(good), "--sandbox", "fake")[0] == 0


def test_a_folder_with_runs_in_it_can_be_run_again(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(good.parent)
    for _ in range(2):
        code, output = in_process("run", ".", "--out", "runs", "--jobs", "1")
        assert (code, output.splitlines()[-1]) == (0, "1 run: every promise held.")
    assert in_process("check", ".") == (0, "1 file with 1 cell: all valid\n")
    assert in_process("run", "runs/good/scenario.yaml", "--jobs", "1")[0] == 0, (
        "named, it is a scenario like any other"
    )
