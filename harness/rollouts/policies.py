"""The option ``--policy``: what the model of the fake engine does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ...fakes import sglang
from ...fakes.sglang import Gsm8kSolver, Misbehaving, ScriptedPolicy
from ..commandline.declaring import option
from ..errors import BadOption

Policy = Annotated[
    str,
    option(
        "What the model does; the file of a script is YAML or JSON.",
        "gsm8k|misbehaving[:RATE]|say:TEXT|script:FILE",
        names="--policy",
    ),
]


def read_policy(text: str, *, marks: bool = False) -> sglang.Policy:
    """Return the policy for the value of ``--policy``.

    With ``marks``, the calls of siblings can be told apart.
    """
    kind, _, rest = text.partition(":")
    match kind:
        case "gsm8k":
            return Gsm8kSolver(marks=marks)
        case "misbehaving":
            try:
                solver = Gsm8kSolver(marks=marks)
                return Misbehaving(solver, rate=float(rest)) if rest else Misbehaving(solver)
            except ValueError as error:
                raise BadOption(
                    f"policy {text!r}: the rate must be a number between 0 and 1 ({error})"
                ) from error
        case "say":
            return ScriptedPolicy([], otherwise=rest)
        case "script":
            return ScriptedPolicy.load(Path(rest))
    raise BadOption(
        f"unknown policy {text!r}; use gsm8k, misbehaving[:RATE], say:TEXT or script:FILE"
    )
