"""The example in docs/python-executor.md works, and its list of options is complete."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields

from sfusion.fakes.sandbox.executors.python import PythonExecutor, ResourceBounds
from tests import ROOT

PAGE = (ROOT / "docs" / "python-executor.md").read_text(encoding="utf-8")


def test_the_example_in_the_docs_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_docs_explain_every_option_and_bound() -> None:
    options = list(inspect.signature(PythonExecutor).parameters)
    for name in [*options, *(field.name for field in fields(ResourceBounds))]:
        assert f"`{name}`" in PAGE, name
