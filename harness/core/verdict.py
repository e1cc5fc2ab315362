"""The verdict on one promise: held, broken, unknown or not applicable, how that came about, and the
evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Literal, get_args

from sfusion_tools.wording import counted

State = Literal["held", "broken", "unknown", "not_applicable"]


EVERYTHING_TOOK_EFFECT = "everything_took_effect"
"""Reported as unknown beside the promises of a run that does not show all that its scenario
declares."""


@dataclass(frozen=True, slots=True)
class How:
    """How a verdict came about, as data. Two are equal if they are the same way to fail, whatever
    their details."""

    promise: str
    kind: str = ""
    """One that the promise declares; empty in a file that was written before verdicts said it."""
    identity: tuple[tuple[str, str], ...] = ()
    """Parameters that tell failures of one kind apart, such as an outcome; never ids, times, counts
    or texts."""
    details: dict[str, Any] = field(default_factory=dict, compare=False)
    """The other parameters of the sentence."""

    @classmethod
    def of(
        cls, promise: str, kind: str, parameters: Mapping[str, Any], identity: Collection[str] = ()
    ) -> How:
        """Sort the parameters into those that are named in ``identity`` and details."""
        told_apart = tuple((key, str(parameters[key])) for key in identity if key in parameters)
        details = {key: value for key, value in parameters.items() if key not in identity}
        return cls(promise, kind, told_apart, details)

    def as_dict(self) -> dict[str, Any]:
        return {
            "promise": self.promise,
            "kind": self.kind,
            "identity": dict(self.identity),
            "details": self.details,
        }

    @classmethod
    def from_dict(cls, data: Any) -> How:
        """Read what ``as_dict`` returned; raise ValueError for anything else."""
        check_types(data, "how", {"promise": str, "kind": str, "identity": dict, "details": dict})
        told_apart = tuple((str(key), str(value)) for key, value in data["identity"].items())
        return cls(data["promise"], data["kind"], told_apart, data["details"])


class _Sentences(Formatter):
    """Formats as ``str.format`` does, but a specification may also be a noun or a separator."""

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, list):
            separator = spec or ", "
            return separator.join(map(str, value))
        is_noun = spec[1:2].isalpha()  # the second character of a specification such as .3f is not
        return counted(value, spec) if is_noun else str(format(value, spec))


def sentence_of(template: str, parameters: Mapping[str, Any]) -> str:
    """Fill a template as ``str.format`` does; a number may name its noun (``{made:call}``), a list
    its separator."""
    return _Sentences().vformat(template, (), parameters)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one promise. Unknown is not a pass; not applicable is neither a pass nor a
    failure."""

    promise: str
    state: State
    sentence: str
    """For people, made from ``how``: nothing reads it back."""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    """A few events of the journal that show it."""
    count: int = 0
    """How often the promise was broken; the evidence is about the first time."""
    how: How = None  # type: ignore[assignment] # set below
    """By default nothing but the promise is known, as from files that were written before there was
    this."""

    def __post_init__(self) -> None:
        if self.how is None:
            object.__setattr__(self, "how", How(self.promise))

    @property
    def held(self) -> bool:
        return self.state == "held"

    @property
    def failed(self) -> bool:
        """Is it broken or unknown?"""
        return self.state in ("broken", "unknown")

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as in verdict.json."""
        return {
            "promise": self.promise,
            "state": self.state,
            "sentence": self.sentence,
            "how": self.how.as_dict(),
            "count": self.count,
            "evidence": self.evidence,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Verdict:
        """Read what ``as_dict`` returned, now or before there was ``how``; raise ValueError for
        anything else."""
        kinds = {"promise": str, "state": str, "sentence": str, "evidence": list, "count": int}
        check_types(data, "a verdict", kinds)
        are_events = all(isinstance(event, dict) for event in data["evidence"])
        if data["state"] not in get_args(State) or not are_events:
            raise ValueError(
                f"the state of a verdict is one of {', '.join(get_args(State))}, its "
                "evidence mappings"
            )
        how = How.from_dict(data["how"]) if "how" in data else How(data["promise"])
        return cls(**{key: data[key] for key in kinds}, how=how)


def check_types(data: Any, what: str, kinds: Mapping[str, type]) -> None:
    """Raise ValueError unless data is a mapping with values of these types."""
    if not isinstance(data, dict):
        raise ValueError(f"{what} is a mapping, found {data!r:.80}")
    for key, kind in kinds.items():
        if not isinstance(data.get(key), kind):
            raise ValueError(
                f"{key} of {what}: expected {kind.__name__}, found {data.get(key)!r:.80}"
            )
