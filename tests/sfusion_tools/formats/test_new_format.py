"""A new format takes one module, as in docs/extending.md: parsing, rendering, spoiling and serving follow from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.docs.blocks import read_page

CHECK = """
from sfusion.fakes.sglang.malformed import TOOLS, catalogue
from sfusion.fakes.sglang.quirks import call_parser, shown_name
from sfusion_tools.formats import format_names, get_format

toy = get_format("toy")
call = {"name": "search", "arguments": {"query": "x"}}
assert toy.render([call], "Well.") == 'Well.\\n<call:search>{"query": "x"}</call>'
texts = list(catalogue(3, ["toy"]))
assert len(texts) == 28
for text in texts:
    parsed = toy.parse(text.text, TOOLS, finish_reason=text.finish_reason)
    assert [{"name": one.name, "arguments": one.arguments} for one in parsed.calls] == list(text.calls), text
    assert sorted((one.severity, one.kind) for one in parsed.problems) == sorted(text.problems), text
assert "belong to toy, not to hermes" in get_format("hermes").parse("<call:x>{}</call>").problems[0].message
assert call_parser("toy").whole(toy.render([call]), TOOLS, "stop").pieces[0].name == "search"
assert shown_name("toy") == format_names()[-1] == "toy"
"""


def test_one_module_adds_a_format(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sfusion_tools", tmp_path / "sfusion_tools")
    module = "sfusion_tools/formats/families/toy.py"
    (tmp_path / module).write_text(read_page(ROOT / "docs" / "extending.md", ROOT).files[module], encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
