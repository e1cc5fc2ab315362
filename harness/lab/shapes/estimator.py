"""Advantage estimators as clients: a planted batch goes in, one advantage for each row comes out.

Parameters are recognised by their names. What they hold (lists, numpy or torch, a value for each
row or for each token) is found by calling the function with a healthy batch.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from ...errors import BadOption
from ..client import Returned, Settings, Shape, TrialAsk
from ..facts.batch import PlantedBatch, Row
from .estimator_answer import advantages_in
from .estimator_form import Form, Keys, Library
from .parameters import NAMES
from .results import raised

Role = Literal["rewards", "groups", "mask", "lost", "size"]
ROLES: dict[Role, tuple[str, ...]] = {
    "rewards": (
        "rewards", "reward", "scores", "score", "token_level_rewards", "token_level_scores",
        "raw_rewards", "group_rewards", "all_rewards", "outcome_rewards", "final_rewards",
        "response_level_rewards", "reward_tensor", "rm_scores", "sequence_rewards",
    ),
    "groups": (
        "groups", "group", "group_ids", "group_id", "group_index", "group_indices", "index",
        "indices", "uid", "uids", "prompt_ids", "prompt_id", "prompts", "prompt_index",
        "prompt_idx", "problem_ids", "question_ids",
    ),
    "mask": (
        "mask", "response_mask", "valid_mask", "loss_mask", "action_mask", "final_response_mask",
        "completion_mask", "sample_mask", "valid", "is_valid", "keep", "kept",
    ),
    "lost": (
        "lost", "is_lost", "lost_mask", "failed", "failures", "dropped", "excluded", "invalid",
        "has_error", "is_error", "errors", "remove_sample", "remove_samples",
    ),
    "size": (
        "num_generations", "n_samples_per_prompt", "group_size", "samples_per_prompt",
        "num_samples_per_prompt", "num_samples_per_prompt_rollout", "num_rollouts", "rollout_n",
        "num_samples", "n_samples", "n_sample", "n",
    ),
}  # fmt: skip
"""The names by which each meaning is known; the case of letters does not matter. `mask` is true for
samples that count, `lost` for those that do not."""
_EITHER_WAY = frozenset({"mask", "sample_mask"})
"""Names that do not say whether lost samples are true or false in it."""
_ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
_FILLED: dict[str, Any] = {
    "epsilon": 1e-6, "eps": 1e-6, "gamma": 1.0, "lam": 1.0, "lambd": 1.0, "config": None,
    "device": "cpu", "normalize": True, "norm_by_std": True, "scale_rewards": True,
}  # fmt: skip
"""What other required parameters get."""
_OF_CLIENTS = frozenset(
    name for role in ("code", "solution", "tests", "url", "request") for name in NAMES[role]
)
"""A function with one of these is another shape, whatever else it takes."""
_OF_ESTIMATORS = ("advantage", "reward", "baseline", "grpo", "rloo")
"""Words by which a function is taken for an estimator that is not understood."""
PROBE = PlantedBatch(((1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0)))
"""A healthy batch in which every group-relative estimator tells the first samples apart."""
ADAPTER = (
    "Judge a function of yours that calls it: `def advantages(rewards, groups, mask)`, where each "
    "is a list with a value for each sample (`mask` is 0 for a lost one; leave it out if a lost "
    "sample is declared by a reward of None or NaN, or by leaving its row out), and which returns "
    "one advantage for each sample"
)


def is_estimator(target: Any) -> bool:
    """Is it a function of rewards, or an object that is called like one, and of no program?"""
    if isinstance(target, type) or not callable(target):
        return False
    try:
        names = {name.lower().strip("_") for name in inspect.signature(target).parameters}
    except (TypeError, ValueError):
        return False
    found = {_ROLE_OF.get(name) for name in names}
    plural = bool(names & {"rewards", "scores", "token_level_rewards", "token_level_scores"})
    others = found & {"groups", "mask", "lost", "size"}
    return "rewards" in found and (bool(others) or plural) and not names & _OF_CLIENTS


def resembles_estimator(target: Any) -> bool:
    """Does its name or a parameter speak of advantages or rewards, and no parameter of programs?"""
    try:
        names = {name.lower().strip("_") for name in inspect.signature(target).parameters}
    except (TypeError, ValueError):
        names = set()
    if names & _OF_CLIENTS:
        return False
    spoken = " ".join([*names, str(getattr(target, "__qualname__", type(target).__name__))])
    return any(word in spoken.lower() for word in _OF_ESTIMATORS)


class EstimatorClient:
    """A function that makes advantages of rewards."""

    def __init__(self, function: Callable[..., Any], where: str) -> None:
        self._function = function
        self._where = where
        self._roles = _roles_of(function, where)
        self.form: Form = next(self._forms())
        self.takes = self._takes()

    def _takes(self) -> frozenset[str]:
        ways = {"groups", "dropped", "nan"}
        if self.has_mask:
            ways.add("mask")
        elif self.form.library == "list":
            ways.add("none")
        return frozenset(ways)

    @property
    def has_mask(self) -> bool:
        return "mask" in self._roles or "lost" in self._roles

    @property
    def about(self) -> str:
        names = ", ".join(parameter.name for parameter in self._roles.values())
        return f"an advantage estimator of {names} ({self.form.words})"

    async def begin(self, settings: Settings) -> None:
        """Begin nothing: it has no settings."""

    async def call(self, ask: TrialAsk) -> Returned:
        assert ask.batch is not None
        try:
            found = self.advantages(ask.batch)
        except Exception as error:
            return raised(error)
        return Returned(fields={"advantages": [_plain(value) for value in found]})

    async def end(self) -> None:
        """End nothing: it has no state."""

    def inside(self) -> Any:
        return None

    def advantages(self, batch: PlantedBatch) -> list[float]:
        """Call the function and return the advantage of each row that it returned."""
        if {"groups", "size"} & set(self._roles) or self.form.by_prompt:
            return self._called(batch.rows, batch.size)
        found: list[float] = []
        for group in range(len(batch.groups)):  # it knows one group only
            rows = [row for row in batch.rows if row.group == group]
            if rows:
                found += self._called(rows, batch.size)
        return found

    def _called(self, rows: Sequence[Row], size: int) -> list[float]:
        form = self.form
        values = {
            **_FILLED,
            "rewards": form.rewards(rows),
            "groups": form.groups(rows) if "groups" in self._roles else None,
            "mask": form.mask(rows, of_lost=False),
            "lost": form.mask(rows, of_lost=True),
            "size": size,
        }
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for role, parameter in self._roles.items():
            value = values[role]
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        in_loss = [not (row.masked and self.form.mask_per_token) for row in rows]
        return advantages_in(self._function(*args, **kwargs), in_loss)

    def probe(self) -> None:
        """Find the form in which it takes its arguments; raise BadOption if there is none."""
        fallback: Form | None = None
        problems: dict[str, str] = {}
        for form in self._forms():
            self.form = form
            try:
                found = self.advantages(PROBE)
                again = self.advantages(PROBE)
            except Exception as error:
                problems.setdefault(form.words, f"{type(error).__name__}: {error}")
                continue
            if len(found) != len(PROBE.rows) or not all(map(math.isfinite, found)):
                problems.setdefault(form.words, f"it returned {found!r:.200}")
                continue
            if found != again:
                raise BadOption(f"{self._where}: two calls with the same rewards differ. {ADAPTER}")
            if form.by_prompt and not self._is_of_sets():
                continue
            if _is_relative(found):
                self._refuse_baseline(found)
                self._refuse_inverted()
                self.takes = self._takes()
                return
            fallback = fallback or form
        if fallback is None:
            by_problem = {problem: words for words, problem in reversed(problems.items())}
            tried = [f"with {words}: {problem:.200}" for problem, words in by_problem.items()]
            raise BadOption(
                f"{self._where}: it looks like an advantage estimator, but returned no advantage "
                f"for each of 8 samples. {'; '.join(tried)}. {ADAPTER}"
            )
        self.form = fallback
        self.takes = self._takes()

    def _refuse_baseline(self, found: Sequence[float]) -> None:
        """Raise BadOption if the sample with a reward of 1 gets no more than its siblings."""
        first, second = found[:2]
        if first <= second:
            raise BadOption(
                f"{self._where}: in [1, 0, 0, 0] the sample with the reward 1 gets {first:.2f}, "
                f"its siblings {second:.2f}. An advantage rises with the sample's own reward; this "
                f"may be a baseline. {ADAPTER}"
            )

    def _is_of_sets(self) -> bool:
        """Do samples in the opposite order get their advantages in that order? Tokens do not."""
        opposite = PlantedBatch(tuple(group[::-1] for group in PROBE.groups))
        try:
            found, turned = (self.advantages(batch) for batch in (PROBE, opposite))
        except Exception:  # it cannot take them in that order, so the order has a meaning
            return False
        size = PROBE.size
        expected = found[:size][::-1] + found[size:][::-1]
        # Sums in another order are rounded otherwise.
        return all(map(partial(math.isclose, abs_tol=1e-4), turned, expected))

    def _refuse_inverted(self) -> None:
        """Raise BadOption if it learns only from what a parameter with a clear name rules out."""
        parameter = self._roles.get("mask") or self._roles.get("lost")
        if not self.form.flipped or parameter is None or parameter.name in _EITHER_WAY:
            return
        what = "lost" if "lost" in self._roles else "kept"
        raise BadOption(
            f"{self._where}: it takes `{parameter.name}` the other way round: where it is true for "
            f"{what} samples, as its name says, all healthy samples get the same advantage. If the "
            "trainer passes it so, the test in the function is inverted; if not, judge a function "
            "with the parameter called `mask`"
        )

    def _forms(self) -> Iterator[Form]:
        """Yield the forms to try, the most likely ones first."""
        rewards = self._roles["rewards"]
        mask = self._roles.get("mask") or self._roles.get("lost")
        tokens_first = rewards.name.startswith("token_level")
        mask_tokens_first = mask is not None and mask.name in (
            "response_mask", "loss_mask", "action_mask", "final_response_mask", "completion_mask",
        )  # fmt: skip
        for library, by_token in itertools.product(
            _libraries(rewards), (tokens_first, not tokens_first)
        ):
            # A list of tokens is true whatever it holds: lists are first tried like the rewards.
            mask_by_token = by_token if library == "list" else mask_tokens_first
            rest = itertools.product(
                (mask_by_token, not mask_by_token) if mask else (False,),
                self._group_forms(library),
                (False, True) if mask else (False,),
            )
            for mask_tokens, (keys, listed), flipped in rest:
                yield Form(
                    library=library,
                    rewards_per_token=by_token,
                    mask_per_token=mask_tokens,
                    keys=keys,
                    flipped=flipped,
                    listed_groups=listed,
                )
        if not {"groups", "size"} & set(self._roles) and not tokens_first:
            libraries = _libraries(rewards)
            # `list[np.ndarray]` names both: the arrays are what it computes with.
            libraries.sort(key=lambda name: name == "list" or not _annotated(rewards, name))
            for library in libraries:
                for flipped in (False, True) if mask else (False,):
                    yield Form(library, False, False, "names", flipped, by_prompt=True)

    def _group_forms(self, library: Library) -> list[tuple[Keys, bool]]:
        """Return what groups may be, and whether they may be a list beside other containers."""
        groups = self._roles.get("groups")
        if groups is None:
            return [("names", False)]
        found: list[tuple[Keys, bool]] = [("names", False), ("numbers", False)]
        if groups.name.lower().startswith("prompt"):
            found.append(("tokens", False))
        if library != "list":
            listed: list[tuple[Keys, bool]] = [("names", True), ("numbers", True)]
            found = listed + found if _annotated(groups, "list") else found + listed
        return found


def _roles_of(function: Callable[..., Any], where: str) -> dict[str, inspect.Parameter]:
    """Return the parameters by their meaning; raise BadOption for required ones without any."""
    found: dict[str, inspect.Parameter] = {}
    strange = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        name = parameter.name.lower().strip("_")
        role = _ROLE_OF.get(name)
        if role is not None and role not in found:
            found[role] = parameter
        elif parameter.default is parameter.empty:
            if name in _FILLED:
                found[name] = parameter
            else:
                strange.append(parameter.name)
    if strange:
        them = " and ".join(f"`{name}`" for name in strange)
        raise BadOption(f"{where}: it is not known what to pass for {them}. {ADAPTER}")
    return found


def _libraries(rewards: inspect.Parameter) -> list[Library]:
    """Return the libraries that may hold its arguments, the one that its annotation names first."""
    there: list[Library] = ["list"]
    if "torch" in sys.modules:  # it was imported with the target, if that needs it
        there.append("torch")
    if importlib.util.find_spec("numpy") is not None:
        there.append("numpy")
    return sorted(there, key=lambda library: not _annotated(rewards, library))


def _annotated(parameter: inspect.Parameter, library: Library) -> bool:
    """Does an annotation name the container of a library?"""
    named = {"torch": "tensor", "numpy": "ndarray", "list": "list"}
    return named[library] in str(parameter.annotation).lower()


def _is_relative(advantages: Sequence[float]) -> bool:
    """Do the samples with a reward of 1 get different advantages in groups of different success?"""
    largest = max(map(abs, advantages))
    return abs(advantages[0] - advantages[PROBE.size]) > 1e-3 * largest


def _plain(value: float) -> float | str:
    """Return a number as a journal holds it, which has no NaN."""
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)


def estimator_shape(name: str, target: Callable[..., Any]) -> Shape:
    """Return the shape of an advantage estimator; raise BadOption if it cannot be called."""
    if any(map(inspect.iscoroutinefunction, (target, type(target).__call__))):
        raise BadOption(f"{name}: an advantage estimator that is asynchronous. {ADAPTER}")
    first = EstimatorClient(target, name)
    first.probe()

    def make() -> EstimatorClient:
        client = EstimatorClient(target, name)
        client.form = first.form
        client.takes = first.takes
        return client

    return Shape(name, first.about, make, first.takes)
