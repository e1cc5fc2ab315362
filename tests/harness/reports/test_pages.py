"""The pages as text: complete, and without a way out for what programs printed."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from sfusion.harness.reports import Run, render_index, render_run
from sfusion.harness.reports.payload import embed, payload
from tests.harness.reports.synthetic import PLANTED, broken_run, held_run


class Tags(HTMLParser):
    """Collects what is markup in a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


PAGES = {"run": render_run(broken_run(60)), "index": render_index([broken_run(60), held_run(10)])}


@pytest.mark.parametrize("page", PAGES)
def test_nothing_that_was_printed_becomes_markup(page: str) -> None:
    tags = Tags(PAGES[page]).found
    assert [tag for tag, _ in tags].count("script") == (2 if page == "run" else 1)
    assert not [tag for tag, _ in tags if tag in ("img", "iframe", "object", "embed")]
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert PLANTED not in PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_nothing(page: str) -> None:
    for _, attributes in Tags(PAGES[page]).found:
        assert not attributes.get("src")
        assert (attributes.get("href") or "data:").startswith("data:")
    assert "@import" not in PAGES[page]
    assert "url(" not in PAGES[page]
    assert "default-src &#39;none&#39;" in PAGES[page]


def test_the_data_reads_back_as_it_was() -> None:
    (embedded,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', PAGES["run"], re.DOTALL)
    assert json.loads(embedded) == payload(broken_run(60))
    assert not set("<>&") & set(embedded)
    assert PLANTED in [
        row[4]["text"] for call in json.loads(embedded)["calls"] for row in call[9] if len(row) > 4 and "text" in row[4]
    ]


def test_numbers_and_things_that_json_does_not_have_do_not_spoil_a_page() -> None:
    odd = {
        "at": 1.0,
        "source": "client",
        "event": "call_ended",
        "call": "a",
        "x": float("nan"),
        "y": {1, 2},
        "z": b"\xff",
    }
    text = embed(payload(Run("odd", [], events=[odd])))
    assert json.loads(text)["calls"][0][9][0][4]["x"] == "nan"
    assert "NaN" not in text


def test_lone_surrogates_can_be_written_to_a_file() -> None:
    run = dataclasses.replace(held_run(3), about="half \ud83d a smile", source="\udc00")
    assert render_run(run).encode("utf-8")


def test_the_same_run_gives_the_same_bytes() -> None:
    assert render_run(broken_run(60)) == PAGES["run"]
