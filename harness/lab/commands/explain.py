"""``sfusion explain``: say what a scenario, promise, fault, field or outcome means.

The text comes from the code that implements it. Without a name, everything that can be explained is listed.

Example: sfusion explain no_permit_leaked
"""

from __future__ import annotations

from typing import Annotated

import typer

from sfusion.harness.commandline.declaring import command
from sfusion.harness.commandline.json_answer import is_stdout, write_json
from sfusion.harness.commandline.options import Json
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.scenarios.explaining import explained, explanations, groups, names, topics
from sfusion_tools.errors import near


@command
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A scenario, promise, fault, field or outcome; or promises, kinds, models, outcomes."
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    text = topics() if name is None else explained(name)
    if text is None:
        raise BadOption(f"nothing is called {name!r}; {near(name or '', names())}")
    if not is_stdout(json_file):
        typer.echo(text)
    if name is None:
        write_json(json_file, {"names": groups()})
    else:
        shown = ("kind", "name", "about", "fields")
        found = [{key: getattr(one, key) for key in shown} for one in explanations(name)]
        write_json(json_file, {"name": name, "explanations": found})
