"""JUnit XML, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
from xml.etree import ElementTree

from sfusion.harness.core.verdict import Verdict
from sfusion.harness.reports import RunReport
from sfusion.harness.reports.files import junit, markdown, summary, summary_json
from sfusion.harness.reports.run_report import headline
from tests.harness.reports.synthetic import PLANTED, broken_run, held_run

RUNS = [broken_run(60), held_run(10)]


def test_junit_counts_add_up_and_unknown_is_a_failure() -> None:
    top = ElementTree.fromstring(junit(RUNS))
    assert top.tag == "testsuites"
    assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("8", "3", "0")
    for suite, run in zip(top, RUNS, strict=True):
        assert suite.get("name") == run.name
        assert int(suite.get("tests", "")) == len(suite) == len(run.verdicts)
        assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
        assert float(suite.get("time", "")) >= 0
        for case in suite:
            assert case.get("classname") == run.name
            assert case.get("name")


def test_junit_failures_have_the_sentence_and_the_replay_command() -> None:
    failures = ElementTree.fromstring(junit(RUNS)).findall(".//failure")
    assert [failure.get("type") for failure in failures] == ["broken", "broken", "unknown"]
    assert failures[0].get("message") == "broken: " + RUNS[0].in_state("broken")[0].sentence
    assert "sfusion replay runs/throttled-gateway" in (failures[0].text or "")


def test_junit_is_valid_xml_whatever_a_program_prints() -> None:
    nasty = "".join(map(chr, range(0x20))) + "\ud800\ufffe]]>&<" + PLANTED
    run = dataclasses.replace(RUNS[0], verdicts=[Verdict(nasty, "broken", nasty)], about=nasty)
    failure = ElementTree.fromstring(junit([run]).encode()).find(".//failure")
    assert failure is not None
    assert PLANTED in (failure.text or "")


def test_a_run_that_failed_is_an_error_in_every_report() -> None:
    run = RunReport("dead", [], error="the tool raised KeyError: 'x'")
    top = ElementTree.fromstring(junit([run]))
    assert (top.get("tests"), top.get("errors"), top.get("failures")) == ("1", "1", "0")
    assert "the tool raised KeyError" in markdown([run])
    assert summary([run])["runs"][0]["state"] == "broken"


def test_markdown_lists_broken_promises_first_and_escapes_texts() -> None:
    text = markdown(RUNS)
    first, *_ = text.splitlines()
    assert first == "### ❌ sfusion: 2 runs: 1 broke a promise, 1 held."
    assert "- ❌ `every_call_ends_once` broken: 12 of 60 calls never ended" in text
    assert "- ❔ `no_duplicate_execution` unknown:" in text
    assert "`sfusion replay runs/throttled-gateway`" in text
    assert "<script" not in text
    assert text.index("broken:") < text.index("| ✅ | single-node |")


def test_a_sentence_cannot_inject_markdown() -> None:
    evil = "a | b\n# big\n[x](http://x) @everyone `code` <b>" + "x" * 1000
    text = markdown([RunReport("s", [Verdict("p", "broken", evil)])])
    assert "\n# big" not in text
    assert "[x](" not in text.replace("\\[", "")
    assert "<b>" not in text.replace("\\<", "")
    assert max(map(len, text.splitlines())) < 500


def test_a_long_markdown_table_is_collapsed() -> None:
    runs = [dataclasses.replace(RUNS[1], scenario=f"s{number}") for number in range(20)]
    text = markdown(runs)
    assert text.startswith("### ✅ sfusion: 20 runs: every promise held.")
    assert "<details>" in text
    assert text.count("| ✅ |") == 20


def test_the_json_summary_has_outcomes_and_promises() -> None:
    data = json.loads(summary_json(RUNS))
    broken, held = data["runs"]
    assert (data["summary"], held["state"], held["calls"], sum(held["outcomes"].values())) == (
        1,
        "held",
        10,
        10,
    )
    assert [one["state"] for one in broken["promises"]] == [one.state for one in RUNS[0].verdicts]


def test_the_headline_counts_the_worst_first() -> None:
    unknown = RunReport("u", [Verdict("p", "unknown", "not seen")])
    assert headline([]) == "Nothing was run."
    assert headline([RUNS[1]]) == "1 run: every promise held."
    assert headline([unknown, *RUNS]).endswith(
        "1 broke a promise, 1 could not be judged completely, 1 held."
    )


def test_a_run_without_promises_is_unknown() -> None:
    assert RunReport("nothing", []).state == "unknown"
