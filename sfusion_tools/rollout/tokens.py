"""The token rows of a trajectory, and the tokens that a chat template adds when the conversation continues.

Templates render a turn differently when it is the last one (Qwen3 adds its thinking), so the turn that was generated is
never compared with a rendered one. Instead a short conversation is rendered twice, with two different words in place of
that turn: what follows the word is the same in both, and it is what the template writes after any assistant turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress, count, product
from operator import ne
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from sfusion_tools.tokenizers import Tokenizer

_WORDS = ("ONE", "TWO")
"""Stand for the assistant's turn. Neither their first nor their last letters are equal."""
_NOBODY = "unknown"
_QUESTION = {"role": "user", "content": "?"}
_BASES = ([_QUESTION], [{"role": "system", "content": "!"}, _QUESTION])
"""Some templates refuse a system message, others insist on one."""


@dataclass
class TokenRows:
    """Ids with one loss mark each; all other rows that a trainer needs are derived from them."""

    ids: list[int]
    loss_mask: list[int]
    prompt_len: int

    def append(self, ids: Sequence[int], *, trained: bool) -> None:
        """Add tokens to the response: trained on (the assistant's own) or not (all others)."""
        self.ids += ids
        self.loss_mask += [int(trained)] * len(ids)

    def cut(self, length: int) -> int:
        """Drop the tokens after the first ``length``, never of the prompt; return how many were dropped."""
        keep = max(length, self.prompt_len)
        dropped = max(len(self.ids) - keep, 0)
        del self.ids[keep:]
        del self.loss_mask[keep:]
        return dropped

    @property
    def response_len(self) -> int:
        return len(self.ids) - self.prompt_len


class TokenViews:
    """The rows a trainer reads: each as a whole, and as prompt and response."""

    _rows: TokenRows

    @property
    def input_ids(self) -> list[int]:
        return list(self._rows.ids)

    @property
    def attention_mask(self) -> list[int]:
        """1 for every token; padding is up to the trainer."""
        return [1] * len(self._rows.ids)

    @property
    def position_ids(self) -> list[int]:
        return list(range(len(self._rows.ids)))

    @property
    def loss_mask(self) -> list[int]:
        """1 for what the assistant generated; 0 for the prompt, tools, users and the tokens of the template."""
        return list(self._rows.loss_mask)

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt, including the generation prompt."""
        return self._rows.ids[: self._rows.prompt_len]

    @property
    def prompt_attention_mask(self) -> list[int]:
        return self.attention_mask[: self._rows.prompt_len]

    @property
    def prompt_position_ids(self) -> list[int]:
        return self.position_ids[: self._rows.prompt_len]

    @property
    def prompt_loss_mask(self) -> list[int]:
        return self._rows.loss_mask[: self._rows.prompt_len]

    @property
    def response_ids(self) -> list[int]:
        """Everything after the prompt."""
        return self._rows.ids[self._rows.prompt_len :]

    @property
    def response_attention_mask(self) -> list[int]:
        return self.attention_mask[self._rows.prompt_len :]

    @property
    def response_position_ids(self) -> list[int]:
        """Position ids of the response; they continue those of the prompt."""
        return self.position_ids[self._rows.prompt_len :]

    @property
    def response_loss_mask(self) -> list[int]:
        return self._rows.loss_mask[self._rows.prompt_len :]


def call_id(*parts: object) -> str:
    """Return an id of nine letters and digits, the only form that the templates of Mistral accept."""
    return blake2b(repr(parts).encode(), digest_size=5).hexdigest()[:9]


def continuation(
    tokenizer: Tokenizer,
    messages: Sequence[dict[str, Any]],
    *,
    last: int | None,
    tools: Sequence[OpenAIFunctionToolSchema] = (),
    add_generation_prompt: bool = True,
) -> list[int]:
    """Encode messages, and the next generation prompt, as they follow an assistant turn that ended with token ``last``.

    The token that ends a turn is left out if the engine generated it, and so is one that ends a turn and begins the
    next message, such as GLM's ``<|observation|>``.
    """
    reasons: list[str] = []
    for base, (with_calls, groups) in product(_BASES, _ways(messages)):
        try:
            return _Renderer(tokenizer, tools, base).after(with_calls, groups, last, add_generation_prompt)
        except Exception as error:  # whatever a template raises
            reasons.append(str(error))
    name = getattr(tokenizer, "name", type(tokenizer).__name__)
    role = messages[0]["role"]
    raise TemplateError(
        f"the chat template of {name} cannot be used for several turns: the tokens of a {role} message cannot be "
        f"separated from those of the turns before it ({'; '.join(dict.fromkeys(reasons))})"
    )


_Groups = list[list[dict[str, Any]]]


def _ways(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[bool, _Groups]]:
    """Yield how to try it: whether the turn must have calls, and the messages, in groups that are rendered together."""
    yield False, [list(messages)]
    if not any("tool_call_id" in message for message in messages):
        return
    # The model may have chosen ids that its own template refuses, and a broken call may have no name.
    renamed = [
        {"name": _NOBODY, **message, "tool_call_id": call_id(message.get("tool_call_id"))} for message in messages
    ]
    yield False, [renamed]
    for spelt in (list(messages), renamed):
        yield True, [spelt]
        # gpt-oss knows one call per turn and takes the name of the tool from it.
        yield True, [[message] for message in spelt]


class _Renderer:
    def __init__(
        self, tokenizer: Tokenizer, tools: Sequence[OpenAIFunctionToolSchema], base: Sequence[dict[str, Any]]
    ) -> None:
        self._tokenizer = tokenizer
        self._tools = list(tools) or None
        self._base = base

    def after(self, with_calls: bool, groups: _Groups, last: int | None, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for number, group in enumerate(groups, start=1):
            prompted = add_generation_prompt and number == len(groups)
            rest = self.rest(with_calls, group, prompted)
            if not self._shows(rest, group) and all(
                rest == self.rest(with_calls, _saying(word, group), prompted) for word in _WORDS
            ):
                # Some templates leave out roles that they do not know.
                raise ValueError(f"it leaves out the content of {group[0]['role']} messages")
            ids += self._open(rest, last if number == 1 else rest[0], group, with_calls)
        return ids

    def _shows(self, rest: list[int], group: list[dict[str, Any]]) -> bool:
        """Is the content of every message there as it is? Most often, which spares a second rendering."""
        text, contents = self._tokenizer.decode(rest), [message.get("content") for message in group]
        return all(isinstance(one, str) and len(one) > 1 and one in text for one in contents)

    def rest(self, with_calls: bool, messages: list[dict[str, Any]], add_generation_prompt: bool) -> list[int]:
        """Return what follows an assistant turn."""
        one, two = (
            self._tokenizer.apply_chat_template(
                [*self._base, _turn(word, messages, with_calls), *messages],
                self._tools,
                add_generation_prompt=add_generation_prompt,
            )
            for word in _WORDS
        )
        end = _equal(one[::-1], two[::-1])
        begin = _equal(one, two)
        decode = self._tokenizer.decode
        words = tuple(decode(ids[begin : len(ids) - end]).strip() for ids in (one, two))
        if begin + end > min(len(one), len(two)) or words != _WORDS:
            raise ValueError("what it writes after an assistant turn depends on the content of that turn")
        rest = one[len(one) - end :]
        if with_calls:
            # The call's own closing brackets and tags come first.
            rest = rest[next((at for at, number in enumerate(rest) if self._is_special(number)), 0) :]
        if not rest:
            raise ValueError("it writes nothing after an assistant turn")
        return rest

    def _open(self, rest: list[int], last: int | None, messages: list[dict[str, Any]], with_calls: bool) -> list[int]:
        """Leave out the token that ends the turn if there is one already."""
        if last == rest[0]:
            return rest[1:]
        if last is None or not self._is_special(last) or not self._is_special(rest[0]):
            return rest
        # The model ended its turn with another token, such as <|eom_id|> for <|eot_id|>.
        role = "user" if messages[0]["role"] == "tool" else "tool"
        try:
            other = self.rest(False, [{"role": role, "content": "!", "tool_call_id": call_id()}], True)
        except Exception:
            return rest[1:]
        # A token that only comes before messages of one role begins that message.
        return rest[1:] if with_calls or other[0] == rest[0] else rest

    def _is_special(self, number: int) -> bool:
        return not self._tokenizer.decode([number], skip_special_tokens=True)


def _turn(word: str, messages: Sequence[dict[str, Any]], with_calls: bool) -> dict[str, Any]:
    if not with_calls:
        return {"role": "assistant", "content": word}
    calls = [
        {
            "id": message.get("tool_call_id"),
            "type": "function",
            # Only the last has the word, so that it is there once, if the template renders more than the first.
            "function": {
                "name": message.get("name", _NOBODY),
                "arguments": {"word": word if message is messages[-1] else "-"},
            },
        }
        for message in messages
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _saying(word: str, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    role = messages[0]["role"]
    return [{**message, "content": word} if message["role"] == role else message for message in messages]


def _equal(one: Sequence[int], two: Sequence[int]) -> int:
    """Return how many ids at the beginning are the same."""
    return next(compress(count(), map(ne, one, two)), min(len(one), len(two)))
