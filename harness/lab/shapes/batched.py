"""Reward functions that score a whole batch, as TRL and open-r1 call them.

``reward(completions, **kwargs)`` gets a list of completions, and the columns of its dataset as
further lists. A completion is a text, or a list of messages if the dataset is conversational.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..client import SCORES_IN_LIST, Returned, TrialAsk
from .function import FunctionClient, Surroundings
from .parameters import NAMES
from .results import raised, returned_from

Sample = tuple[str, Mapping[str, Sequence[str]]]
"""A completion, and the tests of its program."""

_COLUMNS = frozenset(
    ("prompts", "completion_ids", "trainer_state", "verification_info", *NAMES["tests"])
)
"""What a reward function gets beside the completions, and what does not come from a setting."""


def is_batched_reward(target: Any) -> bool:
    """Is it a function of a list of completions, or an object that is called like one?"""
    if isinstance(target, type) or not callable(target):
        return False
    try:
        return "completions" in inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


def _as_function(target: Any) -> Callable[..., Any]:
    """Return what is called of an object; whether that is asynchronous can be seen of it."""
    if inspect.isroutine(target) or isinstance(target, functools.partial):
        return target
    return target.__call__  # type: ignore[no-any-return]


class BatchedReward:
    """A reward function of a batch, also as one of a single completion and its tests."""

    def __init__(self, target: Callable[..., Any], *, as_messages: bool) -> None:
        self._function = _as_function(target)
        self._as_messages = as_messages
        self._parameters = inspect.signature(self._function).parameters
        kinds = {parameter.kind for parameter in self._parameters.values()}
        self._takes_columns = inspect.Parameter.VAR_KEYWORD in kinds

    def of_samples(self, samples: Sequence[Sample], settings: Mapping[str, Any]) -> Any:
        """Score samples in one call; return the list of their scores, or what is awaited for it."""
        completions: list[Any] = []
        columns: dict[str, list[Any]] = {}
        for completion, tests in samples:
            message = [{"role": "assistant", "content": completion}]
            completions.append(message if self._as_messages else completion)
            for name, value in _columns(tests).items():
                if self._takes_columns or name in self._parameters:
                    columns.setdefault(name, []).append(value)
        return self._function(**{"completions": completions, **columns, **settings})

    def of_one(self) -> Callable[..., Any]:
        """Return a reward function of one completion and its tests."""
        function = self._function
        if inspect.iscoroutinefunction(inspect.unwrap(function)):

            @functools.wraps(function)
            async def one(completion: str, tests: Any, **settings: Any) -> Any:
                return _first(await self.of_samples([(completion, tests)], settings))

        else:

            @functools.wraps(function)
            def one(completion: str, tests: Any, **settings: Any) -> Any:
                return _first(self.of_samples([(completion, tests)], settings))

        one.__signature__ = _signature(self._parameters)  # type: ignore[attr-defined]
        return one


class BatchClient(FunctionClient):
    """A reward function of a batch: it is called for one sample, or once for all of a batch."""

    def __init__(self, reward: BatchedReward, where: str, surroundings: Surroundings) -> None:
        super().__init__(reward.of_one(), where, surroundings)
        self.takes |= {"batch"}
        self._reward = reward
        self._gathered: list[TrialAsk] = []
        self._scores: asyncio.Future[dict[str, Returned]] | None = None

    async def call(self, ask: TrialAsk) -> Returned:
        """Score a sample; one of a batch waits for the others, and the last one scores all."""
        if ask.among == 1:
            return await super().call(ask)
        if self._scores is None:
            self._scores = asyncio.get_running_loop().create_future()
        scores = self._scores
        self._gathered.append(ask)
        if len(self._gathered) == ask.among:
            # They came in any order; in the batch they stand as the scene has them.
            gathered = sorted(self._gathered, key=lambda sample: sample.call)
            self._gathered = []
            self._scores = None
            try:
                scores.set_result(await self._scored(gathered))
            except asyncio.CancelledError:
                scores.cancel()  # no other sample scores the batch
                raise
        return (await asyncio.shield(scores))[ask.call]

    async def _scored(self, asks: list[TrialAsk]) -> dict[str, Returned]:
        """Return what came back for each sample; an exception came back for all of them."""
        names = [ask.call for ask in asks]
        samples: list[Sample] = []
        settings: dict[str, Any] = {}
        for ask in asks:
            settings = self._arguments(ask)[1]
            samples.append((settings.pop("completion"), settings.pop("tests")))
        try:
            listed = _listed(await self._called(lambda: self._reward.of_samples(samples, settings)))
            if not isinstance(listed, list):
                raise BadScoresError(
                    f"{listed!r:.200} came back for a batch of {len(asks)} samples"
                )
        except Exception as error:
            return dict.fromkeys(names, raised(error))
        if len(listed) != len(asks):
            return dict.fromkeys(names, _of_wrong_length(listed))
        return {name: returned_from(score) for name, score in zip(names, listed, strict=True)}


class BadScoresError(Exception):
    """Stands for what a client returned that is not a list of scores."""


def _of_wrong_length(scores: Sequence[Any]) -> Returned:
    """Return what stands for a list that has more or fewer scores than there are samples."""
    return Returned(fields={SCORES_IN_LIST: len(scores)})


def _signature(parameters: Mapping[str, inspect.Parameter]) -> inspect.Signature:
    """Return the signature for one sample: a completion, its tests, and the settings."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    found = [inspect.Parameter(name, keyword) for name in ("completion", "tests")]
    for parameter in parameters.values():
        is_variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.name != "completions" and parameter.name not in _COLUMNS and not is_variable:
            found.append(parameter.replace(kind=keyword))
    return inspect.Signature(found)


def _columns(tests: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the columns of a dataset in which tests are known to come."""
    cases = [
        {"input": given, "output": wanted, "type": "stdin_stdout", "fn_name": None}
        for given, wanted in zip(tests["inputs"], tests["outputs"], strict=True)
    ]
    return {
        "prompts": "Write a program.",
        "tests": tests,
        "test_cases": cases,
        "ground_truth": json.dumps(tests),
        "verification_info": {"language": "python", "test_cases": cases},
    }


def _first(scores: Any) -> Any:
    """Return the score of the only sample; what is no list is left as it is."""
    listed = _listed(scores)
    if not isinstance(listed, list):
        return scores
    return listed[0] if len(listed) == 1 else {SCORES_IN_LIST: len(listed)}


def _listed(scores: Any) -> Any:
    """Return a tuple, an array or a tensor as a list; anything else as it is."""
    if isinstance(scores, tuple):
        return list(scores)
    return scores.tolist() if hasattr(scores, "tolist") else scores
