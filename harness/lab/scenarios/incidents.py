"""Incidents: the public reports that a scenario reproduces."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_REPORT = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+)#([1-9][0-9]*)")


def _reports(value: Any) -> Any:
    given = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given:
        raise ValueError(f"{value!r} is not a report; {_MEANT}")
    for one in given:
        if not isinstance(one, str) or not _REPORT.fullmatch(one):
            raise ValueError(f"{one!r} is not a report; {_MEANT}")
    if len(set(given)) != len(given):
        raise ValueError("each report may occur only once")
    return tuple(given)


_MEANT = "write owner/repository#number, as in volcengine/verl#1234"
Incident = Annotated[tuple[str, ...], BeforeValidator(_reports)]
"""One or several reports: a text, separated by commas, or a list."""


def report_url(report: str) -> str:
    """Return the address of an issue; GitHub forwards it if the number is a pull request."""
    repository, _, number = report.partition("#")
    return f"https://github.com/{repository}/issues/{number}"
