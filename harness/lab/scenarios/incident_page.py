"""The table of docs/incidents.md, made from the bundled scenarios.

``python -m sfusion.harness.lab.scenarios.incident_page docs/incidents.md`` updates the page; a test compares them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sfusion.harness.lab.scenarios.incidents import report_url
from sfusion.harness.lab.scenarios.library import bundled_folder, in_folder
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.reading import read_scenarios

_TABLE = re.compile(r"(^## Reports that are played\n(?:(?!\|).*\n)*)(?:\|.*\n)*", re.MULTILINE)


def incident_table() -> str:
    """Return one row for each bundled incident."""
    scenarios = [read_scenarios(path)[0] for path in in_folder(bundled_folder())]
    rows = [_row(one) for one in scenarios if one.incident]
    return "\n".join(
        ["| scenario | reports | what happened | what a good stack does | promises |", "|---|---|---|---|---|", *rows]
    )


def updated_page(page: str) -> str:
    """Return the page with its table replaced."""
    return _TABLE.sub(lambda found: f"{found[1]}{incident_table()}\n", page, count=1)


def _row(scenario: Scenario) -> str:
    reports = ", ".join(f"[{report}]({report_url(report)})" for report in scenario.incident)
    promises = ", ".join(f"`{promise.name}`" for promise in scenario.promises)
    cells = [f"`{scenario.scenario}`", reports, _line(scenario.about), _line(scenario.expected), promises]
    return f"| {' | '.join(cells)} |"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(updated_page(file.read_text(encoding="utf-8")), encoding="utf-8")
