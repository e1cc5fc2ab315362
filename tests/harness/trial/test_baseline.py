"""The file of --baseline: anything else is refused with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.harness.errors import BadOption
from sfusion.harness.trial.trial import Baseline


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"baseline": 2}',
        '{"baseline": 1}',
        '{"baseline": 1, "accepted": null}',
        '{"baseline": 1, "accepted": [3]}',
        '{"baseline": 1, "accepted": [], "wordings": {"ok": 5}}',
        '{"baseline": 1, "accepted": [], "wordings": [1]}',
    ],
)
def test_what_is_no_baseline_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(BadOption, match=r"is not a baseline: .*; write one with --update"):
        Baseline.read(file)


def test_a_folder_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="cannot be read: Is a directory"):
        Baseline.read(tmp_path)
