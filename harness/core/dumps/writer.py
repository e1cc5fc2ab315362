"""Writes rollouts in verl's dump format: ``<step>.jsonl`` with input, output, score and step.

The text is decoded without special tokens, so all that is left of a turn's header is the role's
name, alone on its line. The input ends with the generation prompt, and the output starts with the
same prompt again, so that every reply, the first one included, follows its role.

Everything else about a request goes to ``requests/<step>.jsonl``, line by line parallel to the
samples.

Each sample is written when its request has ended, so a rollout that is killed leaves a dump of what
was done. A step that is complete is written once more, in the order of its requests, so that the
same seed gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sfusion_tools.advantages import advantages
from sfusion_tools.rollout import AsyncRolloutRequest

from ....fakes.wire.message import json_line
from ...atomic_files import write_file
from .sample import requests_beside


def sample_text(request: AsyncRolloutRequest) -> tuple[str, str]:
    """Return input and output as they are dumped."""
    decode = request.processing_class.decode
    return (
        decode(request.prompt_ids, skip_special_tokens=True),
        decode(request.generation_prompt_ids + request.response_ids, skip_special_tokens=True),
    )


def sample_record(request: AsyncRolloutRequest, score: float, step: int) -> dict[str, Any]:
    """Return a line of ``<step>.jsonl``, with exactly the keys of verl's dumps."""
    text_in, text_out = sample_text(request)
    shown = int(score) if float(score).is_integer() else score
    return {"input": text_in, "output": text_out, "score": shown, "step": step}


def request_record(request: AsyncRolloutRequest, **more: Any) -> dict[str, Any]:
    """Return a line of ``requests/<step>.jsonl``."""
    metrics = request.metrics
    return {
        "request_id": request.request_id,
        **(
            {}
            if request.group_id is None
            else {"group": request.group_id, "offset": request.rollout_offset}
        ),
        **more,
        "state": request.state.value,
        "ended_by": request.ended_by.value if request.ended_by else None,
        "finish_reason": request.finish_reason.value if request.finish_reason else None,
        "failure": request.failure,
        "assistant_turns": metrics.assistant_turns,
        "user_turns": metrics.user_turns,
        "calls": metrics.calls,
        "executed": metrics.executed,
        "outcomes": dict(metrics.outcomes),
        "refused": dict(metrics.refused),
        "noticed": dict(metrics.noticed),
        "not_run": metrics.not_run,
        "tool_errors": metrics.tool_errors,
        "infrastructure_failures": metrics.infrastructure_failures,
        "last_call_lost": metrics.last_call_lost,
        "tool_rewards": request.tool_rewards,
        "reward_scores": request.reward_scores,
        "tokens": {
            "prompt": len(request.prompt_ids),
            "response": len(request.response_ids),
            "trained": sum(request.loss_mask),
        },
        "seconds": {
            "generation": round(metrics.generation_seconds, 6),
            "tools": round(metrics.tool_seconds, 6),
        },
    }


class StepDump:
    """The samples of a step that is still running."""

    def __init__(self, directory: Path, step: int) -> None:
        self.path = directory / f"{step}.jsonl"
        self._requests = requests_beside(self.path)
        self._requests.parent.mkdir(parents=True, exist_ok=True)
        self._done: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    def add(self, place: int, sample: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        """Append a sample and its request; the first of a step replaces the files of an older
        run."""
        # The viewer expects no sample without its request, so that comes first.
        for target, record in ((self._requests, request), (self.path, sample)):
            with target.open("a" if self._done else "w", encoding="utf-8", newline="\n") as file:
                file.write(json_line(record))
        self._done[place] = sample, request

    def finish(
        self, most: int | None = None
    ) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        """Write the first ``most`` samples again, in the order of their places; return them and
        their requests.

        Each file replaces the older one atomically. Requests with groups get their advantages in
        these (GRPO).
        """
        kept = [self._done[place] for place in sorted(self._done)][:most]
        samples = [sample for sample, _ in kept]
        requests = [request for _, request in kept]
        if all("group" in request for request in requests):
            found = advantages(
                [sample["score"] for sample in samples], [request["group"] for request in requests]
            )
            requests = [
                {**request, "advantage": round(advantage, 6)}
                for request, advantage in zip(requests, found, strict=True)
            ]
        for target, records in ((self._requests, requests), (self.path, samples)):
            write_file(target, map(json_line, records))
        return samples, requests
