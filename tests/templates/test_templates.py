"""The table of models in the docs is what the templates do, and programs reach the tools unchanged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests import ROOT
from tests.templates.models import MODELS
from tests.templates.programs import compare
from tests.templates.table import HEAD, rows

pytestmark = pytest.mark.xdist_group("transformers")


def test_the_docs_have_the_table_of_models(caplog: pytest.LogCaptureFixture) -> None:
    """Run ``python -m tests.templates`` to print it."""
    pytest.importorskip("transformers", reason="extra hf is not installed")
    caplog.set_level(logging.ERROR)
    made = list(rows(MODELS))
    assert len(made) - 2 >= 40
    assert "\n".join(made) in (ROOT / "docs" / "rollout.md").read_text(encoding="utf-8")


def test_a_template_that_cannot_be_continued_is_told_from_one_that_differs(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="extra hf is not installed")
    first = "{{ raise_exception('No tools.') if messages[-1].role == 'tool' }}"
    late = MODELS["qwen2.5"] + "{{ messages | length }}"
    found = list(rows({"none": first + MODELS["qwen2.5"], "late": late}))[2:]
    assert [line.split(" | ")[1] for line in found] == ["no", "differs"]
    assert len(HEAD) == 6


def test_tools_receive_the_code_that_the_model_wrote() -> None:
    """``python -m tests.templates.programs 10000`` draws more."""
    pytest.importorskip("transformers", reason="extra hf is not installed")
    assert compare(500) == 500
