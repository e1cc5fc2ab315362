"""Renders conversations in outline, to find where an assistant turn ends in a chat template.

The conversation is rendered with a word in place of the turn: inside the argument of a call if
tools reply. Rendering it with two words shows where the word ends, rendering two replies shows
where the reply begins, and the end of the turn is in the gap between them:

    <|im_start|>assistant\\n WORD <|im_end|>\\n<|im_start|>user\\n REPLY <|im_end|>\\n...
                             word ------------- gap -------------- reply

The continuation begins inside the gap, behind the token with which the model ended its turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress, count, product
from operator import ne
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.tokenizers import Tokenizer, ToolLike

_WORDS = ("Uvqo", "Zwjk")
"""Stand for the assistant's turn. Neither their first nor their last letters are equal."""
UNNAMED = "unknown"
QUESTION = {"role": "user", "content": "?"}
BASES = ([QUESTION], [{"role": "system", "content": "!"}, QUESTION])
"""Conversations for templates that refuse the outline of the real one.

The second is for those that insist on a system message.
"""
_OWN_END = -1
"""For a turn that ended with the token with which its template ends it."""


Messages = Sequence[dict[str, Any]]


def call_id(*parts: object) -> str:
    """Return an id of nine letters and digits.

    The templates of Mistral accept no other form.
    """
    return blake2b(repr(parts).encode(), digest_size=5).hexdigest()[:9]


@dataclass(frozen=True)
class Way:
    """How a template can be made to render an assistant turn and the messages after it."""

    base: int | None
    """Which of ``BASES`` comes before the turn; None for the outline of the real conversation."""
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


def ways(messages: Messages) -> Iterator[Way]:
    """Yield the ways to try, those closest to the real conversation first."""
    no_yes = (False, True)
    bases = (None, *range(len(BASES)))
    if any(message["role"] == "tool" for message in messages):
        for base, singly, renamed, as_text in product(bases, no_yes, no_yes, no_yes):
            yield Way(base, with_calls=True, as_text=as_text, renamed=renamed, singly=singly)
    for base, renamed in product(bases, no_yes):
        yield Way(base, renamed=renamed)


class OutlineWriter:
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
        self._turn: list[int] = []
        self.is_ambiguous = False
        """The token that ended the turn stands several times where turns end."""

    def again(self, way: Way, before: list[int], messages: Messages) -> list[int] | None:
        """Continue as it was learnt; None if this conversation is rendered differently."""
        if way.singly and len(messages) > 1:
            return None
        try:
            turn = outlined_turn(way, _WORDS[0], messages)
            ids = self._render(way, turn, messages, prompt=self._prompt)
        except TemplateError:
            return None
        at = _find(before, ids)
        return None if at < 0 else ids[at + len(before) :]

    def after(
        self, way: Way, messages: Messages, last: int | None, turn: Sequence[int] = ()
    ) -> tuple[list[int], list[int]]:
        """Return the continuation, and the ids before it from the word on.

        ``turn`` are ids of the turn's end, if they are known.
        """
        self.is_ambiguous = False
        self._turn = list(turn)
        groups = [[message] for message in messages] if way.singly else [list(messages)]
        ids: list[int] = []
        for number, group in enumerate(groups, start=1):
            ended_with = last if number == 1 else _OWN_END
            more, before = self._separate(way, group, ended_with, final=number == len(groups))
            ids += more
        return ids, before

    def _separate(
        self, way: Way, messages: Messages, last: int | None, *, final: bool
    ) -> tuple[list[int], list[int]]:
        """Return the continuation, and the ids before it from the word on.

        Only after the ``final`` messages there may be a prompt.
        """
        prompt = self._prompt and final
        word, tail = self._after_word(way, messages, prompt=prompt)
        _, one_tail = self._after_word(way, _saying(_WORDS[0], messages), prompt=prompt)
        _, other_tail = self._after_word(way, _saying(_WORDS[1], messages), prompt=prompt)
        if one_tail == other_tail:
            # Some templates leave out roles that they do not know.
            raise TemplateError(f"it leaves out the content of {messages[0]['role']} messages")

        # The real reply may begin with the same letters as one of the words, or with others.
        reply_starts = min(common_length(one_tail, other_tail), common_length(tail, one_tail))
        gap = tail[:reply_starts]
        if not gap:
            raise TemplateError("it writes nothing after an assistant turn")
        start = self._start(way, messages, gap, last)
        return tail[start:], word + tail[:start]

    def _start(self, way: Way, messages: Messages, gap: list[int], last: int | None) -> int:
        """Return where the continuation begins in the gap.

        The gap is what stands between a turn's word and the first reply.
        """
        model_ended_turn = last is not None and last >= 0 and self._is_special(last)
        if model_ended_turn and last in gap:
            return self._place_of(last, gap) + 1

        end, usual = self._end(way, messages, gap)
        if last in (_OWN_END, gap[end]):
            return end + 1
        if not model_ended_turn or last == usual:
            # The turn was cut off, or ended as usual with a token that does not stand here.
            return end
        # The model ended its turn with another token, such as <|eom_id|> for <|eot_id|>. The
        # template's own token is then left out, unless it belongs to the message that follows.
        if gap[end] == usual or self._ends_last_turn(way, messages, gap[: end + 1]):
            return end + 1
        return end

    def _place_of(self, last: int | None, gap: list[int]) -> int:
        """Return where in the gap the token stands with which the turn ended.

        Kimi-K3 ends all its tags with the same token. If the token that ends turns is missing, what
        the model wrote before tells which of the tags it closed last.
        """
        places = [place for place, token in enumerate(gap) if token == last]
        self.is_ambiguous = len(places) > 1
        written = self._turn[::-1]
        return max(places, key=lambda place: common_length(gap[place::-1], written))

    def _ends_last_turn(self, way: Way, messages: Messages, ending: list[int]) -> bool:
        """Return whether a turn ends like this also if no message follows it."""
        try:
            _, alone = self._after_word(way, [], calls=messages)
        except TemplateError:
            return True
        return alone[: len(ending)] == ending

    def _end(self, way: Way, messages: Messages, gap: list[int]) -> tuple[int, int | None]:
        """Return the place of the token in the gap that ends the turn, and the usual such token.

        The second is None if it is not known. If nothing else tells, the first special token ends
        the turn.
        """
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

    def _usual_end(self, way: Way) -> int | None:
        """Return the token that ends a turn without calls, if it is a special one."""
        try:
            _, tail = self._after_word(Way(way.base), [QUESTION])
        except TemplateError:
            return None
        return next((token for token in tail if self._is_special(token)), None)

    def _closing_tags(self, way: Way, messages: Messages, gap: list[int]) -> int | None:
        """Return how many ids of the gap close a call; None if that cannot be seen.

        They also stand between two calls, where everything behind them is different.
        """
        try:
            _, between = self._after_word(way, [], calls=[messages[-1]] * 2, worded=0)
        except TemplateError:
            return None
        closed = common_length(gap, between)
        return closed if closed < min(len(gap), len(between)) else None

    def _after_word(
        self,
        way: Way,
        messages: Messages,
        *,
        prompt: bool = True,
        calls: Messages | None = None,
        worded: int = -1,
    ) -> tuple[list[int], list[int]]:
        """Return the ids of the first word in place of the turn, and what follows them.

        What two words have in common at the end is what follows. The turn has a call for each
        message of ``calls``, by default for each that follows it, and the word is in the call at
        place ``worded``.
        """
        prompt = prompt and bool(messages)
        called = messages if calls is None else calls
        rendered = [
            self._render(way, outlined_turn(way, word, called, worded), messages, prompt=prompt)
            for word in _WORDS
        ]
        first, second = rendered

        begin = common_length(first, second)
        end = common_length(first[::-1], second[::-1])
        words = [ids[begin : len(ids) - end] for ids in rendered]
        decoded = tuple(self._tokenizer.decode(ids).strip() for ids in words)
        if begin + end > min(len(first), len(second)) or decoded != _WORDS:
            raise TemplateError(
                "what it writes after an assistant turn depends on the content of that turn"
            )
        return words[0], first[len(first) - end :]

    def _render(
        self, way: Way, turn: dict[str, Any], messages: Messages, *, prompt: bool
    ) -> list[int]:
        if way.base is None:
            base = [_outline(message) for message in self._history]
        else:
            base = BASES[way.base]
        if not base:
            raise TemplateError("there is no conversation before it")
        replies = [_renamed(message) for message in messages] if way.renamed else messages
        conversation = [*base, turn, *replies]
        return self._tokenizer.apply_chat_template(
            conversation, self._tools, add_generation_prompt=prompt
        )

    def _is_special(self, number: int) -> bool:
        return not self._tokenizer.decode([number], skip_special_tokens=True)


def outlined_turn(way: Way, word: str, messages: Messages, worded: int = -1) -> dict[str, Any]:
    """Return an assistant turn with a word, in a call if the way says so.

    It calls a tool for each of the messages, and the word is in the call at place ``worded``.
    """
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
            "name": reply.get("name") or UNNAMED,
            "arguments": json.dumps(given) if way.as_text else given,
        }
        identity = reply.get("tool_call_id") or call_id(place)
        calls.append({"id": identity, "type": "function", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _renamed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's reply with an id and a name that every template accepts."""
    if message["role"] != "tool":
        return message
    return {"name": UNNAMED, **message, "tool_call_id": call_id(message.get("tool_call_id"))}


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


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
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
