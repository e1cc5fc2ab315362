"""The list of options in docs/python-executor.md is complete."""

from __future__ import annotations

import inspect
from dataclasses import fields

from sfusion.fakes.sandbox.executors.python import PythonExecutor, ResourceBounds
from tests import ROOT

PAGE = (ROOT / "docs" / "python-executor.md").read_text(encoding="utf-8")


def test_the_docs_explain_every_option_and_bound() -> None:
    options = list(inspect.signature(PythonExecutor).parameters)
    for name in [*options, *(field.name for field in fields(ResourceBounds))]:
        assert f"`{name}`" in PAGE, name
