"""Options and arguments that several commands share, each declared once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from glob import escape
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from typer import Argument

from sfusion_tools.bounded_input import read_bounded
from sfusion_tools.errors import InputError

from ..errors import BadOption
from .declaring import option

WHERE = "Where to run"
WRITTEN = "What to write"


def bundled_names(incomplete: str) -> list[str]:
    """Return the names of bundled scenarios that begin so, for a shell that completes them."""
    found = Path(str(files("sfusion")), "scenarios").rglob(f"{escape(incomplete)}*.yaml")
    return sorted(file.stem for file in found if not file.name.startswith("_"))


Paths = Annotated[
    list[str] | None,
    Argument(
        metavar="PATH",
        help="Files, folders or names of bundled scenarios; by default all bundled ones.",
        autocompletion=bundled_names,
    ),
]
BundledOrFile = Annotated[
    str,
    Argument(
        metavar="SCENARIO",
        help="A file, or the name of a bundled scenario.",
        autocompletion=bundled_names,
    ),
]
Keyword = Annotated[
    str,
    option(
        "Only names that match, as with pytest's -k: 'word', 'a or b', 'not c'.",
        "EXPRESSION",
        names="-k",
    ),
]
Seed = Annotated[int, option("Decides everything that is random.", names="--seed", min=0)]
Tools = Annotated[
    Path | None,
    option(
        "Tool config (verl's YAML), or module:name of any client, to use instead of the "
        "tools of the scenario.",
        names="--tools",
    ),
]
Service = Annotated[
    str | None,
    option(
        "Service that a client of whole episodes speaks to; needed if its file names none or "
        "several.",
        "daytona|openenv|e2b",
        names="--face",
    ),
]
AddressVariable = Annotated[
    str | None,
    option(
        "Environment variable in which the target finds the address (default SANDBOX_FUSION_URL).",
        "NAME",
        names="--env",
    ),
]
AddressAttribute = Annotated[
    str | None,
    option("Attribute of the target's module that holds the address.", "NAME", names="--attribute"),
]
Trust = Annotated[
    bool,
    option(
        "Let files run what they name: code (executor: python) and tool classes. Bundled scenarios "
        "and --tools do not need it.",
        names="--trust",
    ),
]
SANDBOX = "fake|URL|docker[:IMAGE]"
Sandboxes = Annotated[
    list[str] | None,
    option(
        "Sandbox to use: the fake (default), a server or a container. Repeatable.",
        SANDBOX,
        WHERE,
        names="--sandbox",
    ),
]
Schedule = Annotated[
    str | None,
    option(
        "World sim: run what is ready at the same time in another order, drawn from this seed.",
        "SEED|priority:SEED[:CHANGES]",
        names="--schedule",
    ),
]
Out = Annotated[
    Path | None,
    option(
        "Write journal, verdicts and report of each run to a folder below this one.",
        "DIR",
        WRITTEN,
        names="--out",
    ),
]
Html = Annotated[
    Path | None, option("Write the result as an HTML page.", panel=WRITTEN, names="--html")
]
Json = Annotated[
    Path | None, option("Write the result as JSON; - is stdout.", panel=WRITTEN, names="--json")
]
Summary = Annotated[
    Path | None,
    option(
        "Write a Markdown summary, such as for a pull request.", panel=WRITTEN, names="--summary"
    ),
]
Faults = Annotated[Path | None, option("YAML file of fault rules.", names="--faults")]
Force = Annotated[bool, option("Replace the file if it exists.", names="--force")]
Logs = Annotated[
    list[Path], Argument(metavar="LOG", help="Log files, or folders of them; - is stdin.")
]

Jobs = Annotated[
    int, option("Number of processes; 0 for one per CPU.", panel=WHERE, names="--jobs", min=0)
]
On = Annotated[
    str,
    option(
        "Spread the runs of world sim over this machine or over a Ray cluster.",
        "here|ray",
        WHERE,
        names="--on",
    ),
]
RAY_ADDRESS = "Running Ray cluster to use; auto is the one on this machine."
RayAddress = Annotated[
    str | None, option(RAY_ADDRESS, "HOST:PORT|auto", WHERE, names="--ray-address")
]

Headers = Annotated[
    list[str] | None,
    option(
        "Header for every request to the real sandbox. Repeatable. A secret is '@FILE' or "
        "'$VARIABLE'.",
        "NAME:VALUE",
        names="--header",
    ),
]
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = re.compile("auth|cookie|key|passw|secret|token", re.IGNORECASE)
_FRAMING = ("connection", "content-length", "transfer-encoding")


VISIBLE = "other users can read a command line"
_LONGEST_SECRET = 10_000
"""Bytes of a file with a value (chosen: servers refuse longer headers)."""


def hidden_value(text: str, what: str) -> str:
    """Return what a file (``@FILE``) or a variable (``$VARIABLE``) holds.

    Any other text is itself.
    """
    if text[:1] == "@":
        try:
            return read_bounded(Path(text[1:]), _LONGEST_SECRET).decode("utf-8").strip()
        except (InputError, UnicodeDecodeError):
            raise BadOption(f"{what}: {text[1:]} cannot be read, or is not a short text") from None
    if text[:1] == "$":
        if text[1:] not in os.environ:
            raise BadOption(f"{what}: the variable {text[1:]} is not set")
        return os.environ[text[1:]]
    return text


def read_headers(texts: Iterable[str] | None) -> dict[str, str]:
    """Parse headers typed as ``Name: value``, ``Name: @FILE`` or ``Name: $VARIABLE``.

    Errors do not show the value, which may be a secret.
    """
    headers: dict[str, str] = {}
    for text in texts or ():
        name, colon, value = (part.strip() for part in text.partition(":"))
        if not colon or not _HEADER_NAME.fullmatch(name):
            # Without a colon the whole text may be the secret.
            raise BadOption(
                "--header takes 'Name: value', such as 'X-Token: abc'; "
                "one value has no name or no colon"
            )
        if name.lower() in _FRAMING:
            raise BadOption(f"--header {name}: this header frames each request and cannot be set")
        if _SECRET.search(name) and value[:1] not in ("@", "$"):
            ways = f"'{name}: @FILE' or '{name}: $VARIABLE'"
            raise BadOption(f"--header {name}: {VISIBLE}; give its value as {ways}")
        value = hidden_value(value, f"--header {name}")
        if not value.isprintable():
            raise BadOption(
                f"--header {name}: the value contains characters that a header cannot have"
            )
        headers[name] = value
    return headers
