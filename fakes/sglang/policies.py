"""Policies decide what the model says.

There are scripted turns, a solver of word problems, and a policy that writes calls wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from sfusion_tools.bounded_input import parse_json, read_bounded
from sfusion_tools.errors import InputError, YamlError, near, refusal
from sfusion_tools.marked_yaml import read_marked

from ..call_mark import mark_for
from ..errors import BadScript, NothingToSay
from ..faults.pattern import Pattern, PatternSearches
from .keyed_digest import Key, digest, draw, hex_id, pick, whole
from .malformed import MalformedText, kinds, malformed
from .problems import TEMPLATES, Template
from .protocol import Ask, Finish, Policy, Reply, ToolCall

_MOST_SCRIPT_BYTES = 1_000_000
"""The largest script in JSON that is read. Chosen: far longer than anybody writes by hand."""
_SHOWN_TEXT = 80
"""How many characters of a text an error shows. Chosen: about a line."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ScriptedTurn:
    """One turn of the assistant and its conditions, all of which must hold.

    ``turn`` is the number of earlier turns of the assistant. ``tool_result`` and ``prompt`` are
    regular expressions, searched in the tool results since the last turn and in the last message of
    the user.
    """

    say: str = ""
    calls: tuple[ToolCall, ...] = ()
    turn: int | None = None
    tool_result: Pattern | None = None
    prompt: Pattern | None = None
    finish: Literal["stop", "length", "tool_calls", "abort"] | None = None

    def why_not(self, ask: Ask, searches: PatternSearches) -> str | None:
        """Return which condition does not hold; None if all do."""
        if self.turn is not None and self.turn != ask.turn:
            return f"it is for turn {self.turn}, but this is turn {ask.turn}"
        if self.tool_result is not None:
            results = "\n".join(ask.tool_results)
            if not ask.tool_results:
                return "it needs a tool result, but there is none"
            if not searches.matches(self.tool_result, results):
                return f"no tool result matches {self.tool_result!r}: {results[:_SHOWN_TEXT]!r}"
        if self.prompt is not None and not searches.matches(self.prompt, ask.last_user):
            found = ask.last_user[:_SHOWN_TEXT]
            return f"the last user message does not match {self.prompt!r}: {found!r}"
        return None

    def reply(self) -> Reply:
        finish = None
        if self.finish is not None:
            finish = Finish.aborted() if self.finish == "abort" else Finish(self.finish)
        return Reply(text=self.say, calls=self.calls, finish=finish)


class ScriptedPolicy:
    """A policy that gives the first of its turns whose conditions hold."""

    def __init__(
        self, turns: Iterable[ScriptedTurn | str], otherwise: ScriptedTurn | str | None = None
    ) -> None:
        """Plain strings are given in their order, one per turn."""
        self._searches = PatternSearches()
        self.turns = tuple(
            ScriptedTurn(say=turn, turn=number) if isinstance(turn, str) else turn
            for number, turn in enumerate(turns)
        )
        if isinstance(otherwise, str):
            otherwise = ScriptedTurn(say=otherwise)
        self.otherwise = otherwise

    def reply(self, ask: Ask) -> Reply:
        reasons: list[str] = []
        for number, turn in enumerate(self.turns):
            reason = turn.why_not(ask, self._searches)
            if reason is None:
                return turn.reply()
            reasons.append(f"turn {number} of the script: {reason}")

        if self.otherwise is not None:
            return self.otherwise.reply()
        why = "; ".join(reasons) or "the script is empty"
        raise NothingToSay(f"No turn of the script matches, and there is no `otherwise`: {why}")

    @classmethod
    def load(cls, path: Path) -> ScriptedPolicy:
        """Read a script from a YAML or JSON file.

        It has ``turns`` (strings or mappings) and optionally ``otherwise``.
        """
        script = _with_mappings(_script_data(path), path)
        try:
            read = TypeAdapter(_Script).validate_python(script)
        except ValidationError as error:
            raise BadScript(f"{path}: {'; '.join(_refusals(error))}") from None
        return cls(read.turns, read.otherwise)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Script:
    """A script as its file has it, with a mapping for every turn."""

    turns: tuple[ScriptedTurn, ...]
    otherwise: ScriptedTurn | None = None


def _script_data(path: Path) -> object:
    """Read the file of a script."""
    try:
        if path.suffix == ".json":
            return parse_json(read_bounded(path, _MOST_SCRIPT_BYTES), str(path))
        return read_marked(path).data
    except (InputError, YamlError) as error:
        raise BadScript(f"{error}; it cannot be read as a script") from error


def _with_mappings(data: object, path: Path) -> dict[str, object]:
    """Return a script as :class:`_Script` has it; a list is its turns, a string is a turn."""
    if isinstance(data, list):
        data = {"turns": data}
    if not isinstance(data, dict) or not isinstance(data.get("turns"), list):
        raise BadScript(
            f"{path}: a script is a list of turns, or a mapping with `turns` and optionally "
            "`otherwise`"
        )

    script = dict(data)
    script["turns"] = [
        {"say": turn, "turn": number} if isinstance(turn, str) else turn
        for number, turn in enumerate(data["turns"])
    ]
    if isinstance(script.get("otherwise"), str):
        script["otherwise"] = {"say": script["otherwise"]}
    return script


def _refusals(error: ValidationError) -> list[str]:
    """Return what is wrong with a script, with near matches among the names at each place."""
    wrong: list[str] = []
    for problem in error.errors():
        is_in_turn = len(problem["loc"]) > 1
        known = ScriptedTurn if is_in_turn else _Script
        wrong.append(refusal(problem, known.__dataclass_fields__))
    return wrong


_REWARD_TOOL = "calc_gsm8k_reward"
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


class Gsm8kSolver:
    """A policy that uses nothing but the text of the question.

    It calls ``code_interpreter`` with a program, tries again if the result is not a number, passes
    its answer to ``calc_gsm8k_reward`` once if that tool is offered, and ends with ``#### ANSWER``.
    With ``marks``, each program contains ``sfusion:call=ID``, so that a sandbox's ledger can follow
    it.
    """

    def __init__(self, *, attempts: int = 3, marks: bool = False) -> None:
        self.attempts = attempts
        self.marks = marks

    def reply(self, ask: Ask) -> Reply:
        read = _read(ask)
        if read is None:
            return Reply(
                "<think>\n"
                "I have not seen a problem like this.\n"
                "</think>\n\n"
                "I do not know how to solve this."
            )

        template, name, numbers = read
        answer = self._answer(ask)
        if answer is None:
            return self._program(ask, template, name, numbers)

        thought = template.fill(template.closing, name, numbers, result=answer)
        closing = f"<think>\n{thought}</think>\n\n"
        if _REWARD_TOOL in ask.tool_names and not _has_called_reward(ask):
            return Reply(closing, (ToolCall(_REWARD_TOOL, {"answer": answer}),))
        return Reply(f"{closing}#### {answer}")

    def _program(
        self, ask: Ask, template: Template, name: str, numbers: Mapping[str, int]
    ) -> Reply:
        """Call the interpreter, until it has been tried often enough."""
        if ask.turn == 0:
            thought = template.fill(template.thought, name, numbers)
        elif ask.turn < self.attempts:
            thought = (
                "That is not a number, so the program did not run as it should. I will run it "
                "again.\n"
            )
        else:
            return Reply(
                "<think>\n"
                "The tool does not give me a result.\n"
                "</think>\n\n"
                "I could not run the program."
            )

        code = template.program(numbers)
        if self.marks:
            code = f"# {mark_for(_call_id(ask, template))}\n{code}"
        call = ToolCall("code_interpreter", {"code": code, **template.extra_arguments})
        return Reply(f"<think>\n{thought}</think>\n\n", (call,))

    def _answer(self, ask: Ask) -> str | None:
        """Return the number that a tool printed last, if any."""
        for message in reversed(ask.messages):
            if message.get("role") == "tool":
                lines = str(message.get("content") or "").strip().splitlines()
                if lines and _NUMBER.fullmatch(lines[-1].strip()):
                    return lines[-1].strip()
        return None


def _has_called_reward(ask: Ask) -> bool:
    """Return whether an earlier turn called the reward tool, or wrote its name."""
    for message in ask.messages:
        if message.get("role") == "assistant":
            said = f"{message.get('content')}{message.get('tool_calls')}"
            if _REWARD_TOOL in said:
                return True
    return False


def _call_id(ask: Ask, template: Template) -> str:
    """Return the id by which a sandbox's ledger knows the call of this turn."""
    keys: list[Key] = [ask.question, ask.sample]
    if ask.sampling.get("sampling_seed") is not None:
        keys.append(ask.seed)  # siblings have the same question
    return f"{template.kind}-{hex_id(10, *keys)}-{ask.turn}"


def _read(ask: Ask) -> tuple[Template, str, dict[str, int]] | None:
    """Return the kind of problem in a conversation, its name and its numbers."""
    for text in (ask.last_user, ask.question):
        for template in TEMPLATES:
            read = template.read(text)
            if read is not None:
                return template, *read
    return None


_THINKING_KINDS = ("call_in_think", "draft_then_call", "unclosed_think", "unclosed_think_alone")
"""Kinds of malformed text that include their own thinking; the others follow the good thinking."""
_MOST_SEED = 2**31
"""Chosen: enough different texts. It must not change, or seeds would give other texts."""


class Misbehaving:
    """A policy that makes the calls of another one malformed.

    At a step, ``rate + slope * step`` of the turns that call a tool are malformed, each in one of
    the ways of the catalogue. Which turns depends on the seed and the conversation: a turn that is
    malformed at one step is malformed at every later one.
    """

    def __init__(
        self,
        inner: Policy | None = None,
        *,
        rate: float = 0.05,
        slope: float = 0.01,
        only: Sequence[str] | None = None,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must be between 0 and 1, found {rate}")
        unknown = sorted(set(only or ()) - set(kinds()))
        if unknown:
            raise ValueError(
                f"there is no kind of malformed text called {unknown[0]!r}: "
                f"{near(unknown[0], kinds())}"
            )
        self.inner = inner or Gsm8kSolver()
        self.rate = rate
        self.slope = slope
        self.kinds = tuple(only or kinds())

    def rate_at(self, step: int) -> float:
        """Return the share of turns that are malformed at a step."""
        return max(0.0, min(1.0, self.rate + self.slope * step))

    def reply(self, ask: Ask) -> Reply:
        good = self.inner.reply(ask)
        if not good.calls:
            return good

        keys: tuple[Key, ...] = (ask.seed, "misbehave", digest(str(ask.messages)), ask.sample)
        # The key stays as it is: it decides which turns of a seed are malformed.
        if draw(*keys, "spoilt") >= self.rate_at(ask.step):
            return good
        bad = self._spoiled(ask.format, keys)
        if bad is None:
            return good

        text = bad.text if bad.kind in _THINKING_KINDS else good.text + bad.text
        finish = None if bad.finish_reason == "stop" else Finish(bad.finish_reason)
        return Reply(text, finish=finish)

    def _spoiled(self, form: str, keys: tuple[Key, ...]) -> MalformedText | None:
        """Draw a malformed text in a format; None if no kind makes sense in it."""
        left = list(self.kinds)
        while left:
            kind = pick(left, *keys, "kind", len(left))
            bad = malformed(kind, form, whole(0, _MOST_SEED, *keys, "text"))
            if bad is not None:
                return bad
            left.remove(kind)  # the kind makes no sense in this format
        return None
