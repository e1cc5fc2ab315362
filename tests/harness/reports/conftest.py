"""A real browser for the pages, if one is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_PATIENCE = 120_000  # milliseconds; a busy machine may need half a minute for a long page
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def tab() -> Iterator[Opened]:
    """The only tab of headless Chromium with an empty profile; another one would take 1 s of the
    processor.

    The scope is the module, not the session: while playwright is open, asyncio believes that a loop
    is running in this thread and refuses to start another.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (extra `test`)"
    )
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    with playwright.sync_playwright() as driver:
        if found is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip(
                "no Chromium on this machine: install one, or run `playwright install chromium`"
            )
        running = driver.chromium.launch(executable_path=found, args=_FLAGS, timeout=_PATIENCE)
        page = running.new_page()
        page.set_default_timeout(_PATIENCE)
        yield Opened(page)
        running.close()


class Opened:
    """A page in the browser, with its console messages, its errors and the requests it made."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def colours(self, canvas: str, top: int, height: int) -> set[str]:
        """The colours, as #rrggbb, in a stripe of a canvas; ``top`` and ``height`` are CSS
        pixels."""
        script = """([id, top, height]) => {
            const canvas = document.getElementById(id), scale = devicePixelRatio;
            const context = canvas.getContext("2d");
            const stripe = [0, top * scale, canvas.width, height * scale];
            const { data } = context.getImageData(...stripe);
            const hex = (part) => part.toString(16).padStart(2, "0");
            const found = new Set();
            for (let i = 0; i < data.length; i += 4)
                found.add("#" + [...data.slice(i, i + 3)].map(hex).join(""));
            return [...found];
        }"""
        return set(self.page.evaluate(script, [canvas, top, height]))

    def css_colour(self, name: str) -> str:
        """The value of one of the page's colour variables."""
        read = (
            "(name) => "
            "getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()"
        )
        value: str = self.page.evaluate(read, name)
        return value

    def settle(self) -> None:
        """Wait for two frames, after which everything is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )


@pytest.fixture
def open_page(tab: Opened, tmp_path: Path) -> Callable[..., Opened]:
    """Open HTML from a file, like a page that was downloaded; it replaces the page that was
    open."""

    def opener(html: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Opened:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        tab.page.goto("about:blank")
        tab.page.mouse.move(0, 0)
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.emulate_media(color_scheme="dark" if dark else "light")
        tab.messages.clear()
        tab.requests.clear()
        tab.page.goto(file.as_uri())
        tab.settle()
        return tab

    return opener
