"""The programs in docs/rollout.md print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "rollout.md"


def test_the_example_prints_what_the_page_says() -> None:
    program, wanted = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == wanted
