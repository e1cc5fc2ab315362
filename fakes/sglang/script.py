"""Scripted turns: what is said when, matched by turn, by the last tool result, or by the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from sfusion.fakes.errors import BadScript, NothingToSay
from sfusion.fakes.sglang.protocol import Ask, Finish, Reply, ToolCall


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One thing to say, and when: every condition that is given must hold.

    ``turn`` counts what the assistant said before. ``tool_result`` and ``prompt`` are regular expressions, searched in
    the tool results since then and in what the user said last.
    """

    say: str = ""
    calls: tuple[ToolCall, ...] = ()
    turn: int | None = None
    tool_result: str | None = None
    prompt: str | None = None
    finish: str | None = None

    def why_not(self, ask: Ask) -> str | None:
        """What does not fit; None when all does."""
        if self.turn is not None and self.turn != ask.turn:
            return f"it is for turn {self.turn}, and this is turn {ask.turn}"
        if self.tool_result is not None:
            results = "\n".join(ask.tool_results)
            if not ask.tool_results:
                return "it waits for a tool result, and there is none"
            if not re.search(self.tool_result, results):
                return f"no tool result matches {self.tool_result!r}: {results[:80]!r}"
        if self.prompt is not None and not re.search(self.prompt, ask.last_user):
            return f"what the user said does not match {self.prompt!r}: {ask.last_user[:80]!r}"
        return None

    def reply(self) -> Reply:
        """What is said."""
        finish = None
        if self.finish is not None:
            finish = Finish.aborted() if self.finish == "abort" else Finish(self.finish)
        return Reply(text=self.say, calls=self.calls, finish=finish)


class ScriptedPolicy:
    """A policy that says the first of its turns that fits."""

    def __init__(self, turns: Iterable[ScriptedTurn | str], otherwise: ScriptedTurn | str | None = None) -> None:
        """Plain strings are said in their order, one a turn."""
        given = list(turns)
        self.turns = tuple(
            ScriptedTurn(say=turn, turn=number) if isinstance(turn, str) else turn for number, turn in enumerate(given)
        )
        self.otherwise = ScriptedTurn(say=otherwise) if isinstance(otherwise, str) else otherwise

    def reply(self, ask: Ask) -> Reply:
        """The first turn that fits, or ``otherwise``."""
        reasons: list[str] = []
        for number, turn in enumerate(self.turns):
            reason = turn.why_not(ask)
            if reason is None:
                return turn.reply()
            reasons.append(f"turn {number} of the script: {reason}")
        if self.otherwise is not None:
            return self.otherwise.reply()
        told = "; ".join(reasons) or "the script is empty"
        raise NothingToSay(f"The script has nothing to say here, and no `otherwise`. {told}")

    @classmethod
    def load(cls, path: Path) -> ScriptedPolicy:
        """Read a script from YAML or JSON: ``turns`` (strings or mappings) and perhaps ``otherwise``."""
        try:
            text = path.read_text(encoding="utf-8")
            data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise BadScript(f"{path}: cannot be read as a script: {error}") from error
        if isinstance(data, list):
            data = {"turns": data}
        if not isinstance(data, dict) or not isinstance(data.get("turns"), list):
            raise BadScript(f"{path}: a script is a list of turns, or a mapping with `turns` and perhaps `otherwise`")
        unknown = sorted(set(data) - {"turns", "otherwise"})
        if unknown:
            raise BadScript(f"{path}: unknown key {unknown[0]!r}; a script has `turns` and `otherwise`")
        turns = [_turn(turn, f"{path}: turn {number}") for number, turn in enumerate(data["turns"])]
        otherwise = data.get("otherwise")
        return cls(turns, None if otherwise is None else _turn(otherwise, f"{path}: otherwise"))


def _turn(given: Any, where: str) -> ScriptedTurn | str:
    if isinstance(given, str):
        return given
    if not isinstance(given, Mapping):
        raise BadScript(f"{where}: a turn is a text or a mapping, not {type(given).__name__}")
    known = {field.name for field in fields(ScriptedTurn)}
    for key in given:
        if key not in known:
            raise BadScript(f"{where}: unknown key {key!r}; known are {', '.join(sorted(known))}")
    calls = tuple(_call(call, where) for call in _listed(given.get("calls"), where))
    turn = given.get("turn")
    if turn is not None and not isinstance(turn, int):
        raise BadScript(f"{where}: `turn` is a whole number, not {turn!r}")
    texts: dict[str, Any] = {}
    for key in ("say", "tool_result", "prompt", "finish"):
        if (value := given.get(key)) is not None:
            if not isinstance(value, str):
                raise BadScript(f"{where}: `{key}` is a text, not {value!r}")
            texts[key] = value
    for key in ("tool_result", "prompt"):
        try:
            re.compile(texts.get(key, ""))
        except re.error as error:
            raise BadScript(f"{where}: `{key}` is no regular expression: {error}") from error
    if texts.get("finish") not in (None, "stop", "length", "tool_calls", "abort"):
        raise BadScript(f"{where}: `finish` is stop, length, tool_calls or abort, not {texts['finish']!r}")
    return ScriptedTurn(calls=calls, turn=turn, **texts)


def _listed(value: Any, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadScript(f"{where}: `calls` is a list of {{name, arguments}}, not {type(value).__name__}")
    return value


def _call(given: Any, where: str) -> ToolCall:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise BadScript(f"{where}: a call has a `name` and `arguments`")
    arguments = given.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise BadScript(f"{where}: `arguments` of {given['name']!r} is a mapping, not {arguments!r}")
    return ToolCall(given["name"], dict(arguments))
