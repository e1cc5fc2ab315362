"""The tables of docs/scenarios.md, judge.md and incidents.md, made from the code and from the
bundled scenarios.

``python -m tests.docs.tables docs/scenarios.md`` updates a page; a test compares them with it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sfusion.harness.lab.promises import PROMISES, Promise
from sfusion.harness.lab.promises.registry import OF_SINGLE_CALLS
from sfusion.harness.lab.scenarios.reading import bundled_folder, in_folder, read_scenarios


def tables() -> dict[str, str]:
    """Return every table by the heading of its section."""
    return {"Promises": _promises(), "Reports": _incidents(), "What is judged": _checks()}


def updated(page: str) -> str:
    """Return the page with the first table or list of each of these sections replaced."""
    for heading, table in tables().items():
        # The heading, lines up to the first table or list, and that.
        found = re.search(
            rf"^#+ {re.escape(heading)}\n(?:(?!#|\||- ).*\n)*((?:(?:\||- ).*\n)*)",
            page,
            re.MULTILINE,
        )
        if found is not None:
            page = f"{page[: found.start(1)]}{table}\n{page[found.end(1) :]}"
    return page


def _checks() -> str:
    return "\n".join(
        f"- `{promise.name}`: {_cell(_of_single_calls(type(promise)))}"
        for promise in OF_SINGLE_CALLS
    )


def _of_single_calls(promise: type[Promise]) -> str:
    return promise.of_single_calls or " ".join((promise.__doc__ or "").split())


def _promises() -> str:
    rows = [
        f"| `{name}` | {_first_sentence(cls.__doc__ or '').partition(': ')[0]} |"
        for name, cls in PROMISES.items()
    ]
    return "\n".join(["| promise | what must hold |", "|---|---|", *rows])


def _incidents() -> str:
    """Return one line for each bundled incident."""
    rows = []
    for one in (read_scenarios(path)[0] for path in in_folder(bundled_folder())):
        reports = ", ".join(f"[{report}]({_url(report)})" for report in one.incident)
        rows += [f"- `{one.scenario}`: {_in_short(one.about)} {reports}"] if one.incident else []
    return "\n".join(rows)


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z0-9])", _cell(" ".join(text.split())))


def _first_sentence(text: str) -> str:
    return _sentences(text)[0].removesuffix(".")


def _in_short(text: str) -> str:
    """Return the first sentence, and the second if the first is too short to say what went
    wrong."""
    first, *rest = _sentences(text)
    more = rest[:1] if len(first.split()) < 13 and not (rest and rest[0].startswith("Here")) else []
    return " ".join([first, *more])


def _url(report: str) -> str:
    """Return the address of an issue; GitHub forwards it if the number is a pull request."""
    repository, _, number = report.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(updated(file.read_text(encoding="utf-8")), encoding="utf-8")
