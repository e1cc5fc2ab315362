"""What trainers write beside verl: each kind of line, made flat, with what it says about losses.

A flat line has the keys that ``rollout.KEYS`` looks for, and ``lost_by`` if the trainer itself
declares the sample lost. The commits beside the names are those whose source was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sfusion_tools.advantages import Handling

Flat = dict[str, Any]

LOST_BY = "lost_by"
"""The key under which a flat line says what declared the sample lost."""
LOST_PLACE = "lost_place"
"""Where it was lost: ``tool``, ``reward`` or ``rollout``."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A kind of line: the keys by which it is recognised, and how it is read."""

    name: str
    keys: frozenset[str]
    flatten: Callable[[Mapping[str, Any]], Sequence[Flat]]
    handling: Handling
    """What the trainer does with a sample that it declares lost."""


def trainer_of(record: Mapping[str, Any]) -> Trainer | None:
    """Return who wrote a line; None if nobody known did."""
    return _trainer_with(tuple(record))


@lru_cache(maxsize=256)
def _trainer_with(keys: tuple[str, ...]) -> Trainer | None:
    """Return whose lines have these keys; a dump has few different sets of them."""
    for trainer in TRAINERS:
        if trainer.keys.issubset(keys):
            return trainer
    return None


def flat_lines(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the samples of a line as flat lines; the line itself if it is none of a kind that
    must be taken apart."""
    trainer = trainer_of(record)
    return [record] if trainer is None else trainer.flatten(record)


def _get(record: Any, *path: str) -> Any:
    """Follow keys into objects; None where one is missing."""
    for key in path:
        if not isinstance(record, Mapping):
            return None
        record = record.get(key)
    return record


def _items(value: Any) -> list[Any]:
    """The elements of a list; none of anything else."""
    return value if isinstance(value, list) else []


def _only(value: Any) -> Any:
    """The only element of a list, or the value."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


# verifiers, prime-rl


_INFRA_ERRORS = frozenset(
    {
        "InfraError",
        "TunnelError",
        "SandboxError",
        "BrowserSandboxError",
        "SandboxCreationError",
        "SandboxNotReadyError",
        "PythonWorkerNotReadyError",
        "PythonWorkerRequestError",
        "PythonWorkerDeadError",
        "ToolsetError",
    }
)
"""Errors of verifiers (a60a606ec) that belong to a sandbox or the way to it."""
_REWARD_ERRORS = frozenset({"TaskError"})
"""Errors of the task's own code: setup, finalize, and above all its rewards."""
_BUDGET_ERRORS = frozenset({"OverlongPromptError"})
"""Errors that the policy causes: its score is real."""


def _error_place(kind: str) -> str | None:
    if kind in _BUDGET_ERRORS:
        return None
    if kind in _INFRA_ERRORS:
        return "tool"
    return "reward" if kind in _REWARD_ERRORS else "rollout"


def _declared(flat: Flat, by: str, place: str | None) -> Flat:
    """Say in a flat line what declared its sample lost."""
    if place is not None:
        flat[LOST_BY] = by
        flat[LOST_PLACE] = place
    return flat


def _verifiers_result(record: Mapping[str, Any]) -> list[Flat]:
    """``results.jsonl`` of verifiers: one rollout with messages and an error, if it had one."""
    flat = dict(record)
    flat["tokens"] = _get(record, "token_usage", "output_tokens")
    error = record.get("error")
    kind = _get(error, "error")
    if isinstance(kind, str):
        _declared(flat, f"error {kind}", _error_place(kind))
    return [flat]


def _trace_score(trace: Mapping[str, Any]) -> float | None:
    """The weighted sum of a trace's rewards; None if none was computed."""
    total = None
    rewards = trace.get("rewards")
    for reward in rewards.values() if isinstance(rewards, Mapping) else ():
        score = _get(reward, "score")
        weight = _get(reward, "weight")
        if isinstance(score, int | float):
            total = (total or 0.0) + score * (weight if isinstance(weight, int | float) else 1.0)
    return total


def _trace_tokens(trace: Mapping[str, Any]) -> int | None:
    """How many tokens of a trace the model sampled."""
    masks = [_get(node, "mask") for node in _items(trace.get("nodes"))]
    count = sum(sum(map(bool, mask)) for mask in masks if isinstance(mask, list))
    return count or None


def _trace(trace: Mapping[str, Any], **more: Any) -> Flat:
    """A trace of verifiers v1: its messages are nodes, its rewards have weights."""
    nodes = [node for node in _items(trace.get("nodes")) if isinstance(node, Mapping)]
    messages = [node.get("message") for node in nodes]
    first_reply = next((n for n, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    flat = {
        "prompt": messages[:first_reply],
        "completion": messages[first_reply:],
        "score": _trace_score(trace),
        "tokens": _trace_tokens(trace),
        "group": _get(trace, "task", "key"),
        "trajectory": trace.get("id"),
        **more,
    }
    errors = trace.get("errors")
    if trace.get("ok") is False and isinstance(errors, list) and errors:
        kind = str(_get(errors[-1], "type"))
        _declared(flat, f"error {kind}", _error_place(kind))
        if flat["score"] is None and LOST_BY in flat:
            flat["score"] = 0.0  # as the trace's own sum of no rewards
    return flat


def _prime_episode(record: Mapping[str, Any]) -> list[Flat]:
    """``traces.jsonl`` of prime-rl: an episode with a trace for each agent."""
    if _get(record, "run", "work", "type") == "eval":
        return []
    step = _get(record, "run", "work", "step")
    group = _get(record, "group", "id") or _get(record, "task", "key")
    traces = [trace for trace in _items(record.get("traces")) if isinstance(trace, Mapping)]
    trained = [trace for trace in traces if _get(trace, "agent", "trainable") is not False]
    return [_trace(trace, step=step, group=group) for trace in trained]


# NeMo


_GYM_REWARD_FAILURES = frozenset({"unknown_error", "gold_execution_error"})
"""Codes of ``failure_reason`` that the policy cannot cause; the others are its own mistakes."""


def _gym_rollout(record: Mapping[str, Any]) -> list[Flat]:
    """A rollout of NeMo Gym: items of the Responses API."""
    prompt = _get(record, "responses_create_params", "input")
    flat: Flat = {
        "prompt": prompt,
        "completion": _get(record, "response", "output") or [],
        "score": record.get("reward"),
        "group": record.get("_ng_task_index"),
        "step": record.get("step"),
        "tokens": _get(record, "response", "usage", "output_tokens"),
    }
    failure = record.get("_ng_failure_class")
    reason = record.get("failure_reason")
    if isinstance(failure, str):
        place = "reward" if failure == "judge_failed" else "rollout"
        return [_declared(flat, f"_ng_failure_class {failure}", place)]
    if isinstance(reason, str) and reason in _GYM_REWARD_FAILURES:
        return [_declared(flat, f"failure_reason {reason}", "reward")]
    if record.get("mask_sample") or _get(record, "instance_config", "mask_sample"):
        return [_declared(flat, "mask_sample", "rollout")]
    return [flat]


def _nemo_rl_sample(record: Mapping[str, Any]) -> list[Flat]:
    """``train_data_step<N>.jsonl`` of NeMo RL: every value is a list of one."""
    content = _only(record.get("content"))
    parts = content if isinstance(content, list) else [content]
    texts = [part for part in parts if isinstance(part, str)]
    mask = _only(record.get("token_loss_mask"))
    flat: Flat = {
        "input": texts[0] if texts else "",
        "output": "\n".join(texts[1:]),
        "score": _only(record.get("rewards")),
        "tokens": sum(map(bool, mask)) if isinstance(mask, list) else None,
    }
    if _only(record.get("sample_loss_mask")) == 0:
        _declared(flat, "sample_loss_mask 0", "rollout")
    return [flat]


# slime, miles, rLLM, open-instruct, TRL


_GIVEN_UP = frozenset({"aborted", "failed"})


def _slime_sample(record: Mapping[str, Any]) -> list[Flat]:
    """A ``Sample`` of slime or miles, as its ``to_dict`` writes it."""
    flat = dict(record)
    if isinstance(record.get("messages"), list):
        flat["output"] = record["messages"]
    flat["tokens"] = record.get("response_length")
    mask = record.get("loss_mask")
    if isinstance(mask, list):
        flat["tokens"] = sum(map(bool, mask))
    reward = record.get("reward")
    if isinstance(reward, Mapping):
        flat["score"] = next((v for v in reward.values() if isinstance(v, int | float)), None)
    status = record.get("status")
    if isinstance(status, str) and status in _GIVEN_UP:
        return [_declared(flat, f"status {status}", "rollout")]
    if record.get("remove_sample"):
        return [_declared(flat, "remove_sample", "rollout")]
    return [flat]


def _rllm_episode(record: Mapping[str, Any]) -> list[Flat]:
    """An episode file of rLLM: trajectories whose last step has the whole conversation."""
    found = []
    reason = record.get("termination_reason")
    for trajectory in _items(record.get("trajectories")):
        steps = _items(_get(trajectory, "steps"))
        last = steps[-1] if steps else {}
        flat: Flat = {
            "prompt": record.get("task"),
            "completion": _get(last, "chat_completions") or [],
            "score": _get(trajectory, "reward"),
            "step": record.get("training_step"),
            "group": f"{record.get('task_hash')} {_get(trajectory, 'name')}",
            "trajectory": _get(trajectory, "uid"),
        }
        if reason == "error":
            _declared(flat, "termination_reason error", "rollout")
        found.append(flat)
    return found


def _open_instruct_rollout(record: Mapping[str, Any]) -> list[Flat]:
    """A rollout of open-instruct: tokens without texts, and what its tools answered."""
    info = record.get("request_info")
    messages = []
    if _get(info, "tool_calleds"):
        error = _get(info, "tool_errors")
        text = error if isinstance(error, str) and error.strip() else _get(info, "tool_outputs")
        messages = [{"role": "tool", "content": text if isinstance(text, str) else ""}]
    tokens = record.get("response_tokens")
    return [
        {
            "prompt": record.get("prompt_tokens"),
            "completion": messages,
            "score": record.get("reward"),
            "step": record.get("step"),
            "group": record.get("prompt_idx"),
            "tokens": len(tokens) if isinstance(tokens, list) else None,
            "calls": _get(info, "num_calls"),
        }
    ]


_NOT_REWARDS = frozenset({"step", "advantage", "prompt", "completion", "image", "images"})


def _trl_completion(record: Mapping[str, Any]) -> list[Flat]:
    """A row of TRL's completions: one column for each reward function, which count alike."""
    flat = dict(record)
    if "score" not in record and "reward" not in record:
        rewards = [
            value
            for name, value in record.items()
            if name not in _NOT_REWARDS and isinstance(value, int | float)
        ]
        known = [value for value in rewards if value == value]
        flat["score"] = sum(known) if known else None
    return [flat]


def _trainer(
    name: str,
    keys: str,
    flatten: Callable[[Mapping[str, Any]], Sequence[Flat]],
    handling: Handling = Handling.ZERO,
) -> Trainer:
    return Trainer(name, frozenset(keys.split()), flatten, handling)


TRAINERS = (
    _trainer("prime-rl (559b44772)", "traces task env", _prime_episode, Handling.EXCLUDE),
    _trainer("verifiers v1 (a60a606ec)", "nodes rewards task", lambda line: [_trace(line)]),
    _trainer("verifiers (a60a606ec)", "example_id completion reward", _verifiers_result),
    _trainer("NeMo Gym (07d6b0d07)", "responses_create_params reward", _gym_rollout, Handling.MASK),
    _trainer("NeMo RL (7ea279abf)", "content rewards idx", _nemo_rl_sample, Handling.MASK),
    _trainer(
        "slime (624b824a8), miles (31f1ca961)",
        "group_index status reward prompt",
        _slime_sample,
        Handling.MASK,
    ),
    _trainer("rLLM (9beb6e0f)", "trajectories termination_reason task", _rllm_episode),
    _trainer(
        "open-instruct (e6c3044aa)",
        "prompt_tokens response_tokens reward",
        _open_instruct_rollout,
    ),
    _trainer("TRL (f2cd57710)", "prompt completion advantage", _trl_completion),
)
