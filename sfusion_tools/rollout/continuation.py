"""The tokens that a chat template adds when a conversation continues after an assistant turn.

Templates render a turn differently when it is the last one (Qwen3 adds its thinking), and a model
spells calls in its own way, so the turn that was generated is never compared with a rendered one.
Instead the conversation so far is rendered in outline, which shows where a turn ends (see
``outline``). That is learnt once for each template; from then on a message takes one rendering.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

from sfusion_tools.errors import TemplateError
from sfusion_tools.formats import Toolbox
from sfusion_tools.rollout.outline import (
    BASES,
    QUESTION,
    UNNAMED,
    Messages,
    OutlineWriter,
    Way,
    call_id,
    common_length,
    outlined_turn,
    ways,
)
from sfusion_tools.tokenizers import Tokenizer, ToolLike

logger = logging.getLogger(__name__)

_ROUNDS = (1, 2, 0)
"""How many calls the turns of a conversation have that shows most of a template."""
_ROUNDS_WITHOUT_CALLS = (0, 0)


@dataclass(frozen=True)
class _Situation:
    """What decides how a template continues a conversation."""

    roles: tuple[str, ...]
    """The roles of the new messages."""
    last: int | None
    """The token with which the turn before them ended."""
    has_tools: bool
    has_system: bool = False
    """Some templates write later turns differently after a system message."""

    @property
    def has_replies(self) -> bool:
        """Are there replies of tools among the messages?"""
        return "tool" in self.roles


@dataclass(frozen=True)
class _Learnt:
    """How a conversation is continued in a situation that was met before."""

    way: Way
    before: list[int]
    """The ids between the beginning of the word and the continuation."""
    is_certain: bool = True
    """It does not depend on more of the turn before it than the last token."""


_Lessons = dict[_Situation, _Learnt]
_LESSONS: WeakKeyDictionary[Any, _Lessons] = WeakKeyDictionary()
"""What was learnt about the template of each tokenizer."""


def continuation(
    tokenizer: Tokenizer,
    messages: Messages,
    *,
    last: int | None,
    turn: Sequence[int] = (),
    tools: Sequence[ToolLike] = (),
    history: Messages = (),
    add_generation_prompt: bool = True,
) -> list[int]:
    """Encode messages as they follow an assistant turn that ended with token ``last``.

    The next generation prompt comes after them. The token that ends a turn is left out if the
    engine generated it, and so is one that ends a turn and begins the next message, such as GLM's
    ``<|observation|>``. ``turn`` are the last ids of that turn: without the token that ends it they
    tell which tags were closed. ``history`` is the conversation before that turn.
    """
    writer = OutlineWriter(tokenizer, tools, history, add_generation_prompt)
    roles = tuple(message["role"] for message in messages)
    system = [message for message in history[:1] if message["role"] == "system"]
    situation = _Situation(roles, last, has_tools=bool(tools), has_system=bool(system))
    lessons = _lessons_of(tokenizer)
    if lessons is None:
        ids, _ = _learn(writer, messages, last, turn, tokenizer)
        return ids

    learnt = lessons.get(situation)
    if learnt is not None and learnt.is_certain:
        again = writer.again(learnt.way, learnt.before, messages)
        if again is not None:
            return again

    ids, lesson = _learn(writer, messages, last, turn, tokenizer)
    is_new = not _has_been_checked(lessons, situation)
    lessons[situation] = lesson
    if is_new:
        _warn_of_difference(tokenizer, tools, situation, system)
    return ids


def _lessons_of(tokenizer: Tokenizer) -> _Lessons | None:
    """Return what was learnt about a tokenizer; None for one that cannot be remembered."""
    try:
        return _LESSONS.setdefault(tokenizer, {})
    except TypeError:  # neither hashable nor weakly referable
        return None


def _learn(
    writer: OutlineWriter,
    messages: Messages,
    last: int | None,
    turn: Sequence[int],
    tokenizer: Tokenizer,
) -> tuple[list[int], _Learnt]:
    """Return the continuation and how it was found, in the first way that the template allows."""
    reasons: list[str] = []
    for way in ways(messages):
        try:
            ids, before = writer.after(way, messages, last, turn)
        except TemplateError as error:
            reasons.append(_reason(error))
            continue
        return ids, _Learnt(way, before, is_certain=not writer.is_ambiguous)

    different_reasons = "; ".join(dict.fromkeys(reasons))
    raise TemplateError(
        f"the chat template of {_name(tokenizer)} cannot be used for several turns: "
        f"the tokens of a {messages[0]['role']} message cannot be separated from those of the "
        f"turns before it ({different_reasons})"
    )


def _has_been_checked(lessons: _Lessons, situation: _Situation) -> bool:
    """Return whether the user was warned already of what such messages may show."""
    alike = [other for other in lessons if other.has_system == situation.has_system]
    if situation.has_replies:
        return any(other.has_replies for other in alike)
    return bool(alike)


def _warn_of_difference(
    tokenizer: Tokenizer, tools: Sequence[ToolLike], situation: _Situation, system: Messages
) -> None:
    """Log if trajectories with this template differ from the conversation rendered at once."""
    rounds = _ROUNDS if situation.has_replies else _ROUNDS_WITHOUT_CALLS
    found = difference(tokenizer, tools, rounds, system)
    if found is not None:
        logger.warning("The chat template of %s: %s", _name(tokenizer), found.message)


def _name(tokenizer: Tokenizer) -> str:
    return str(getattr(tokenizer, "name", type(tokenizer).__name__))


def _reason(error: TemplateError) -> str:
    """Return what a template said."""
    return str(error.__cause__ or error)


@dataclass(frozen=True)
class TurnDifference:
    """How trajectories differ from the same conversation rendered at once."""

    kind: Literal["refused", "replies", "earlier"]
    """It cannot be rendered; the new messages differ; only what stands before them does."""
    message: str


def difference(
    tokenizer: Tokenizer,
    tools: Sequence[ToolLike] = (),
    rounds: Sequence[int] = _ROUNDS,
    system: Messages = (),
) -> TurnDifference | None:
    """Return how a trajectory differs from the same conversation rendered at once.

    None if it does not. ``rounds`` says how many calls each turn has; after one without calls there
    is another question. ``system`` is the system message that the conversation begins with.
    """
    try:
        return _difference(tokenizer, tools, rounds, system)
    except TemplateError as error:
        if len(rounds) > 1 and max(rounds) > 1:
            return difference(tokenizer, tools, [min(calls, 1) for calls in rounds], system)
        return TurnDifference("refused", f"it cannot render such a conversation ({_reason(error)})")


def _difference(
    tokenizer: Tokenizer, tools: Sequence[ToolLike], rounds: Sequence[int], system: Messages
) -> TurnDifference | None:
    """Grow a conversation round by round, and compare each continuation with the whole."""
    tool_name = next(iter(Toolbox(tools).names), UNNAMED)
    bases = [[*system, QUESTION]] if system else BASES
    conversation, earlier = _rendered(tokenizer, tools, bases)
    for calls in rounds:
        replies = [_reply(calls, place, tool_name) for place in range(calls)]
        new_messages: list[dict[str, Any]] = replies or [QUESTION]
        added = continuation(tokenizer, new_messages, last=None, tools=tools, history=conversation)

        longer: list[Messages] = []
        for as_text in (False, True):
            way = Way(base=None, with_calls=calls > 0, as_text=as_text)
            turn = outlined_turn(way, "x", replies)
            longer.append([*conversation, turn, *new_messages])
        conversation, whole = _rendered(tokenizer, tools, longer)
        found = _compared(tokenizer, earlier, added, whole, messages=len(conversation))
        if found is not None:
            return found
        earlier = whole
    return None


def _reply(calls: int, place: int, name: str) -> dict[str, Any]:
    """Return the reply of a tool to the call at a place of a turn with so many calls."""
    return {
        "role": "tool",
        "content": f"r{place}",
        "tool_call_id": call_id(calls, place),
        "name": name,
    }


_SHOWN_IDS = 24
"""Tokens that a difference shows. Chosen: about a line."""


def _compared(
    tokenizer: Tokenizer, earlier: list[int], added: list[int], whole: list[int], *, messages: int
) -> TurnDifference | None:
    """Compare a conversation rendered at once with what a trajectory has.

    A trajectory has the ids of the conversation before, a turn of the model, and the ids added.
    """
    subject = f"rendered at once, a conversation of {messages} messages has"
    end = whole[max(len(whole) - len(added), 0) :]
    if end != added:
        at_once = tokenizer.decode(end)
        grown = tokenizer.decode(added)
        return TurnDifference(
            "replies", f"{subject} {at_once!r} at its end, and a trajectory has {grown!r}"
        )

    same = common_length(earlier, whole)
    if same < len(earlier):
        at_once = tokenizer.decode(whole[same : same + _SHOWN_IDS])
        grown = tokenizer.decode(earlier[same : same + _SHOWN_IDS])
        return TurnDifference(
            "earlier",
            f"{subject} {at_once!r} where a trajectory has {grown!r}; "
            "trajectories keep the tokens that the model was given",
        )
    return None


def _rendered(
    tokenizer: Tokenizer, tools: Sequence[ToolLike], conversations: Sequence[Messages]
) -> tuple[Messages, list[int]]:
    """Return the first conversation that the template accepts, and its ids."""
    failures = []
    for shown in conversations:
        try:
            return shown, tokenizer.apply_chat_template(
                shown, list(tools) or None, add_generation_prompt=True
            )
        except TemplateError as error:
            failures.append(error)
    raise failures[0]
