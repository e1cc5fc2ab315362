"""What every kind of fault has: its key in YAML, its phases, and how it strikes.

The kinds themselves are in ``kinds``; defining a subclass of :class:`Action` with a ``kind`` there
registers it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypedDict

from pydantic import BaseModel, ConfigDict, model_validator

from .chance import Draw

Phase = Literal["connect", "before", "during", "after", "body"]
PHASES: tuple[Phase, ...] = ("connect", "before", "during", "after", "body")
Ending = Literal["close", "reset", "hang", "crash", "end"]
"""How an answer breaks off; ``end``: as if it were complete."""
Ping = Literal["alive", "dead"]
Death = Literal["reset", "gone", "cut", "silent"]
"""What the client sees when the sandbox of its request dies."""


Wait = Awaitable[None] | None
"""What a site still has to wait for; None when the fault has acted at once."""


class FaultSite(Protocol):
    """Where a fault strikes: a request, a connection, or an engine without a socket."""

    def sleep(self, seconds: float) -> Wait:
        """Delay the work, which then continues."""

    def active_for(self) -> float:
        """Seconds since the rules were set."""

    def respond(self, status: Any) -> Wait:
        """Answer with a ``Status``."""

    def spoil(self, action: ContentFault) -> Wait:
        """Replace the content of the answer."""

    def hang(self, seconds: float | None) -> Wait:
        """Send nothing more; close the connection after ``seconds``, if given."""

    def reset(self) -> Wait:
        """Break the connection with a TCP reset."""

    def close(self) -> Wait:
        """Close the connection without an answer."""

    def crash(self, restart_after: float | None) -> Wait:
        """Take the whole server down."""

    def die(self, how: Death) -> Wait:
        """Let the sandbox die that the request is about."""

    def wedge(self, ping: Ping, seconds: float | None) -> Wait:
        """Make the whole server accept requests and never answer."""


@dataclass(slots=True)
class BodyDamage:
    """What goes wrong while a body is sent."""

    content_type: str | None = None
    pause: float = 0.0
    """Seconds between the head and the body."""
    drip: tuple[int, float] | None = None
    """Bytes at a time, and the seconds after each piece."""
    rewrite: Callable[[bytes, bytes], bytes] | None = None
    """Turns head and body into the bytes that are sent; the connection is then closed."""
    cut: float | None = None
    """Share (below 1) or number of bytes after which ``ending`` happens."""
    ending: Ending = "close"
    ending_seconds: float | None = None
    """How long to hang, or when to restart after a crash."""


class StrikeNote(TypedDict, total=False):
    """What the journal's event ``strike`` says about an action beside its kind."""

    what: str
    stream: str
    size: int


class Action(BaseModel):
    """Base of all kinds.

    A kind strikes in the first of its ``phases`` when the rule names none.
    """

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
    )

    kind: ClassVar[str]
    phases: ClassVar[tuple[Phase, ...]]
    strike: ClassVar[Callable[[Any, FaultSite, Draw], Wait]]
    """The method that acts in any phase but ``body``; a kind with such a phase defines it."""
    damage_body: ClassVar[Callable[[Any, BodyDamage, Draw], None]]
    """The method for phase ``body``: it adds to what goes wrong while the body is sent."""
    final: ClassVar[bool] = True
    """The request goes no further.

    Of several that strike in one phase, only the first rule's has an effect.
    """
    adds: ClassVar[bool] = False
    """Not final, and a second one in the same phase has an effect of its own."""
    changes_answer: ClassVar[bool] = False
    """Has no effect in a phase in which a final fault replaces the answer."""
    sandbox_only: ClassVar[bool] = False
    passes: ClassVar[bool] = False
    """An attempt that it does not strike succeeds: it leaves nothing broken behind."""
    examples: ClassVar[tuple[Any, ...]] = ()
    """Actions of this kind, as YAML has them, that a hunt tries often.

    It draws others field by field.
    """
    built_in: ClassVar[bool] = True
    """False for a kind that only one fake knows, and passes as ``kinds`` when it reads rules."""
    scalar: ClassVar[str | None] = None
    """The field that a single value stands for, as in ``hang: 30s``."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if not cls.built_in or "kind" not in cls.__dict__:
            return
        for phase in cls.phases:
            method = "damage_body" if phase == "body" else "strike"
            if not hasattr(cls, method):
                raise TypeError(
                    f"{cls.__name__} names phase {phase!r}, so it needs a method {method}"
                )
        KINDS[cls.kind] = cls

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """Expand ``{hang: true}`` and ``{truncate: 0.5}`` to the nested form."""
        has_field = cls.kind in cls.model_fields
        if has_field or not isinstance(value, dict) or set(value) != {cls.kind}:
            return value

        inner = value[cls.kind]
        if inner is True:
            return {}
        if isinstance(inner, dict):
            return inner
        return cls.from_scalar(inner)

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """Return the nested form of a kind written with a single value."""
        if cls.scalar is not None:
            return {cls.scalar: value}
        raise ValueError(f"{cls.kind} takes true or a mapping, got {value!r}")

    def as_data(self) -> dict[str, Any]:
        """The action as it could be written in YAML."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        if self.kind in type(self).model_fields:
            return {self.kind: getattr(self, self.kind), **data}
        return {self.kind: data or True}

    def noted(self) -> StrikeNote:
        """What the journal's event ``strike`` says beside the kind."""
        return {}

    # -- what a hunt may expect of the calls that it strikes --

    def is_harmless(self, phase: Phase) -> bool:
        """Does an attempt that it strikes still succeed?"""
        return False

    def is_transient(self, phase: Phase, first_attempts: int | None, may_have_run: bool) -> bool:
        """Is another attempt sure to succeed?

        ``first_attempts`` is that of the rule: those after it are not struck.
        ``may_have_run``: the tool also repeats what may have been executed.
        """
        return self.passes and first_attempts is not None and may_have_run

    @property
    def lies(self) -> bool:
        """Does the sandbox give a result that is not the program's?"""
        return False

    @property
    def longest_delay(self) -> float:
        return 0.0

    @property
    def lasts(self) -> float | None:
        """For how many seconds at most it disturbs the server, if that is all it does.

        0 for an action without any effect, None for one that does more.
        """
        return None


class ContentFault(Action):
    """Base of the kinds that change what a sandbox answers; ``sandbox.body`` knows how."""

    sandbox_only = True

    @property
    def lies(self) -> bool:
        return True

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.spoil(self)


@dataclass(frozen=True, slots=True)
class Strike:
    """One action of one rule that hits one attempt."""

    rule: str
    action: Action
    draw: Draw


KINDS: dict[str, type[Action]] = {}
"""Every kind by its key in YAML."""


def part(at: float, length: int) -> int:
    """A share below 1 of ``length``, or a number of bytes from 1 on, never more than there are."""
    wanted = int(at * length) if at < 1 else int(at)
    return min(length, wanted)
