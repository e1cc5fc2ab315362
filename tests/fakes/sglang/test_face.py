"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys

from sfusion.fakes import sglang


def test_public_names_are_sorted_and_exist() -> None:
    names = sglang.__all__
    assert all(hasattr(sglang, name) for name in names)
    assert len(set(names)) == len(names)
    assert sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == names


def test_the_command_line_imports_no_heavy_package_at_start() -> None:
    code = (
        "import sys, sfusion.harness.cli; "
        "print([name for name in ('aiohttp', 'ray', 'textual', 'faker', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
