"""The HTML of the pages: self-contained, and safe whatever programs print."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from sfusion.harness.core.verdict import How, Verdict
from sfusion.harness.reports import RunReport, render_index, render_run
from sfusion.harness.reports.timeline import embed, page_data
from tests.harness.reports.synthetic import PLANTED, broken_run, held_run


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


PAGES = {"run": render_run(broken_run(60)), "index": render_index([broken_run(60), held_run(10)])}


@pytest.mark.parametrize("page", PAGES)
def test_printed_text_never_becomes_markup(page: str) -> None:
    tags = Tags(PAGES[page]).found
    assert [tag for tag, _ in tags].count("script") == (2 if page == "run" else 1)
    assert not [tag for tag, _ in tags if tag in ("img", "iframe", "object", "embed")]
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert PLANTED not in PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_refers_to_no_other_file(page: str) -> None:
    for _, attributes in Tags(PAGES[page]).found:
        assert not attributes.get("src")
        assert (attributes.get("href") or "data:").startswith("data:")
    assert "@import" not in PAGES[page]
    assert "url(" not in PAGES[page]
    assert "default-src &#39;none&#39;" in PAGES[page]


def test_the_embedded_data_is_valid_json() -> None:
    (embedded,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', PAGES["run"], re.DOTALL
    )
    assert json.loads(embedded) == page_data(broken_run(60))
    assert not set("<>&") & set(embedded)
    assert PLANTED in [
        row[4]["text"]
        for call in json.loads(embedded)["calls"]
        for row in call[9]
        if len(row) > 4 and "text" in row[4]
    ]


def test_values_that_json_cannot_represent_become_text() -> None:
    odd = {
        "at": 1.0,
        "source": "client",
        "event": "call_ended",
        "call": "a",
        "x": float("nan"),
        "y": {1, 2},
        "z": b"\xff",
    }
    text = embed(page_data(RunReport("odd", [], events=[odd])))
    assert json.loads(text)["calls"][0][9][0][4]["x"] == "nan"
    assert "NaN" not in text


def test_a_limit_that_only_the_promise_states_is_drawn() -> None:
    events = [
        {"at": at, "source": "server", "event": name, "call": "a"}
        for at, name in ((1.0, "arrived"), (2.0, "answered"))
    ]
    how = How("in_flight_within_limit", "exceeded", details={"limit": 8})
    verdict = Verdict("in_flight_within_limit", "broken", "9 were in flight", how=how)
    assert page_data(RunReport("s", [verdict], events=events))["limit"] == [[1.0], [8]]
    assert page_data(RunReport("s", [], events=events))["limit"] == [[], []]


def test_a_page_with_lone_surrogates_can_be_written_as_utf8() -> None:
    run = dataclasses.replace(
        held_run(3), about="half \ud83d a smile", read_source=lambda: "\udc00"
    )
    assert render_run(run).encode("utf-8")


def test_equal_runs_give_equal_pages() -> None:
    assert render_run(broken_run(60)) == PAGES["run"]
