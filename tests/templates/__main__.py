"""Print the table for the templates of a folder, or for our own."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.templates.models import MODELS
from tests.templates.published import PUBLISHED
from tests.templates.table import rows

if __name__ == "__main__":
    logging.disable()
    found = {
        file.stem: file.read_text(encoding="utf-8")
        for file in sorted(Path(*sys.argv[1:2]).glob("*.jinja"))
    }
    lines = rows(found) if sys.argv[1:] else rows(MODELS, PUBLISHED)
    for line in lines:
        sys.stdout.write(line + "\n")
