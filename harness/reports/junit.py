"""JUnit XML for CI systems: a suite per run, a test case per promise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from sfusion.harness.reports.run_report import BROKEN, NOT_APPLICABLE, UNKNOWN, RunReport

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(runs: Sequence[RunReport]) -> str:
    """All runs as one document."""
    top = ElementTree.Element("testsuites", name="sfusion")
    totals = [0, 0, 0, 0]
    for run in runs:
        suite = ElementTree.SubElement(top, "testsuite", name=_clean(run.name))
        cases = [_case(suite, run, one.promise, one.state, one.sentence) for one in run.verdicts]
        error = 0
        if run.error:
            case = ElementTree.SubElement(suite, "testcase", classname=_clean(run.name), name="run", time="0")
            ElementTree.SubElement(case, "error", message=_clean(run.error), type="error").text = _clean(run.error)
            error = 1
        failures = cases.count(BROKEN) + cases.count(UNKNOWN)
        counts = [len(cases) + error, failures, error, cases.count(NOT_APPLICABLE)]
        _count(suite, counts, run.wall_seconds or 0.0)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    _count(top, totals, sum(run.wall_seconds or 0.0 for run in runs))
    ElementTree.indent(top)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(top, encoding="unicode") + "\n"


def _count(element: ElementTree.Element, counts: Sequence[int], seconds: float) -> None:
    for name, value in zip(("tests", "failures", "errors", "skipped"), counts, strict=True):
        element.set(name, str(value))
    element.set("time", f"{seconds:.3f}")


def _case(suite: ElementTree.Element, run: RunReport, promise: str, state: str, sentence: str) -> str:
    share = (run.wall_seconds or 0.0) / max(len(run.verdicts), 1)
    case = ElementTree.SubElement(
        suite, "testcase", classname=_clean(run.name), name=_clean(promise), time=f"{share:.3f}"
    )
    if state in (BROKEN, UNKNOWN):  # a promise that could not be judged has not passed
        failure = ElementTree.SubElement(case, "failure", message=_clean(f"{state}: {sentence}"), type=state)
        failure.text = _clean(
            f"{promise} {state}: {sentence}\nworld {run.world}, seed {run.seed}\n{run.replay}".strip()
        )
    elif state == NOT_APPLICABLE:
        ElementTree.SubElement(case, "skipped", message=_clean(f"not applicable: {sentence}"))
    return state


def _clean(text: str) -> str:
    """The text with the characters that XML cannot represent, not even escaped, replaced."""
    return _NOT_XML.sub("\ufffd", text)
