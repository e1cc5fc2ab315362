"""``sfusion judge`` from the command line, and the fixture: right clients pass, planted mistakes
are named."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sfusion.harness.lab.scenarios.reading import parse_scenarios
from sfusion.harness.trial.reporting import TrialReporter
from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import bundled_scenes
from sfusion.harness.trial.trial import judge as judge_target
from tests import ROOT
from tests.again import again
from tests.docs.tables import updated
from tests.harness.test_terminal import Terminal
from tests.harness.trial.test_shapes import CLIENTS
from tests.warm import warm

CURT = """
import aiohttp

async def run(base_url, code, language="python"):
    async with aiohttp.ClientSession() as session:
        body = {"code": code, "language": language}
        async with session.post(f"{base_url}/run_code", json=body) as answer:
            data = await answer.json(content_type=None)
    return data["run_result"]["stdout"]
"""


def judge(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [str(warm("sfusion")), "judge", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def broken(done: subprocess.CompletedProcess[str]) -> set[str]:
    verdicts = json.loads(done.stdout or '{"verdicts": []}')["verdicts"]
    return {one["promise"] for one in verdicts if one["state"] == "broken"}


def _javascript(folder: Path) -> Path:
    """Erase the types of the TypeScript client, which node does by itself from 22.6 on."""
    text = (CLIENTS / "client.ts").read_text(encoding="utf-8")
    text = re.sub(r"^interface .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r": (?:Ask|Run|Promise<any>|object|unknown|number)(?=[ ,;)])", "", text)
    made = folder / "client.mjs"
    made.write_text(text, encoding="utf-8")
    return made


@pytest.mark.parametrize(
    ("client", "scene", "mistake", "check", "needs"),
    [
        ("client.ts", "idle", "first_character", "text_is_truthful", ("node",)),
        ("client.sh", "idle", "code", "sent_as_asked", ("bash", "curl", "jq")),
        ("threaded.py", "programs", "cut", "text_is_truthful", ()),
    ],
)
def test_a_right_client_of_any_language_passes_and_a_planted_mistake_is_named(
    client: str, scene: str, mistake: str, check: str, needs: tuple[str, ...], tmp_path: Path
) -> None:
    for program in needs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    words = {
        "client.ts": ["--", "node", str(_javascript(tmp_path))],
        "client.sh": ["--", "bash", str(CLIENTS / client)],
        "threaded.py": [f"{CLIENTS / client}:run"],
    }[client]
    with ThreadPoolExecutor() as threads:
        right, wrong = threads.map(
            lambda planted: judge(tmp_path, "-k", scene, "--json", "-", *words, PLANTED=planted),
            ("", mistake),
        )
    assert (right.returncode, broken(right)) == (0, set()), right.stderr
    assert (wrong.returncode, broken(wrong)) == (1, {check}), wrong.stderr
    assert "Played on the wall clock" in right.stderr


def test_reports_and_baseline(tmp_path: Path) -> None:
    """What is accepted passes by its ``how``; a new finding, a finding that is gone and a new
    wording do not."""
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    files = ["--html", "t.html", "--junit", "t.xml", "--summary", "t.md", "--json", "t.json"]
    first = judge(tmp_path, "curt:run", *files)
    found = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert (first.returncode, found["world"], found["ok"]) == (1, "sim", False)
    assert (
        "compile_timeout, deadline, default_timeout, files, headers"
        in found["left_out"]["parameters"]
    )
    assert {"text_is_truthful", "ends_told_apart"} <= {
        one["promise"] for one in found["verdicts"] if one["state"] == "broken"
    }
    assert re.search("^  broken +ends_told_apart", first.stdout, re.MULTILINE)
    assert "Played in virtual time" in first.stdout
    ends = "ok, program_error, timeout, sandbox_failed and ok_empty"
    assert f"{ends} have the same wording" in (tmp_path / "t.html").read_text(encoding="utf-8")
    assert f'<failure message="broken: {ends} have' in (tmp_path / "t.xml").read_text(
        encoding="utf-8"
    )
    assert f"`ends_told_apart same {ends}` broken" in (tmp_path / "t.md").read_text(
        encoding="utf-8"
    )

    summary = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "**curt:run tells 1 of 9 ends apart.**" in summary
    assert "1. A sandbox that fails looks like a program that printed nothing" in summary

    accepted = judge(tmp_path, "curt:run", "--baseline", "b.json", "--update")
    assert accepted.returncode == 0
    assert accepted.stdout.endswith("accepted, and written to b.json\n")
    again = judge(tmp_path, "curt:run", "--baseline", "b.json", "--seed", "1")
    assert (again.returncode, "  accepted  ends_told_apart" in again.stdout) == (0, True), (
        again.stdout
    )
    fewer_ends = judge(tmp_path, "curt:run", "-k", "programs", "--baseline", "b.json")
    assert re.search(
        "^  accepted +ends_told_apart +ok, program_error, timeout and ok_empty have",
        fewer_ends.stdout,
        re.MULTILINE,
    ), fewer_ends.stdout
    assert fewer_ends.returncode == 0
    (tmp_path / "curt.py").write_text(
        CURT.replace('["stdout"]', '["stdout"] + "\\nbye"'), encoding="utf-8"
    )
    part = judge(tmp_path, "curt:run", "-k", "idle", "--baseline", "b.json", "--json", "t.json")
    assert "accepted, but not found any more" not in part.stdout
    assert "with -k" in json.loads((tmp_path / "t.json").read_text())["left_out"]["baseline"]
    worded = judge(tmp_path, "curt:run", "--baseline", "b.json")
    assert (worded.returncode, "ok: nobody has read this wording yet: 'bye'" in worded.stdout) == (
        1,
        True,
    ), worded.stdout


def test_a_trial_leaves_runs_that_can_be_replayed_and_shrunk(tmp_path: Path) -> None:
    """A finding names the call, what was played and what came back; each scenario is a run on
    disk."""
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    files = ["--out", "out", "--html", "t.html", "--json", "t.json"]
    done = judge(tmp_path, "curt:run", "-k", "programs", *files)
    assert done.returncode == 1
    story = "programs c0014 (compile_error): raised TypeError"
    played = (
        "played: a C++ program that does not compile; sent once, answered 200; your client raised"
    )
    assert story in done.stdout
    assert played in done.stdout
    page = (tmp_path / "t.html").read_text(encoding="utf-8")
    assert story in page
    assert '<a href="out/judge-programs/report.html">judge-programs</a>' in page
    verdicts = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["verdicts"]
    found = [one for one in verdicts if one["state"] == "broken"]
    assert all(one["evidence"] for one in found)
    first = next(one for one in found if one["promise"] == "tool_never_raises")
    events = {event["event"] for event in first["evidence"]}
    assert {"called", "arrived", "answered", "returned"} <= events
    run = tmp_path / "out/judge-programs"
    assert {path.name for path in run.iterdir()} == {
        "journal.ndjson",
        "report.html",
        "scenario.yaml",
        "verdict.json",
    }
    sfusion = str(warm("sfusion"))
    command = [sfusion, "replay", str(run), "--trust"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the same journal" in again.stdout, again.stderr
    command = [sfusion, "shrink", str(run), "--trust", "--seconds", "600"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    shrunk = parse_scenarios((run / "shrunk.yaml").read_text(encoding="utf-8"))[0]
    assert shrunk.load is not None
    assert len(shrunk.load.single_calls) == 1


def test_any_scenario_can_judge_any_client_by_single_calls(tmp_path: Path) -> None:
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        "scenario: mine\nabout: My own calls.\nload:\n  each:\n"
        "  - {prints: '{word}'}\n  - {end: program_error, prints: '{word}', exit: 3}\n"
        "promises: [sent_as_asked, ends_told_apart]\n",
        encoding="utf-8",
    )
    command = [str(warm("sfusion")), "run", "mine.yaml", "--tools", "curt:run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ok and program_error have the same wording: '' (mine c0001, mine c0002)" in done.stdout


def test_a_run_that_shows_nothing_says_why(tmp_path: Path) -> None:
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        "scenario: mine\nabout: My own call.\nload:\n  each:\n  - {stdin: a line}\n",
        encoding="utf-8",
    )
    command = [str(warm("sfusion")), "run", "mine.yaml", "--tools", "curt:run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert ": no call was made: the client does not take" in done.stdout


def test_a_trial_that_plays_nothing_does_not_say_what_the_client_cannot(tmp_path: Path) -> None:
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    done = judge(tmp_path, "curt:run", "-k", "limit")
    assert "only for a client that returns what the model reads" not in done.stdout
    assert re.search("^  unknown +text_is_truthful", done.stdout, re.MULTILINE)


def test_reports_tell_what_is_unknown_from_what_does_not_apply(tmp_path: Path) -> None:
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    files = ["--junit", "t.xml", "--summary", "t.md", "--json", "t.json"]
    judge(tmp_path, "curt:run", "-k", "limit", *files)
    verdicts = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["verdicts"]
    of_state = {
        state: {one["promise"] for one in verdicts if one["state"] == state}
        for state in ("unknown", "not_applicable")
    }
    assert all(of_state.values())
    suite = ElementTree.parse(tmp_path / "t.xml").getroot()[0]
    skipped = {
        str(case.get("name")): str(case[0].get("message"))
        for case in suite
        if case.find("skipped") is not None
    }
    assert int(suite.get("skipped", "")) == len(skipped)
    assert len(suite) == int(suite.get("tests", "")) == len(verdicts)
    words = {"unknown": "unknown: ", "not_applicable": "not applicable: "}
    for state, names in of_state.items():
        said = {name for name, message in skipped.items() if message.startswith(words[state])}
        assert said == names
    unknown, _, absent = (tmp_path / "t.md").read_text("utf-8").partition("Does not apply (")
    assert set(re.findall(r"^- `(\w+)`: ", unknown, re.MULTILINE)) == of_state["unknown"]
    assert set(re.findall(r"`(\w+)`", absent.splitlines()[0])) == of_state["not_applicable"]


def test_a_terminal_shows_which_step_is_made() -> None:
    steps: list[str] = []
    judge_target(f"{CLIENTS / 'shapes.py'}:compute_score", scenes="tests", tell=steps.append)
    assert steps == ["a first call", "judge-tests"]
    out = Terminal()
    with TrialReporter(out) as reporter:
        for step in steps:
            reporter.tell(step)
    shown = out.getvalue()
    assert "judging" in shown
    assert "judge-tests" in shown
    log = io.StringIO()
    with TrialReporter(log) as reporter:
        reporter.tell("a first call")
    assert log.getvalue() == ""


def _judged(name: str) -> TrialResult:
    """Judge a reward function; again if its machine stood still, so that a scene tells nothing."""

    def tells(result: TrialResult) -> bool:
        for run in result.runs:
            asked = {promise.name for promise in run.task.scenario.promises}
            if any(one.state == "unknown" and one.promise in asked for one in run.verdicts):
                return False
        return True

    return again(lambda: judge_target(f"{CLIENTS / 'shapes.py'}:{name}"), until=tells)


def test_every_scene_names_promises_which_a_right_client_keeps() -> None:
    of_tool = judge_target("sfusion_tools.sandbox_fusion_tools:SandboxFusionTool")
    of_score = _judged("raises_what_is_lost")
    runs = [*of_tool.runs, *of_score.runs]
    for run in runs:
        promises = [promise.name for promise in run.task.scenario.promises]
        held = [verdict.promise for verdict in run.verdicts if verdict.held]
        assert promises, run.task.scenario.scenario
        assert set(promises) <= set(held), run.task.scenario.scenario
    played = {run.task.scenario.scenario for run in runs}
    # Estimators and batches have tests of their own: test_estimators.py, test_batched_rewards.py.
    others = {"groups", "batch"}
    expected = [scene for scene in bundled_scenes() if others.isdisjoint(scene.load.needs)]
    assert played == {scene.scenario for scene in expected}


def test_a_reward_function_that_scores_lost_tests_as_failed_is_broken() -> None:
    def states(name: str) -> dict[str, str]:
        return {one.promise: one.state for one in _judged(name).verdicts}

    wrong, right = states("compute_score"), states("raises_what_is_lost")
    assert {name for name, state in wrong.items() if state == "broken"} == {
        "score_follows_the_tests"
    }
    assert (right["score_follows_the_tests"], "broken" in right.values()) == ("held", False)
    careless = states("strips_its_tests")
    assert {name for name, state in careless.items() if state == "broken"} >= {
        "arguments_unchanged",
        "sent_as_asked",
    }


def test_wrong_input_is_refused(tmp_path: Path) -> None:
    cases = {
        (
            "curt:run",
            "--world",
            "wal",
        ): "--world wal: no such world for a client; did you mean 'wall'?",
        ("curt:run", "--update"): "--update writes the file of --baseline; give both",
        (
            "curt:run",
            "--update",
            "--baseline",
            "b.json",
            "-k",
            "idle",
        ): "--update accepts a whole trial, and -k plays a part of it; leave one out",
        (
            "curt:run",
            "--baseline",
            "none.json",
        ): "--baseline none.json: there is no such file; write one with --update",
        (
            "curt:run",
            "-k",
            "nothing",
        ): "-k: no scene matches; there are judge-programs, judge-bounds",
        ("curt:walk",): "curt:walk: curt has no 'walk'",
    }
    (tmp_path / "curt.py").write_text(CURT, encoding="utf-8")
    for words, message in cases.items():
        done = judge(tmp_path, *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    absent = judge(tmp_path, "no-such-command")
    assert (absent.returncode, "is given as module:name or file.py:name" in absent.stderr) == (
        3,
        True,
    )


def test_the_docs_list_every_check() -> None:
    page = (ROOT / "docs/judge.md").read_text(encoding="utf-8")
    assert updated(page) == page, "update it: python -m tests.docs.tables docs/judge.md"


def test_the_row_of_the_sdk_is_the_one_in_the_docs(tmp_path: Path) -> None:
    row = judge(tmp_path, "sandbox_fusion:run_code_async", "--row").stdout.partition(" | ")[2]
    assert row
    assert row in (ROOT / "docs/clients.md").read_text(encoding="utf-8")
