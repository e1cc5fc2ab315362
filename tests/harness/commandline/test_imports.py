"""The command line starts fast: heavy packages are imported by the commands that need them."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_imports_no_heavy_package_at_start() -> None:
    code = (
        "import sys, sfusion.harness.cli; "
        "print([name for name in ('aiohttp', 'ray', 'textual', 'faker', 'pydantic') if "
        "name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
