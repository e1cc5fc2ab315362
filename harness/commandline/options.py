"""Options and arguments that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

WHERE = "Where to run"
WRITTEN = "What to write"

Paths = Annotated[
    list[str] | None,
    Argument(metavar="PATH", help="Files, folders or names of bundled scenarios; by default all bundled ones."),
]
Keyword = Annotated[
    str,
    Option("-k", metavar="EXPRESSION", help="Only names that match, as with pytest's -k: 'word', 'a or b', 'not c'."),
]
Seed = Annotated[int, Option("--seed", min=0, help="Decides everything that is random.")]
Tools = Annotated[
    Path | None, Option("--tools", help="Tool config (verl's YAML) to use instead of the tools of the scenario.")
]
Trust = Annotated[
    bool,
    Option(
        "--trust",
        help="Let files run what they name: code (executor: python) and tool classes. Bundled scenarios and --tools do "
        "not need it.",
    ),
]
SANDBOX = "fake|URL|docker[:IMAGE]"
Sandboxes = Annotated[
    list[str] | None,
    Option(
        "--sandbox",
        metavar=SANDBOX,
        help="Sandbox to use: the fake (default), a server or a container. Repeatable.",
        rich_help_panel=WHERE,
    ),
]
Schedule = Annotated[
    str | None,
    Option(
        "--schedule",
        metavar="SEED|priority:SEED[:CHANGES]",
        help="World sim: run what is ready at the same time in another order, drawn from this seed.",
    ),
]
Out = Annotated[
    Path | None,
    Option(
        "--out",
        metavar="DIR",
        help="Write journal, verdicts and report of each run to a folder below this one.",
        rich_help_panel=WRITTEN,
    ),
]
Html = Annotated[Path | None, Option("--html", help="Write the result as an HTML page.", rich_help_panel=WRITTEN)]
Svg = Annotated[Path | None, Option("--svg", help="Write the plots as one SVG file.", rich_help_panel=WRITTEN)]
Json = Annotated[Path | None, Option("--json", help="Write the result as JSON; - is stdout.", rich_help_panel=WRITTEN)]
Summary = Annotated[
    Path | None,
    Option("--summary", help="Write a Markdown summary, such as for a pull request.", rich_help_panel=WRITTEN),
]
Faults = Annotated[Path | None, Option("--faults", help="YAML file of fault rules.")]
Force = Annotated[bool, Option("--force", help="Replace the file if it exists.")]
Logs = Annotated[list[Path], Argument(metavar="LOG", help="Log files, or folders of them.")]

Jobs = Annotated[int, Option("--jobs", min=0, help="Number of processes; 0 for one per CPU.", rich_help_panel=WHERE)]
On = Annotated[
    str,
    Option(
        "--on",
        metavar="here|ray",
        help="Spread the runs of world sim over this machine or over a Ray cluster.",
        rich_help_panel=WHERE,
    ),
]
RAY_ADDRESS = "Running Ray cluster to use; auto is the one on this machine."
RayAddress = Annotated[
    str | None,
    Option(
        "--ray-address",
        metavar="HOST:PORT|auto",
        help=RAY_ADDRESS,
        rich_help_panel=WHERE,
    ),
]
