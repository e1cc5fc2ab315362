"""The pages in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sfusion.harness.core.figures import RunFigures
from sfusion.harness.core.journal import Journal
from sfusion.harness.core.verdict import Verdict
from sfusion.harness.reports import RunReport, render_index, render_run
from sfusion.harness.studies.compare.command import render_comparison
from sfusion.harness.studies.compare.comparison import RecordedRun, compare_runs
from sfusion.harness.studies.sweep.command import render_sweep
from sfusion.harness.studies.sweep.grid import Axis, Grid, GridSample, Measured
from sfusion.harness.studies.sweep.result import SweepResult
from tests.harness.reports.conftest import Opened
from tests.harness.reports.synthetic import PLANTED, Simulation, broken_run, held_run

Opener = Callable[..., Opened]

pytestmark = pytest.mark.xdist_group("browser")


def test_a_page_loads_without_errors_and_without_network_requests(open_page: Opener) -> None:
    for run in (
        broken_run(),
        held_run(),
        RunReport("nothing", []),
        RunReport("failed", [], error="it broke"),
    ):
        for dark, width in ((False, 1280), (True, 390)):
            opened = open_page(render_run(run), dark=dark, width=width)
            assert opened.messages == []
            assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
            assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_promises_come_before_the_timeline_with_broken_ones_first(open_page: Opener) -> None:
    opened = open_page(render_run(broken_run()))
    assert (
        opened.page.locator("h1").inner_text()
        == "2 of 6 promises were broken, 1 could not be judged"
    )
    shown = opened.page.locator(".verdict .pill").all_inner_texts()
    assert shown == ["broken", "broken", "unknown", "held", "held", "held"]
    promises, timeline = (
        opened.page.locator(name).bounding_box() for name in ("#promises", "#timeline")
    )
    assert promises["y"] < timeline["y"]


def test_script_tags_in_texts_do_not_run(open_page: Opener) -> None:
    opened = open_page(render_run(broken_run()))
    page = opened.page
    page.locator("#search").fill("c00023")
    page.locator("[data-group=call]").click()
    opened.settle()
    page.locator("#lanes").click(position={"x": 20, "y": 10})
    assert PLANTED in page.locator("#panel pre").all_inner_texts()
    page.locator("details.file summary").click()
    assert (page.evaluate("window.planted"), opened.messages) == (None, [])
    index = open_page(render_index([broken_run()]))
    assert (index.page.evaluate("window.planted"), index.messages) == (None, [])


def test_hovering_shows_how_a_call_ended_and_what_was_in_flight(open_page: Opener) -> None:
    opened = open_page(render_run(held_run()))
    opened.page.locator("[data-group=call]").click()
    opened.settle()
    opened.page.locator("#lanes").hover(position={"x": 30, "y": 8})
    tip = opened.page.locator("#tip")
    assert tip.is_visible()
    assert "ok after" in tip.inner_text()
    opened.page.locator("#chart").hover(position={"x": 600, "y": 60})
    assert "in flight" in tip.inner_text()
    assert "of 10" in tip.inner_text()
    opened.page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_calls_can_be_filtered_by_outcome(open_page: Opener) -> None:
    opened = open_page(render_run(broken_run()))
    page = opened.page
    chip = page.locator("[data-outcome=program_error]")
    count = chip.locator("span").inner_text()
    total = page.locator("#shown").inner_text().split()[0]
    chip.click()
    assert page.locator("#shown").inner_text() == f"{count} of {total} calls shown"
    page.locator("[data-group=call]").click()
    opened.settle()
    shown = opened.colours("lanes", 0, 60)
    assert opened.css_colour("program_error") in shown
    assert opened.css_colour("program_timeout") not in shown
    chip.click()
    assert page.locator("#shown").inner_text() == f"{total} calls"


def test_a_click_on_evidence_opens_the_events_of_the_call(open_page: Opener) -> None:
    opened = open_page(render_run(broken_run()))
    page = opened.page
    page.locator(".evidence .link[data-call]").first.click()
    panel = page.locator("#panel")
    assert panel.locator("h2").inner_text() == "c00001"
    lines = panel.locator("li").all_inner_texts()
    assert "call started" in lines[0]
    assert "call ended" in lines[-1]
    panel.get_by_label("Next call").click()
    assert panel.locator("h2").inner_text() != "c00001"
    page.keyboard.press("Escape")
    assert panel.is_hidden()


def test_dragging_over_the_chart_zooms_and_a_double_click_resets(open_page: Opener) -> None:
    opened = open_page(render_run(broken_run()))
    page = opened.page
    box = page.locator("#chart").bounding_box()
    page.locator("#chart").scroll_into_view_if_needed()
    box = page.locator("#chart").bounding_box()

    def time_at(x: float) -> float:
        page.mouse.move(box["x"] + x, box["y"] + 60)
        return float(page.locator("#tip").inner_text().split(" s")[0])

    whole = time_at(900) - time_at(300)
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 520, box["y"] + 60, steps=4)
    page.mouse.up()
    assert time_at(900) - time_at(300) < whole / 4
    page.locator("#chart").dblclick(position={"x": 500, "y": 60})
    assert time_at(900) - time_at(300) == pytest.approx(whole, rel=0.01)


def test_the_theme_follows_the_system_and_the_button(open_page: Opener) -> None:
    opened = open_page(render_run(held_run()), dark=True)
    page = opened.page
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) != dark
    page.emulate_media(color_scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert open_page(render_run(held_run())).page.evaluate(background) != dark


def test_ten_thousand_calls_stay_usable(open_page: Opener) -> None:
    events = Simulation(10_000, workers=8, limit=64).run()
    html = render_run(RunReport("many", [Verdict("outcomes", "held", "fine")], events=events))
    assert len(html) < 12_000_000
    opened = open_page(html)
    page = opened.page
    assert page.locator("#shown").inner_text() == "10,000 calls"
    page.locator("[data-group=call]").click()
    page.locator("#rows").evaluate("(rows) => { rows.scrollTop = rows.scrollHeight; }")
    opened.settle()
    page.locator("#lanes").click(position={"x": 20, "y": 200})
    assert page.locator("#panel li").count() >= 5
    page.locator("[data-outcome=ok]").click()
    page.locator("[data-zoom=in]").click()
    opened.settle()
    assert page.locator("canvas").count() == 2
    assert page.locator("*").count() < 600  # calls are drawn on the canvas, they are not elements
    assert opened.messages == []


def test_the_index_of_runs_can_be_filtered(open_page: Opener) -> None:
    html = render_index([broken_run(60), held_run(10)], {"single-node": "single-node/report.html"})
    opened = open_page(html)
    page = opened.page
    assert page.locator(".run:visible").count() == 2
    page.locator("button[data-state=held]").click()
    assert page.locator(".run:visible .who .name").all_inner_texts() == ["single-node"]
    page.locator(".run:visible summary").click()
    assert page.locator(".run:visible a").get_attribute("href") == "single-node/report.html"
    page.locator("#search").fill("no such thing")
    assert page.locator("#none").is_visible()
    assert opened.messages == []


def test_pages_of_sweeps_histories_and_comparisons_load_nothing_and_escape_texts(
    open_page: Opener,
) -> None:
    wild = "<script>window.planted = 1</script>"
    figures = RunFigures(4, {"ok": 4}, 1.0, 4.0, 0.1, 0.2, 0.3, attempts=6, failures={"429": 2})
    grid = Grid((Axis("tools.rate_limit", (2, 4, 64)), Axis("load.program", (wild, "b"))), 2)
    samples = [GridSample(figures), GridSample(figures, broken=(wild,))]
    measured = [Measured.of(samples) for _ in grid.settings]
    journal = Journal(
        {"scenario": wild, "cell": "", "seed": 0, "world": "sim"}, list(broken_run().events)
    )
    verdicts = [Verdict(wild, "broken", wild)]
    runs = (
        RecordedRun(wild, {"a": wild}, Journal(journal.header), []),
        RecordedRun(wild, {}, journal, verdicts),
    )
    pages = [
        render_sweep(SweepResult(wild, wild, 0, grid, measured)),
        render_comparison([compare_runs(*runs)], wild, wild),
    ]
    for page in pages:
        for dark, width in ((False, 1280), (True, 390)):
            opened = open_page(page, dark=dark, width=width)
            assert opened.messages == []
            assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
            assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert opened.page.evaluate("window.planted") is None
