"""A server with planted differences: exactly these are found, each with its grade."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import cache

import pytest

from sfusion.harness.real.drift.judging import (
    DriftReport,
    ServerAnswers,
    compare_answers,
    fake_answers,
    live_answers,
)
from sfusion.harness.real.probes.model import Probe, bundled_probes
from sfusion.harness.real.probes.raw_http import ProbeAnswer
from tests.cases import every
from tests.harness.real.drift.mirror import Mirror, Plant, body, header, headers, put, renamed, text
from tests.patience import PATIENCE

NOTHING = ""
PLANTS: dict[str, tuple[Plant, str]] = {
    # What a client or a training loop acts on.
    "results/hello": (
        renamed("run_result", "stdout", to="output"),
        "body.run_result.stdout key-renamed breaking",
    ),
    "results/exit-3": (
        put("run_result", "return_code", value=4),
        "body.run_result.return_code value breaking",
    ),
    "results/exit-1": (
        put("run_result", "return_code", value="1"),
        "body.run_result.return_code type breaking",
    ),
    "results/exit-0": (
        put("run_result", "return_code", value=0.0),
        "body.run_result.return_code type breaking",
    ),
    "results/exit-none": (put("status", value="Failed"), "body.status text breaking"),
    "results/exit-256": (
        put("run_result", "stderr", value=None),
        "body.run_result.stderr type breaking",
    ),
    "results/blank": (
        put("run_result", "execution_time", value=0),
        "body.run_result.execution_time type breaking",
    ),
    "results/floats": (
        put("run_result", "stdout", value="0.3 1e+100 nan\n"),
        "body.run_result.stdout text breaking",
    ),
    "results/exit-text": (
        put("run_result", "stderr", value=""),
        "body.run_result.stderr text breaking",
    ),
    "results/both-streams": (
        body(
            lambda content: {name: content[name] for name in content if name != "executor_pod_name"}
        ),
        "body.executor_pod_name key-missing breaking",
    ),
    "results/at-exit": (
        body(lambda content: {**content, "extra": 1}),
        "body.extra key-extra breaking",
    ),
    "files/fetch": (put("files", "out.txt", value="b3RoZXI="), "body.files.out.txt text breaking"),
    "files/fetch-several": (
        body(lambda content: {**content, "files": {"a": "YQ==", "b": "Yg=="}}),
        "body.files.c key-missing breaking",
    ),
    "timeouts/sleeps": (
        put("run_result", "status", value="Finished"),
        "body.run_result.status text breaking",
    ),
    "http/unknown-post": (
        lambda answer: replace(answer, status=410),
        "status http-status breaking",
    ),
    "http/metrics": (
        header("content-type", "text/plain"),
        "header.content-type header-value breaking",
    ),
    "http/run-code-slash": (
        header("location", "http://127.0.0.1:1/elsewhere"),
        "header.location header-value breaking",
    ),
    "http/run-jupyter-slash": (
        headers(lambda all_: [pair for pair in all_ if pair[0] != "location"]),
        "header.location header-missing breaking",
    ),
    "http/unknown-delete": (
        headers(lambda all_: [*all_, ("retry-after", "3")]),
        "header.retry-after header-extra breaking",
    ),
    "http/ping-body": (
        lambda answer: replace(answer, body=b"<p>pong</p>"),
        "body not-json breaking",
    ),
    "bodies/nan": (lambda _: ProbeAnswer(failure="nothing"), "answer no-answer breaking"),
    "validation/no-code": (
        put("detail", 0, "type", value="absent"),
        "body.detail[0].type text breaking",
    ),
    "validation/no-language": (
        put("detail", 0, "loc", 1, value="lang"),
        "body.detail[0].loc[1] text breaking",
    ),
    "validation/all-wrong": (
        body(lambda content: {"detail": content["detail"][:-1]}),
        "body.detail length breaking",
    ),
    # What people or the model see.
    "results/raises": (text("bad value", "poor value"), "body.run_result.stderr text visible"),
    "results/child": (text("the parent\\n", "the parent"), "body.run_result.stdout blanks visible"),
    "files/bad-padding": (text("Incorrect padding", "Wrong padding"), "body.message text visible"),
    "datasets/submit-unknown": (text("no eval class", "no class"), "body.detail text visible"),
    "validation/code-null": (
        put("detail", 0, "msg", value="Not a text"),
        "body.detail[0].msg text visible",
    ),
    "validation/code-list": (
        put("detail", 0, "input", value=["b"]),
        "body.detail[0].input[0] text visible",
    ),
    "http/run-code-get": (header("allow", "GET, POST"), "header.allow header-value visible"),
    # What makes no difference to anyone.
    "results/nothing": (
        lambda answer: replace(
            answer, body=re.sub(rb"(?<=time\":)[\d.e-]+", b"0.0200", answer.body)
        ),
        "body.run_result.execution_time number-form cosmetic",
    ),
    "results/comment": (
        body(lambda content: dict(reversed(content.items()))),
        "body key-order cosmetic",
    ),
    "results/unicode": (
        lambda answer: replace(
            answer, body=json.dumps(json.loads(answer.body), separators=(",", ":")).encode()
        ),
        "body body-form cosmetic",
    ),
    "results/no-newline": (
        lambda answer: replace(answer, body=json.dumps(json.loads(answer.body)).encode()),
        "body body-form cosmetic",
    ),
    "results/syntax-error": (
        text("SyntaxError: ", "SyntaxError:  "),
        "body.run_result.stderr blanks cosmetic",
    ),
    "results/threads": (
        put("executor_pod_name", value="pod-7"),
        "body.executor_pod_name type cosmetic",
    ),
    "validation/code-number": (text("dev/2.6/", "dev/2.9/"), "body.detail[0].url text cosmetic"),
    "http/ping": (header("server", "nginx"), "header.server header-value cosmetic"),
    "http/ping-query": (
        headers(lambda all_: [(name.title(), value) for name, value in all_]),
        "headers header-case cosmetic",
    ),
    "http/unknown-get": (headers(lambda all_: all_[::-1]), "headers header-order cosmetic"),
    "http/health": (
        header("content-type", "application/json; charset=utf-8"),
        "header.content-type header-value cosmetic",
    ),
    "http/favicon": (
        headers(lambda all_: [*all_, ("via", "1.1 gateway")]),
        "header.via header-extra cosmetic",
    ),
    # What changes between runs, or may vary: not a difference.
    "results/exit-127": (put("run_result", "execution_time", value=1.25), NOTHING),
    "results/work-directory": (
        put("run_result", "stdout", value="/var/lib/other/tmpab12cd34\n"),
        NOTHING,
    ),
    "http/ping-upper": (header("date", "Mon, 01 Jan 2035 00:00:00 GMT"), NOTHING),
    "http/docs": (lambda answer: replace(answer, body=b"<html>another page</html>"), NOTHING),
    "languages/cpp-compile-timeout": (put("compile_result", "execution_time", value=9.5), NOTHING),
}
MISSING = "languages/perl"


@cache
def probes() -> list[Probe]:
    wanted = {*PLANTS, MISSING, "results/assertion", "stdin/one-line"}
    return [probe for probe in bundled_probes() if probe.id in wanted]


pytestmark = pytest.mark.xdist_group("planted differences")


@pytest.fixture(scope="module")
def report() -> DriftReport:
    return asyncio.run(planted_report())


async def planted_report() -> DriftReport:
    fake = await fake_answers(probes(), timeout=PATIENCE)
    plants = {name: plant for name, (plant, _) in PLANTS.items()}
    plants[MISSING] = body(_without_perl)
    async with Mirror.serving(probes(), fake.answers, plants) as mirror:
        planted = await live_answers(mirror.url, probes(), name="planted", timeout=PATIENCE)
    return compare_answers(probes(), fake, planted)


def _without_perl(content: dict[str, object]) -> dict[str, object]:
    lacks = {"status": "Finished", "execution_time": 0.1, "return_code": 127, "stdout": ""}
    return {
        **content,
        "status": "Failed",
        "run_result": {**lacks, "stderr": "/bin/bash: line 1: perl: command not found\n"},
    }


@every(PLANTS, str)
def test_exactly_what_was_planted_is_found_with_its_grade(probe: str, report: DriftReport) -> None:
    found = [
        f"{finding.difference.place} {finding.difference.kind} {finding.grade}"
        for finding in report.findings
        if finding.difference.probe == probe
    ]
    assert "; ".join(found) == PLANTS[probe][1]


def test_unplanted_probes_have_no_differences(report: DriftReport) -> None:
    assert {finding.difference.probe for finding in report.findings} <= set(PLANTS)
    assert len(report.findings) == sum(expected != NOTHING for _, expected in PLANTS.values())


def test_a_missing_runtime_is_not_comparable(report: DriftReport) -> None:
    assert report.not_comparable == ((MISSING, "planted has no perl"),)
    assert report.compared == len(probes()) - 1


def test_findings_are_sorted_by_grade(report: DriftReport) -> None:
    grades = [finding.grade for finding in report.ranked]
    assert grades == sorted(grades, key=["breaking", "visible", "cosmetic"].index)
    assert set(grades) == {"breaking", "visible", "cosmetic"}
    assert report.breaking


def test_equal_answers_have_no_drift() -> None:
    answers = {"results/hello": ProbeAnswer(200, (("a", "b"),), b"1")}
    found = [probe for probe in probes() if probe.id in answers]
    report = compare_answers(found, ServerAnswers("a", answers), ServerAnswers("b", answers))
    assert (report.findings, report.compared, report.breaking) == ((), 1, False)
