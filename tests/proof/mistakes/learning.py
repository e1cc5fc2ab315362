"""Mistakes in what the trainer is told of a lost call, and what training learns by them."""

from __future__ import annotations

from typing import Any

from tests.proof.mistake import mistake
from tests.reference_tool import PROGRAMS, GoodTool, PeerResult

LEARNED = (
    "tool_use_kept", "several_calls_kept", "tool_use_recovers", "push_has_the_twins_sign",
    "no_gradient_from_lost_samples", "no_signal_only_through_losses",
)  # fmt: skip


class _Misstates(GoodTool):
    stated: str | None = None

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        known = super().metrics(result)
        if result.outcome in PROGRAMS:
            return known
        return (
            None
            if self.stated is None
            else {**(known or {}), "outcome": self.stated, "infrastructure": False}
        )


@mistake("tool_use_kept", "outage-left-out-of-training", also=(*LEARNED, "text_is_truthful"))
class LostCallsStatedOk(_Misstates):
    """The trainer is told ok for lost calls, scores their samples 0, and the tool is unlearned."""

    stated = "ok"


@mistake("several_calls_kept", "outage-left-out-of-training", also=LEARNED)
class LostCallsNotStated(_Misstates):
    """The trainer is told nothing of lost calls."""


@mistake("tool_use_recovers", "outage-left-out-of-training", also=(*LEARNED, "text_is_truthful"))
class LostCallsBlamedOnTheProgram(_Misstates):
    """The trainer is told that the program of a lost call failed."""

    stated = "program_error"


@mistake("push_has_the_twins_sign", "outage-left-out-of-training", also=LEARNED)
class LostCallsBlamedOnTheModel(_Misstates):
    """The trainer is told that the arguments of a lost call were wrong."""

    stated = "bad_arguments"


@mistake(
    "no_gradient_from_lost_samples", "dead-server-read-as-failing-code", also=("text_is_truthful",)
)
class LostBodyBlamedOnTheProgram(_Misstates):
    """An answer without a body is stated as a failure of the program, and trained on."""

    stated = "program_error"


@mistake(
    "no_signal_only_through_losses",
    "masked-but-in-the-baseline",
    also=("no_gradient_from_lost_samples", "text_is_truthful"),
)
class LostCallsInTheBaseline(_Misstates):
    """The score of a lost call counts in the baseline of its group."""

    stated = "ok"
