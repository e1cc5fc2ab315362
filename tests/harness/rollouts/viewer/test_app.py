"""The viewer, driven by keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual", reason="extra view is not installed")

from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Collapsible, Input, Static

from sfusion.harness.core.dumps import sample as sample_module
from sfusion.harness.core.dumps.sample import open_dump
from sfusion.harness.rollouts.viewer.app import ViewerApp
from tests.harness.rollouts.viewer.dumps import record, write

Opener = Callable[..., AbstractAsyncContextManager[tuple[ViewerApp, Pilot[None]]]]


@pytest.fixture
def opened(tmp_path: Path) -> Opener:
    """Open a dump in a running viewer."""

    @asynccontextmanager
    async def run(**files: list[Any]) -> AsyncIterator[tuple[ViewerApp, Pilot[None]]]:
        for name, records in files.items():
            write(
                tmp_path / f"{name.replace('requests_', 'requests/').replace('step_', '')}.jsonl",
                records,
            )
        app = ViewerApp(open_dump(tmp_path), tmp_path)
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(app, pilot)
            yield app, pilot

    return run


async def settle(app: ViewerApp, pilot: Pilot[None], *keys: str) -> None:
    """Press keys and wait until their effects are complete.

    The waits of Textual's pilot also end when the process gets no processor time, as on a busy
    machine.
    """
    for key in keys or [None]:
        await pilot.press(*[key] if key else [])
        await messages_handled(app)
        await app.workers.wait_for_complete()
        await messages_handled(app)


async def messages_handled(app: ViewerApp) -> None:
    """Wait until no widget has had a message for 20 turns of the application, which handles most of
    them."""
    quiet = 0
    while quiet < 20:
        handled = asyncio.Event()
        app.call_later(handled.set)
        await handled.wait()
        has_more = any(
            widget.message_queue_size for widget in app.screen.walk_children(with_self=True)
        )
        quiet = 0 if has_more else quiet + 1


async def ask(app: ViewerApp, pilot: Pilot[None], key: str, text: str) -> None:
    """Open the input line with a key, fill it in and press enter."""
    await settle(app, pilot, key)
    app.query_one("#ask-input", Input).value = text
    await settle(app, pilot, "enter")


def shown(app: ViewerApp) -> str:
    """The text of the right pane."""
    return "\n".join(str(widget.render()) for widget in app.query_one("#detail").query(Static))


def status(app: ViewerApp) -> str:
    return str(app.query_one("#status", Static).render())


QUESTIONS = [
    record("What is 2 + 2?"),
    record("John's bonus?", "220000.0", 0),
    record("How many [red]eggs[/red]?", "7"),
]


async def test_keys_select_samples_and_steps_and_are_in_the_footer(opened: Opener) -> None:
    async with opened(step_1=QUESTIONS, step_2=[record("second step", step=2)]) as (app, pilot):
        assert app.query("Footer")
        described = {
            key.description
            for _, key, enabled, _ in app.screen.active_bindings.values()
            if enabled and key.show
        }
        assert {
            "Next",
            "Prev",
            "Step+",
            "Step-",
            "Find",
            "Next hit",
            "Filter",
            "Calls",
            "Fields",
            "Quit",
        } <= described
        assert "What is 2 + 2?" in shown(app)
        await settle(app, pilot, "n")
        assert "John's bonus?" in shown(app)
        assert "sample 2 of 3" in status(app)
        assert "score 0" in status(app)
        await settle(app, pilot, "n", "n", "n")
        assert "[red]eggs[/red]" in shown(app)
        await settle(app, pilot, "p", "p", "p", "p")
        assert "sample 1 of 3" in status(app)
        await settle(app, pilot, "N")
        assert "second step" in shown(app)
        assert "step 2" in status(app)
        await settle(app, pilot, "N", "P")
        assert "What is 2 + 2?" in shown(app)


async def test_tool_calls_are_collapsed_until_t_is_pressed_or_the_text_is_found(
    opened: Opener,
) -> None:
    async with opened(step_1=QUESTIONS) as (app, pilot):
        collapsibles = list(app.query(Collapsible))
        assert [one.title for one in collapsibles] == [
            "system  You are a math expert.",
            "call code_interpreter · 2 lines",
            "tool  4",
        ]
        assert all(one.collapsed for one in collapsibles)
        await ask(app, pilot, "slash", "print")
        assert [one.collapsed for one in app.query(Collapsible)] == [True, False, True]
        await settle(app, pilot, "escape")
        assert all(one.collapsed for one in app.query(Collapsible))
        await settle(app, pilot, "t")
        assert [one.collapsed for one in app.query(Collapsible)] == [True, False, False]
        await settle(app, pilot, "n")
        assert [one.collapsed for one in app.query(Collapsible)] == [True, False, False]


async def test_a_search_selects_the_sample_highlights_the_text_and_enter_the_next_hit(
    opened: Opener,
) -> None:
    async with opened(step_1=QUESTIONS) as (app, pilot):
        await ask(app, pilot, "slash", "What is")
        assert "sample 1 of 3" in status(app)
        await ask(app, pilot, "slash", "BONUS")
        assert "sample 2 of 3" in status(app)
        (question,) = app.query("#detail Static.hit")
        found = question.visual
        assert isinstance(found, Content)
        assert [found.plain[span.start : span.end] for span in found.spans] == ["bonus"]
        await ask(app, pilot, "slash", "####")
        for wanted in (3, 1, 2):
            await settle(app, pilot, "enter")
            assert f"sample {wanted} of 3" in status(app)


async def test_a_filter_lists_the_matching_samples_and_a_malformed_one_changes_nothing(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ViewerApp, "NOTIFICATION_TIMEOUT", 600.0
    )  # a busy machine may take longer than 5 s
    requests = [{"outcomes": {"ok": 1}}, {"outcomes": {"unreachable": 1}}, {"outcomes": {"ok": 1}}]
    async with opened(step_1=QUESTIONS, requests_1=requests) as (app, pilot):
        await ask(app, pilot, "f", "score<high")
        assert len(app.samples.rows) == 3
        assert "give a number" in next(iter(app._notifications)).message
        await ask(app, pilot, "f", "score<1")
        assert list(app.samples.rows) == [1]
        assert "John's bonus?" in shown(app)
        assert "1 matching the filter" in status(app)
        await settle(app, pilot, "escape")
        assert len(app.samples.rows) == 3
        assert "sample 2 of 3" in status(app)
        await ask(app, pilot, "f", "outcome:throttled")
        assert list(app.samples.rows) == []
        assert "no samples to show" in shown(app)
        await ask(app, pilot, "f", "outcome:unreachable")
        assert list(app.samples.rows) == [1]
        assert "unreachable ×1" in status(app)


async def test_request_fields_are_shown_on_demand(opened: Opener) -> None:
    async with opened(step_1=[record("q", acc=0.5)], requests_1=[{"ended_by": "length"}]) as (
        app,
        pilot,
    ):
        assert not app.query_one("#fields").display
        await settle(app, pilot, "r")
        assert app.query_one("#fields").display
        fields = str(app.query_one("#field-text", Static).render())
        assert "acc: 0.5" in fields
        assert "ended_by: length" in fields


async def test_malformed_lines_are_shown_with_the_reason(opened: Opener) -> None:
    async with opened(step_1=[record("good"), "{oops", "", record("also good")]) as (app, pilot):
        await settle(app, pilot, "n")
        assert "line 2 is not a sample: not JSON" in shown(app)
        assert "{oops" in shown(app)
        await settle(app, pilot, "n", "n")
        assert "also good" in shown(app)
        await ask(app, pilot, "f", "outcome:malformed")
        assert list(app.samples.rows) == [1, 2]


async def test_the_rest_of_a_long_file_is_indexed_in_the_background(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_module, "_BLOCK", 2000)
    async with opened(step_1=[record(f"question {i}") for i in range(400)]) as (app, pilot):
        assert len(app.samples.rows) == 400
        await settle(app, pilot, "end")
        assert "question 399" in shown(app)
        # Only visible samples were read.
        assert app.step.sample.cache_info().misses < 120


async def test_control_characters_do_not_reach_the_terminal(opened: Opener) -> None:
    sample = record("\x1b[32mgreen", "\x1b[31mred")
    sample["output"] = sample["output"].replace("x = 2", "x = '\\u001b[33myellow'")
    async with opened(step_1=[sample]) as (app, pilot):
        await settle(app, pilot, "t")
        rows = "".join(segment.text for segment in app.samples.render_line(0))
        assert "\x1b" not in shown(app) + rows
        assert all(
            rf"\x1b[{colour}" in shown(app) for colour in ("31mred", "32mgreen", "33myellow")
        )
        assert r"\x1b[32m" in rows


async def test_the_viewer_begins_at_the_sample_that_was_asked_for_and_shows_its_group(
    tmp_path: Path,
) -> None:
    write(
        tmp_path / "1.jsonl",
        [record(n) | {"uid": f"u{n // 2}", "advantage": n - 1.5} for n in range(4)],
    )
    app = ViewerApp(open_dump(tmp_path), tmp_path, sample=3)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert app.samples.current == 2
        assert "group u1  ·  advantage +0.500" in str(app.query_one("#status", Static).render())
