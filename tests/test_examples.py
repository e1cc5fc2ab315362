"""The examples of property tests are the same in every run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st


def drawn() -> list[tuple[str, int]]:
    examples: list[tuple[str, int]] = []

    @given(st.text(), st.integers())
    def draw(text: str, number: int) -> None:
        examples.append((text, number))

    draw()
    return examples


def test_examples_do_not_depend_on_the_modules_that_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    (tmp_path / "full_of_constants.py").write_text(
        f"NUMBERS = {[*range(10**6, 10**6 + 100)]}\nTEXT = 'constant'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    __import__("full_of_constants")
    try:
        assert drawn() == before
    finally:
        del sys.modules["full_of_constants"]
