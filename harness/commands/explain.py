"""``sfusion explain``: what a scenario, fault, promise, outcome or field means."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    name: Annotated[
        str | None,
        typer.Argument(help="A scenario, promise, fault, field or outcome; or promises, kinds, models, outcomes."),
    ] = None,
) -> None:
    """Explain a name. The text comes from the code that implements it."""
    from sfusion.harness.errors import BadOption
    from sfusion.harness.scenarios.explaining import explained, names, topics
    from sfusion_tools.errors import near

    if name is None:
        typer.echo(topics())
        return
    text = explained(name)
    if text is None:
        raise BadOption(f"nothing is called {name!r}; {near(name, names())}")
    typer.echo(text)
