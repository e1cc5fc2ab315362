"""Broken scenario files of many kinds: each error names the file, the line, what was found and how
to fix it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.harness.lab.scenarios import ScenarioError, parse_scenarios, read_scenarios
from tests.cases import every

GOOD = """\
scenario: good
about: A good one.
cluster: {nodes: 2}
tools:
  rate_limit: 4
sandbox:
  faults:
    - {name: flaky, first: 3, what: {status: 503}}
load:
  calls: 10
  program:
    seconds: 200ms
events:
  - {at: 1s, kill: n2-w1}
promises:
  - every_call_ends_once
  - {outcomes: {ok: all}}
"""

LOAD = "  calls: 10\n  program:\n    seconds: 200ms"

BROKEN: dict[str, tuple[str, str, int, str]] = {
    # kind: (what is replaced, by what, line of the error, part of the message)
    "unknown top-level key": (
        "cluster:",
        "clustr:",
        3,
        "unknown key 'clustr'; did you mean 'cluster'?",
    ),
    "unknown nested key": (
        "  calls: 10",
        "  cals: 10",
        10,
        "unknown key 'cals' in load; did you mean 'calls'?",
    ),
    "no single calls": ("  calls: 10", "  each: []", 9, "`each` is empty"),
    "an output of no length": (
        "  calls: 10",
        "  each: [{prints: '{long:-5}'}]",
        10,
        "{long:-5}: give a length from 0 to",
    ),
    "a misspelt fault of a single call": (
        "  calls: 10",
        "  each:\n    - {}\n    - {fault: {what: {statsu: 503}}}",
        12,
        "did you mean 'status'?",
    ),
    "a misspelt phase of a single call's fault": (
        "  calls: 10",
        "  each:\n    - {}\n    - {fault: {what: reset, phase: aftr}}",
        12,
        "phase",
    ),
    "a misspelt fault of a test": (
        "  calls: 10",
        "  each:\n    - {}\n    - {tests: [pass, {fault: {what: sandbox_eror}}]}",
        12,
        "did you mean 'sandbox_error'?",
    ),
    "a date that is no number": (
        "  calls: 10",
        "  each:\n    - {}\n    - {fault: {what: {status: 429, retry_at: soon}}}",
        12,
        "retry_at takes seconds, found 'soon'",
    ),
    "more single calls than can be planned": (
        LOAD,
        "  each:\n" + "\n".join(["    - {times: 1000}"] * 100),
        10,
        "`each` stands for 100,000 calls; at most 10,000 are allowed",
    ),
    "a need of a single call that there is not": (
        LOAD,
        "  each:\n    - {}\n    - {needs: [stdn]}",
        12,
        "did you mean 'stdin'?",
    ),
    "the program of a call that there is not": (
        LOAD,
        "  each:\n    - {}\n    - {program_of: c0009}",
        12,
        "program_of: there is no call 'c0009'; the calls are c0001 to c0002",
    ),
    "a misspelt canary": (
        "  calls: 10",
        "  each:\n    - {}\n    - {prints: 'a {wrod} b'}",
        12,
        "{wrod} is not a canary; did you mean 'word'?",
    ),
    "a misspelt canary in a standard input": (
        "  calls: 10",
        "  each:\n    - {}\n    - {stdin: '{line:x}'}",
        12,
        "{line:x} is not a canary; did you mean 'lines'?",
    ),
    "a misspelt end": (
        "  calls: 10",
        "  each:\n    - {}\n    - {end: okk}",
        12,
        "found 'okk'; did you mean 'ok'?",
    ),
    "a word in place of a single call": (
        "  calls: 10",
        "  each:\n    - {}\n    - ok",
        12,
        "load.each.1: expected a mapping of keys, found 'ok'",
    ),
    "unknown key in a list": (
        "{at: 1s, kill: n2-w1}",
        "{at: 1s, kil: n2-w1}",
        14,
        "did you mean 'kill'?",
    ),
    "unknown key of a rule": ("first: 3,", "frist: 3,", 8, "did you mean 'first'?"),
    "unknown kind of fault": ("{status: 503}", "{statsu: 503}", 8, "did you mean 'status'?"),
    "wrong type": (
        "  calls: 10",
        "  calls: many",
        10,
        "load.calls: input should be a valid integer",
    ),
    "number out of bounds": ("  calls: 10", "  calls: 0", 10, "greater than or equal to 1"),
    "missing key": ("about: A good one.\n", "", 1, "about is missing: what is tested"),
    "empty about": (
        "about: A good one.",
        "about: ''",
        2,
        "about: string should have at least 1 character",
    ),
    "bad duration": (
        "seconds: 200ms",
        "seconds: 200 parsecs",
        12,
        "is not a duration; a duration is",
    ),
    "bad distribution": (
        "seconds: 200ms",
        "seconds: {gauss: [1, 2]}",
        12,
        "unknown distribution 'gauss'",
    ),
    "report without a repository": (
        "cluster:",
        "incident: verl#12\ncluster:",
        3,
        "write owner/repository#number",
    ),
    "incident without expected": ("cluster:", "incident: a/b#12\ncluster:", 3, "add `expected`"),
    "sandbox that is not there": (
        "sandbox:",
        "sandbox:\n  each: {sandbox-2: {}}",
        7,
        "no sandbox 'sandbox-2'",
    ),
    "unknown key of a sandbox": (
        "sandbox:",
        "sandbox:\n  each: {sandbox-1: {fault: []}}",
        7,
        "did you mean 'faults'?",
    ),
    "fill without a number": (
        "seconds: 200ms",
        'prints: "{fill:ten}"',
        12,
        "{fill:ten} needs a whole number",
    ),
    "fill that is not closed": (
        "seconds: 200ms",
        'prints: "{fill:10"',
        12,
        "{fill:10 needs a whole number",
    ),
    "fill that is too large": (
        "seconds: 200ms",
        'errors: "{fill:999999999}"',
        12,
        "up to 20,000,000",
    ),
    "fills that are too long together": (
        "seconds: 200ms",
        'prints: "' + "{fill:9000000}" * 3 + '"',
        12,
        "27,000,000 characters to fill; at most 20,000,000 are possible in one text",
    ),
    "programs that print too much": (
        "  calls: 10\n  program:\n    seconds: 200ms",
        '  calls: 100\n  program:\n    errors: "{fill:20000000}"',
        9,
        "may print 2,000,000,800 characters; at most 1,000,000,000 are possible",
    ),
    "a million workers": (
        "cluster: {nodes: 2}",
        "cluster: {nodes: 1000, workers_per_node: 1000}",
        3,
        (
            "cluster: 1000 nodes with 1000 workers each are 1,000,000 workers; at most 10,000 "
            "are possible"
        ),
    ),
    "too many calls": ("  calls: 10", "  calls: 1000000000", 10, "less than or equal to 2000000"),
    "a number that is not finite": (
        "  calls: 10",
        "  calls: 10\n  cancel: {share: .nan, after: 1}",
        11,
        "finite number",
    ),
    "a number as text that is not finite": (
        "  calls: 10",
        "  calls: 10\n  cancel: {share: 1e400, after: 1}",
        11,
        "finite",
    ),
    "a negative number": ("seconds: 200ms", "seconds: -1", 12, "must be finite and not negative"),
    "a huge duration": (
        "seconds: 200ms",
        "seconds: 1e300",
        12,
        "at most 1,000,000,000 seconds are possible",
    ),
    "a huge integer": ("  calls: 10", f"  calls: {'9' * 90}", 10, "less than or equal to 2000000"),
    "a distribution without end": (
        "seconds: 200ms",
        "seconds: {lognormal: [1, 800]}",
        12,
        "a sigma of at most 10",
    ),
    "a huge matrix": (
        "cluster:",
        "matrix: {" + ", ".join(f"k{n}: [1, 2]" for n in range(60)) + "}\ncluster:",
        3,
        "the matrix has 1,152,921,504,606,846,976 cells; at most 1,000 are allowed",
    ),
    "a matrix of a long scenario": (
        "cluster:",
        "matrix: {seed: ["
        + ", ".join(map(str, range(900)))
        + "]}\nexpected: ["
        + "a, " * 300
        + "]\ncluster:",
        3,
        "at most 1,000,000 are allowed",
    ),
    "a matrix key of odd digits": (
        "cluster:",
        "matrix: {promises.²: [1]}\ncluster:",
        3,
        "does not exist",
    ),
    "a file of problems": (
        "about: A good one.",
        "\n".join(f"zzz{n}: 1" for n in range(30)),
        1,
        "and 11 more problems",
    ),
    "program of no call": (
        "seconds: 200ms",
        "call: c0011",
        9,
        "no call 'c0011' for it; the calls are c0001 to c0010",
    ),
    "calls without a program": (
        "seconds: 200ms",
        "call: c0003",
        9,
        "the other calls need a program without `call`",
    ),
    "unknown promise": (
        "- every_call_ends_once",
        "- every_call_ends_twice",
        16,
        "did you mean 'every_call_ends_once'?",
    ),
    "unknown outcome": (
        "{ok: all}",
        "{okay: all}",
        17,
        "'okay' is not an outcome; did you mean 'ok'?",
    ),
    "bad amount": ("{ok: all}", "{ok: most}", 17, "'most' is not an amount; use all, none, some"),
    "promise without parameter": (
        "- every_call_ends_once",
        "- recovers_within",
        16,
        "seconds is missing",
    ),
    "promise twice": (
        "- {outcomes: {ok: all}}",
        "- every_call_ends_once",
        17,
        "every_call_ends_once occurs twice",
    ),
    "unknown target": (
        "kill: n2-w1",
        "kill: n3-w1",
        14,
        "this scenario has no 'n3-w1'; did you mean",
    ),
    "point of two counts": (
        "kill: n2-w1",
        "after: {grants: 3, ended: 2}, kill: n2-w1",
        14,
        "exactly one of grants, arrivals, in_flight, ended; found 2",
    ),
    "event of two kinds": (
        "kill: n2-w1",
        "kill: n2-w1, resize: 3",
        14,
        "exactly one of kill, pause",
    ),
    "pause without an end": ("kill: n2-w1", "pause: n2-w1", 14, "pause needs `seconds`"),
    "unknown tool key": ("rate_limit: 4", "rate_limt: 4", 4, "did you mean 'rate_limit'?"),
    "key that the world sets": (
        "rate_limit: 4",
        "sandbox_fusion_url: http://x",
        4,
        "the world provides the address",
    ),
    "unknown world": (
        "cluster:",
        "worlds: [simm]\ncluster:",
        3,
        "input should be 'sim' or 'ray', found 'simm'",
    ),
    "bad name": ("scenario: good", "scenario: Good One", 1, "is not a name: use lowercase letters"),
    "load and rollouts": (
        "events:",
        "rollouts: {turns: [{say: hi}]}\nevents:",
        13,
        "has one of `load`, `rollouts`, `training` and `episodes`; found load and rollouts",
    ),
    "rollout promise without rollouts": (
        "- every_call_ends_once",
        "- rollout_ends",
        16,
        "this scenario has no `rollouts`",
    ),
    "key twice": (
        "events:",
        "tools: {rate_limit: 5}\nevents:",
        13,
        "duplicate key 'tools', first given in line 4",
    ),
    "tab": ("  calls: 10", "\tcalls: 10", 10, "indent with spaces"),
    "unclosed bracket": ("{ok: all}}", "{ok: all}", 18, "close every bracket"),
    "python tag": (
        "calls: 10",
        "calls: !!python/object/apply:os.getpid []",
        10,
        "write plain values",
    ),
    "second document": ("promises:", "---\npromises:", 15, "put each document into its own file"),
    "matrix without values": (
        "cluster:",
        "matrix: {cluster.nodes: []}\ncluster:",
        3,
        "needs a list of values",
    ),
    "matrix key that does not exist": (
        "cluster:",
        "matrix: {seed.x: [1]}\nseed: 1\ncluster:",
        3,
        "does not exist",
    ),
    "matrix with a bad value": (
        "cluster:",
        "matrix: {cluster.nodes: [2, none]}\ncluster:",
        3,
        "valid integer",
    ),
    "extends a missing file": ("cluster:", "extends: god\ncluster:", 3, "god.yaml does not exist"),
    "extends itself": ("cluster:", "extends: good\ncluster:", 3, "which extends this file again"),
    "bad server model": (
        "  faults:",
        "  model: {kind: qouta}\n  faults:",
        7,
        "did you mean 'quota'?",
    ),
    "a timeout that has no effect": (
        "rate_limit: 4",
        "default_timeout: 9\n  max_timeout: 5",
        6,
        "is below",
    ),
    "an amount that cannot be missed": (
        "{ok: all}",
        "{ok: at least 0%}",
        17,
        "cannot be broken; write `any`",
    ),
    "an amount that cannot be exceeded": (
        "{ok: all}",
        "{ok: at most 100%}",
        17,
        "cannot be broken; write `any`",
    ),
    "impossible phase": (
        "{status: 503}}",
        "{truncate: 0.5}, phase: before}",
        8,
        "cannot strike in phase 'before'",
    ),
}


def test_the_file_is_valid_before_it_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    assert read_scenarios(path)[0].title == "good"


@every(BROKEN, str)
def test_a_broken_file_is_reported_with_line_and_remedy(kind: str, tmp_path: Path) -> None:
    old, new, line, message = BROKEN[kind]
    assert GOOD.count(old) == 1
    path = tmp_path / "good.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        read_scenarios(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:{line}: "), text
    assert message in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "found nothing"),
        (b"- a\n- b\n", 1, "found a list"),
        (b"scenario: x\nabout: \xff\n", 2, "save the file as UTF-8"),
        (b"[" * 200 + b"]" * 200, 1, "deep"),
    ],
)
def test_a_file_that_is_not_a_scenario_is_refused(
    content: bytes, line: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        read_scenarios(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_all_problems_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD.replace("calls: 10", "cals: 10").replace("cluster:", "clustr:"))
    with pytest.raises(ScenarioError) as caught:
        read_scenarios(path)
    assert len(caught.value.problems) == 2


def test_a_problem_in_the_extended_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD.replace("calls: 10", "calls: none"))
    child = tmp_path / "child.yaml"
    child.write_text("extends: base\nscenario: child\n")
    with pytest.raises(ScenarioError) as caught:
        read_scenarios(child)
    assert str(caught.value).startswith(f"{tmp_path / 'base.yaml'}:10: ")


def test_a_file_that_extends_another_overrides_only_its_own_keys(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD)
    child = tmp_path / "child.yaml"
    child.write_text(
        "extends: base\nscenario: child\ntools: {default_timeout: 5}\npromises: "
        "[no_permit_leaked]\n"
    )
    (made,) = read_scenarios(child)
    assert made.tools == {"rate_limit": 4, "default_timeout": 5}
    assert [promise.name for promise in made.promises] == ["no_permit_leaked"]


def test_a_matrix_makes_a_cell_for_each_combination(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    matrix = (
        "matrix:\n  cluster.nodes: [2, 3]\n  sandbox.faults.0.what: {busy: {status: "
        "429}, gone: reset}\n"
    )
    path.write_text(GOOD + matrix)
    cells = read_scenarios(path)
    assert [cell.cell for cell in cells] == [
        "nodes=2,what=busy",
        "nodes=2,what=gone",
        "nodes=3,what=busy",
        "nodes=3,what=gone",
    ]
    assert cells[3].cluster.nodes == 3
    assert cells[3].sandbox.faults[0].what[0].kind == "reset"


def test_files_that_extend_each_other_in_a_long_row_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s0.yaml").write_text(GOOD)
    for number in range(1, 30):
        (tmp_path / f"s{number}.yaml").write_text(f"extends: s{number - 1}\n")
    assert read_scenarios(tmp_path / "s10.yaml")
    with pytest.raises(ScenarioError, match=r"s9\.yaml:1: .* in a row that extends another"):
        read_scenarios(tmp_path / "s29.yaml")


_ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        10**90,
        float("inf"),
        float("nan"),
        "",
        "1e400",
        "²",
        "\ud800",
        "x" * 5000,
        [],
        {},
        [[]],
        {"": {}},
    ]
) | st.text(max_size=5)


@st.composite
def _damaged(draw: st.DrawFn) -> Any:
    """A good scenario with one value or key replaced by an odd one."""
    data = yaml.safe_load(GOOD) | {
        "matrix": {"seed": [1, 2]},
        "tools": draw(st.sampled_from([{}, [{"class_name": "a.B"}]])),
    }
    data["rollouts" if draw(st.booleans()) else "spare"] = {
        "turns": [{"programs": [{"prints": "{fill:2}"}], "sees": "a"}]
    }
    here = data
    while True:
        places = list(here) if isinstance(here, dict) else list(range(len(here)))
        place = draw(st.sampled_from(places))
        if isinstance(here[place], dict | list) and here[place] and draw(st.booleans()):
            here = here[place]
            continue
        if isinstance(here, dict) and draw(st.booleans()):
            here[draw(_ODD.filter(lambda key: isinstance(key, str | int | float | None)))] = (
                here.pop(place)
            )
        else:
            here[place] = draw(_ODD)
        return data


@given(_damaged())
@settings(max_examples=32)
def test_a_damaged_scenario_is_read_or_refused_with_its_place(data: Any) -> None:
    problems: list[str] = []
    try:
        parse_scenarios(yaml.safe_dump(data), file="f")
    except ScenarioError as error:
        problems = error.problems
    assert all(problem.startswith("f:") for problem in problems)
