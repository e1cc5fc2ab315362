"""``python -m tests.trainers``: judge the trainers that are installed, and compare with the table.

``--write`` writes the table into docs/trainers.md. Exit code 1 if a verdict is another one.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from tests import ROOT
from tests.trainers import ROWS, judged, table

BEGIN, END = "<!-- generated: python -m tests.trainers --write -->\n", "\n<!-- end -->"


def updated(page: str) -> str:
    """Return the page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main(words: list[str]) -> int:
    differs = False
    for row in ROWS:
        package = row.targets[0].partition(".")[0] if row.targets else ""
        if not package or find_spec(package) is None:
            print(f"{row.trainer}, {row.declared}: {row.verdict} (not run here: {row.evidence})")
            continue
        for target, found in judged(row).items():
            differs |= found != row.verdict
            print(f"{row.trainer}, {row.declared}: {found} ({target})")
    if "--write" in words:
        page = ROOT / "docs/trainers.md"
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
