"""The tokens that a chat template adds when a conversation continues after an assistant turn.

Templates render a turn differently when it is the last one (Qwen3 adds its thinking), and a model
spells calls in its own way, so the turn that was generated is never compared with a rendered one.
Instead the conversation so far is rendered in outline, with a word in place of that turn: inside
the argument of a call if tools reply. Rendering it with two words shows where the word ends,
rendering two replies shows where the reply begins, and the end of the turn is in the gap between
them:

    <|im_start|>assistant\\n WORD <|im_end|>\\n<|im_start|>user\\n REPLY <|im_end|>\\n...
                             word ------------- gap -------------- reply

The continuation begins inside the gap, behind the token with which the model ended its turn. That
is learnt once for each template; from then on a message takes one rendering.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress, count, product
from operator import ne
from typing import Any, Literal
from weakref import WeakKeyDictionary

from sfusion_tools.errors import TemplateError
from sfusion_tools.formats import Toolbox
from sfusion_tools.tokenizers import Tokenizer, ToolLike

logger = logging.getLogger(__name__)

_WORDS = ("Uvqo", "Zwjk")
"""Stand for the assistant's turn. Neither their first nor their last letters are equal."""
_NOBODY = "unknown"
_QUESTION = {"role": "user", "content": "?"}
_BASES = ([_QUESTION], [{"role": "system", "content": "!"}, _QUESTION])
"""Conversations for templates that refuse the outline of the real one.

The second is for those that insist on a system message.
"""
_ROUNDS = (1, 2, 0)
"""How many calls the turns of a conversation have that shows most of a template."""
_ROUNDS_WITHOUT_CALLS = (0, 0)
_OWN_END = -1
"""For a turn that ended with the token with which its template ends it."""

Messages = Sequence[dict[str, Any]]


def call_id(*parts: object) -> str:
    """Return an id of nine letters and digits.

    The templates of Mistral accept no other form.
    """
    return blake2b(repr(parts).encode(), digest_size=5).hexdigest()[:9]


@dataclass(frozen=True)
class _Way:
    """How a template can be made to render an assistant turn and the messages after it."""

    base: int | None
    """Which of ``_BASES`` comes before the turn; None for the outline of the real conversation."""
    with_calls: bool = False
    """The turn calls tools, and the word is inside an argument."""
    as_text: bool = False
    """The arguments of calls are JSON text."""
    renamed: bool = False
    """Calls and replies get other ids, and a name if they have none.

    The model may have chosen ids that its own template refuses, and a broken call may have no name.
    """
    singly: bool = False
    """Each reply has a turn of its own.

    gpt-oss knows one call per turn and takes the name of the tool from it.
    """


def _ways(messages: Messages) -> Iterator[_Way]:
    """Yield the ways to try, those closest to the real conversation first."""
    no_yes = (False, True)
    bases = (None, *range(len(_BASES)))
    if any(message["role"] == "tool" for message in messages):
        for base, singly, renamed, as_text in product(bases, no_yes, no_yes, no_yes):
            yield _Way(base, with_calls=True, as_text=as_text, renamed=renamed, singly=singly)
    for base, renamed in product(bases, no_yes):
        yield _Way(base, renamed=renamed)


@dataclass(frozen=True)
class _Situation:
    """What decides how a template continues a conversation."""

    roles: tuple[str, ...]
    """The roles of the new messages."""
    last: int | None
    """The token with which the turn before them ended."""
    has_tools: bool

    @property
    def has_replies(self) -> bool:
        """Are there replies of tools among the messages?"""
        return "tool" in self.roles


@dataclass(frozen=True)
class _Learnt:
    """How a conversation is continued in a situation that was met before."""

    way: _Way
    before: list[int]
    """The ids between the beginning of the word and the continuation."""


_Lessons = dict[_Situation, _Learnt]
_LESSONS: WeakKeyDictionary[Any, _Lessons] = WeakKeyDictionary()
"""What was learnt about the template of each tokenizer."""


def continuation(
    tokenizer: Tokenizer,
    messages: Messages,
    *,
    last: int | None,
    tools: Sequence[ToolLike] = (),
    history: Messages = (),
    add_generation_prompt: bool = True,
) -> list[int]:
    """Encode messages as they follow an assistant turn that ended with token ``last``.

    The next generation prompt comes after them. The token that ends a turn is left out if the
    engine generated it, and so is one that ends a turn and begins the next message, such as GLM's
    ``<|observation|>``. ``history`` is the conversation before that turn.
    """
    writer = _Writer(tokenizer, tools, history, add_generation_prompt)
    roles = tuple(message["role"] for message in messages)
    situation = _Situation(roles, last, has_tools=bool(tools))
    lessons = _lessons_of(tokenizer)
    if lessons is None:
        ids, _ = _learn(writer, messages, last, tokenizer)
        return ids

    learnt = lessons.get(situation)
    if learnt is not None:
        again = writer.again(learnt.way, learnt.before, messages)
        if again is not None:
            return again

    ids, lesson = _learn(writer, messages, last, tokenizer)
    is_new = not _has_been_checked(lessons, situation)
    lessons[situation] = lesson
    if is_new:
        _warn_of_difference(tokenizer, tools, situation)
    return ids


def _lessons_of(tokenizer: Tokenizer) -> _Lessons | None:
    """Return what was learnt about a tokenizer; None for one that cannot be remembered."""
    try:
        return _LESSONS.setdefault(tokenizer, {})
    except TypeError:  # neither hashable nor weakly referable
        return None


def _learn(
    writer: _Writer, messages: Messages, last: int | None, tokenizer: Tokenizer
) -> tuple[list[int], _Learnt]:
    """Return the continuation and how it was found, in the first way that the template allows."""
    reasons: list[str] = []
    for way in _ways(messages):
        try:
            ids, before = writer.after(way, messages, last)
        except TemplateError as error:
            reasons.append(_reason(error))
            continue
        return ids, _Learnt(way, before)

    different_reasons = "; ".join(dict.fromkeys(reasons))
    raise TemplateError(
        f"the chat template of {_name(tokenizer)} cannot be used for several turns: "
        f"the tokens of a {messages[0]['role']} message cannot be separated from those of the "
        f"turns before it ({different_reasons})"
    )


def _has_been_checked(lessons: _Lessons, situation: _Situation) -> bool:
    """Return whether the user was warned already of what such messages may show."""
    if situation.has_replies:
        return any(other.has_replies for other in lessons)
    return bool(lessons)


def _warn_of_difference(
    tokenizer: Tokenizer, tools: Sequence[ToolLike], situation: _Situation
) -> None:
    """Log if trajectories with this template differ from the conversation rendered at once."""
    rounds = _ROUNDS if situation.has_replies else _ROUNDS_WITHOUT_CALLS
    found = difference(tokenizer, tools, rounds)
    if found is not None:
        logger.warning("The chat template of %s: %s", _name(tokenizer), found.message)


class _Writer:
    """Renders conversations with one template to learn what follows an assistant turn."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[ToolLike],
        history: Messages,
        add_generation_prompt: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._tools = list(tools) or None
        self._history = history
        self._prompt = add_generation_prompt

    def again(self, way: _Way, before: list[int], messages: Messages) -> list[int] | None:
        """Continue as it was learnt; None if this conversation is rendered differently."""
        if way.singly and len(messages) > 1:
            return None
        try:
            ids = self._render(way, _turn(way, _WORDS[0], messages), messages, prompt=self._prompt)
        except TemplateError:
            return None
        at = _find(before, ids)
        return ids[at + len(before) :] if at >= 0 else None

    def after(self, way: _Way, messages: Messages, last: int | None) -> tuple[list[int], list[int]]:
        """Return the continuation, and the ids before it from the word on."""
        groups = [[message] for message in messages] if way.singly else [list(messages)]
        ids: list[int] = []
        for number, group in enumerate(groups, start=1):
            ended_with = last if number == 1 else _OWN_END
            more, before = self._learn(way, group, ended_with, final=number == len(groups))
            ids += more
        return ids, before

    def _learn(
        self, way: _Way, messages: Messages, last: int | None, *, final: bool
    ) -> tuple[list[int], list[int]]:
        """Return the continuation, and the ids before it from the word on."""
        prompt = self._prompt and final
        word, tail = self._after_word(way, messages, prompt=prompt)
        one_reply, other_reply = (
            self._after_word(way, _saying(reply, messages), prompt=prompt)[1] for reply in _WORDS
        )
        if one_reply == other_reply:
            # Some templates leave out roles that they do not know.
            raise TemplateError(f"it leaves out the content of {messages[0]['role']} messages")

        reply_starts = min(_equal(one_reply, other_reply), _equal(tail, one_reply))
        gap = tail[:reply_starts]
        if not gap:
            raise TemplateError("it writes nothing after an assistant turn")
        start = self._start(way, messages, gap, last)
        return tail[start:], word + tail[:start]

    def _start(self, way: _Way, messages: Messages, gap: list[int], last: int | None) -> int:
        """Return where the continuation begins in the gap.

        The gap is what stands between a turn's word and the first reply.
        """
        model_ended_turn = last is not None and last >= 0 and self._is_special(last)
        if model_ended_turn and last in gap:
            return gap.index(last) + 1

        end, usual = self._end(way, messages, gap)
        if last in (_OWN_END, gap[end]):
            return end + 1
        if not model_ended_turn or last == usual:
            return end
        # The model ended its turn with another token, such as <|eom_id|> for <|eot_id|>. The
        # template's own token is then left out, unless it belongs to the message that follows.
        if gap[end] == usual or self._ends_last_turn(way, messages, gap[: end + 1]):
            return end + 1
        return end

    def _ends_last_turn(self, way: _Way, messages: Messages, ending: list[int]) -> bool:
        """Return whether a turn ends like this also if no message follows it."""
        try:
            _, alone = self._after_word(way, [], calls=messages)
        except TemplateError:
            return True
        return alone[: len(ending)] == ending

    def _end(self, way: _Way, messages: Messages, gap: list[int]) -> tuple[int, int | None]:
        """Return where the turn ends in the gap, and the token that usually ends a turn."""
        first_special = 0
        for at, token in enumerate(gap):
            if self._is_special(token):
                first_special = at
                break
        if not way.with_calls:
            return first_special, None

        usual = self._usual_end(way)
        for end in (self._tokenizer.eos_token_id, usual):
            if end in gap:
                return gap.index(end), end

        closed = self._closing_tags(way, messages, gap)
        return (first_special if closed is None else closed), usual

    def _usual_end(self, way: _Way) -> int | None:
        """Return the token that ends a turn without calls, if it is a special one."""
        try:
            _, tail = self._after_word(_Way(way.base), [_QUESTION])
        except TemplateError:
            return None
        return next((token for token in tail if self._is_special(token)), None)

    def _closing_tags(self, way: _Way, messages: Messages, gap: list[int]) -> int | None:
        """Return how many ids of the gap close a call; None if that cannot be seen.

        They also stand between two calls, where everything behind them is different.
        """
        try:
            _, between = self._after_word(way, [], calls=[messages[-1]] * 2, worded=0)
        except TemplateError:
            return None
        closed = _equal(gap, between)
        return closed if closed < min(len(gap), len(between)) else None

    def _after_word(
        self,
        way: _Way,
        messages: Messages,
        *,
        prompt: bool = True,
        calls: Messages | None = None,
        worded: int = -1,
    ) -> tuple[list[int], list[int]]:
        """Return the ids of the word in place of the turn, and what follows them.

        The turn has a call for each message of ``calls``, by default for each that follows it, and
        the word is in the call at place ``worded``.
        """
        prompt = prompt and bool(messages)
        called = messages if calls is None else calls
        turns = [_turn(way, word, called, worded) for word in _WORDS]
        first, second = (self._render(way, turn, messages, prompt=prompt) for turn in turns)

        begin = _equal(first, second)
        end = _equal(first[::-1], second[::-1])
        words = [ids[begin : len(ids) - end] for ids in (first, second)]
        decoded = tuple(self._tokenizer.decode(ids).strip() for ids in words)
        if begin + end > min(len(first), len(second)) or decoded != _WORDS:
            raise TemplateError(
                "what it writes after an assistant turn depends on the content of that turn"
            )
        return words[0], first[len(first) - end :]

    def _render(
        self, way: _Way, turn: dict[str, Any], messages: Messages, *, prompt: bool
    ) -> list[int]:
        if way.base is None:
            base = [_outline(message) for message in self._history]
        else:
            base = _BASES[way.base]
        if not base:
            raise TemplateError("there is no conversation before it")
        replies = [_renamed(message) for message in messages] if way.renamed else messages
        conversation = [*base, turn, *replies]
        return self._tokenizer.apply_chat_template(
            conversation, self._tools, add_generation_prompt=prompt
        )

    def _is_special(self, number: int) -> bool:
        return not self._tokenizer.decode([number], skip_special_tokens=True)


def _turn(way: _Way, word: str, messages: Messages, worded: int = -1) -> dict[str, Any]:
    """Return an assistant turn with a word, in a call if the way says so."""
    if not way.with_calls:
        return {"role": "assistant", "content": word}
    # Only one call has the word, so that it is there once, if the template renders more than the
    # first.
    arguments: list[Any] = [{"word": "-"} for _ in messages]
    arguments[worded] = {"word": word}
    calls = []
    for place, (message, given) in enumerate(zip(messages, arguments, strict=True)):
        reply = _renamed(message) if way.renamed else message
        function = {
            "name": reply.get("name") or _NOBODY,
            "arguments": json.dumps(given) if way.as_text else given,
        }
        identity = reply.get("tool_call_id") or call_id(place)
        calls.append({"id": identity, "type": "function", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _renamed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's reply with an id and a name that every template accepts."""
    if message["role"] != "tool":
        return message
    return {"name": _NOBODY, **message, "tool_call_id": call_id(message.get("tool_call_id"))}


def _outline(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message without its texts.

    The ids and names of calls are all that a template refers to later.
    """
    calls = message.get("tool_calls")
    if not calls:
        return {**message, "content": "-"}
    without_arguments = [
        {**call, "function": {**call["function"], "arguments": {}}} for call in calls
    ]
    return {**message, "content": "", "tool_calls": without_arguments}


def _saying(word: str, messages: Messages) -> list[dict[str, Any]]:
    """Return the messages with this content in all that have the role of the first."""
    role = messages[0]["role"]
    return [
        {**message, "content": word} if message["role"] == role else message for message in messages
    ]


def _equal(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many ids at the beginning are the same."""
    # Without a Python loop: conversations have thousands of ids, and every turn is compared.
    first_difference = next(compress(count(), map(ne, first, second)), None)
    if first_difference is None:
        return min(len(first), len(second))
    return first_difference


def _find(part: list[int], ids: list[int]) -> int:
    """Return where a part begins, -1 if nowhere."""
    at = -1
    while True:
        try:
            at = ids.index(part[0], at + 1)
        except ValueError:
            return -1
        if ids[at : at + len(part)] == part:
            return at


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
    tokenizer: Tokenizer, tools: Sequence[ToolLike] = (), rounds: Sequence[int] = _ROUNDS
) -> TurnDifference | None:
    """Return how a trajectory differs from the same conversation rendered at once.

    None if it does not. ``rounds`` says how many calls each turn has; after one without calls there
    is another question.
    """
    try:
        return _difference(tokenizer, tools, rounds)
    except TemplateError as error:
        if len(rounds) > 1 and max(rounds) > 1:
            return difference(tokenizer, tools, [min(calls, 1) for calls in rounds])
        return TurnDifference("refused", f"it cannot render such a conversation ({_reason(error)})")


def _difference(
    tokenizer: Tokenizer, tools: Sequence[ToolLike], rounds: Sequence[int]
) -> TurnDifference | None:
    """Grow a conversation round by round, and compare each continuation with the whole."""
    tool_name = next(iter(Toolbox(tools).names), _NOBODY)
    conversation, earlier = _rendered(tokenizer, tools, _BASES)
    for calls in rounds:
        replies = [_reply(calls, place, tool_name) for place in range(calls)]
        new_messages: list[dict[str, Any]] = replies or [_QUESTION]
        added = continuation(tokenizer, new_messages, last=None, tools=tools, history=conversation)

        longer = [
            [*conversation, _turn(_Way(None, calls > 0, as_text), "x", replies), *new_messages]
            for as_text in (False, True)
        ]
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

    same = _equal(earlier, whole)
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
