"""``sfusion explain``: what a scenario, fault, promise, outcome or field means."""

from __future__ import annotations

from typing import Annotated

import typer

from sfusion.harness.commandline.json_answer import JsonFile, is_stdout, write_json


def explain(
    name: Annotated[
        str | None,
        typer.Argument(help="A scenario, promise, fault, field or outcome; or promises, kinds, models, outcomes."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Explain a name. The text comes from the code that implements it."""
    from sfusion.harness.errors import BadOption
    from sfusion.harness.lab.scenarios.explaining import explained, explanations, groups, names, topics
    from sfusion_tools.errors import near

    text = topics() if name is None else explained(name)
    if text is None:
        raise BadOption(f"nothing is called {name!r}; {near(name or '', names())}")
    if not is_stdout(json):
        typer.echo(text)
    if json is None:
        return
    if name is None:
        write_json(json, {"names": groups()})
    else:
        shown = ("kind", "name", "about", "fields")
        found = [{key: getattr(one, key) for key in shown} for one in explanations(name)]
        write_json(json, {"name": name, "explanations": found})
