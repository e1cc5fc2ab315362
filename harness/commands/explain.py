"""``sfusion explain``: what a scenario, fault, promise, outcome or field means."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    name: Annotated[
        str | None, typer.Argument(help="A scenario, promise, fault, field or outcome; or scenarios, promises, ...")
    ] = None,
) -> None:
    """Say what something means, in the words of the code that does it."""
    from sfusion.harness.commands._tell import fail
    from sfusion.harness.scenarios.explaining import explained, topics
    from sfusion_tools.errors import near

    if name is None:
        typer.echo(topics())
        return
    text = explained(name)
    if text is None:
        from sfusion.harness.scenarios.explaining import names

        fail(f"nothing is called {name!r}; {near(name, names())}")
    typer.echo(text)
