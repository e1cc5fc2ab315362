"""One trajectory of the toy: what it decided to do, and what became of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..scenarios.training import BehaviourPart, TrainingPart


@dataclass
class ToySample:
    """A trajectory, from its decision to its score."""

    id: str
    group: str
    place: int
    """Of its behaviour."""
    behaviour: BehaviourPart
    right: bool
    """Whether its attempt is right, whatever becomes of its calls."""
    guessed: bool
    """Whether it is right after it gave up."""
    ease: float = 0.0
    """How easy its question is, in standard deviations."""
    endless: bool = False
    """Its program never ends."""
    leaves_endless_out: bool = False
    """The trainer takes a program that never ends for a loss."""
    results: list[bool] = field(default_factory=list)
    """For each call whether the model took its answer for a result."""
    fooled: bool = False
    """The last answer that it took for a result is not what the program printed."""
    lies: int = 0
    """How many such answers it got."""
    aborted: bool = False
    """The trajectory failed as a whole."""
    score: float = 0.0
    known: bool = False
    """The trainer knows that the last call was lost."""

    @property
    def calls_next(self) -> bool:
        """Does it make another call?"""
        return not self.gave_up and sum(self.results) < self.behaviour.calls

    @property
    def gave_up(self) -> bool:
        return self.results.count(False) > self.behaviour.again

    @property
    def lost(self) -> bool:
        """In truth, whatever the trainer knows. A program that never ends is not a loss, unless
        the trainer takes it for one."""
        if self.endless and self.gave_up:
            return self.leaves_endless_out
        return self.gave_up or self.fooled or self.aborted

    @property
    def lost_calls(self) -> int:
        """How many of its calls were lost or answered with a lie."""
        if self.endless and not self.leaves_endless_out:
            return 0
        return self.results.count(False) + self.lies

    @property
    def is_right(self) -> bool:
        """Is its answer right, if it gets no wrong result?"""
        return self.guessed if self.gave_up else self.right

    @property
    def answers(self) -> bool:
        """Does it state an answer in the format that is asked for?"""
        return self.guessed or not self.gave_up

    @property
    def tokens(self) -> int:
        """How long it is."""
        return length_of(self.behaviour, self.gave_up)

    @property
    def next_call(self) -> str:
        return f"{self.id}.c{len(self.results) + 1}"


def length_of(behaviour: BehaviourPart, gave_up: bool) -> int:
    """Return how many tokens a sample of a behaviour has."""
    if gave_up and behaviour.tokens_lost is not None:
        return behaviour.tokens_lost
    return behaviour.tokens


def loss_weights(part: TrainingPart, tokens: Sequence[int], usual: float) -> list[float]:
    """Return with which factor each sample of this length is in the loss.

    ``usual`` is the mean length at the start, so that the first step has the same size with any
    aggregation.
    """
    mean = sum(tokens) / max(1, len(tokens))
    return [loss_weight(part, length, mean, usual) for length in tokens]


def loss_weight(part: TrainingPart, length: float, mean: float, usual: float) -> float:
    """Return the factor of one sample; ``mean`` is the mean length in its step."""
    if part.aggregation == "seq-mean-token-sum":
        return 1.0
    if part.aggregation == "seq-mean-token-mean":
        return usual / length
    return usual / mean
