"""Scripted turns, matched by turn number, by the last tool result, or by the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sfusion.fakes.errors import BadScript, NothingToSay
from sfusion.fakes.faults.pattern import check_pattern, matches
from sfusion.fakes.sglang.protocol import Ask, Finish, Reply, ToolCall
from sfusion_tools.bounded_input import parse_json, read_bounded
from sfusion_tools.errors import InputError, YamlError, near
from sfusion_tools.marked_yaml import read_marked


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One turn of the assistant and its conditions, all of which must hold.

    ``turn`` is the number of earlier turns of the assistant. ``tool_result`` and ``prompt`` are regular expressions,
    searched in the tool results since the last turn and in the last message of the user.
    """

    say: str = ""
    calls: tuple[ToolCall, ...] = ()
    turn: int | None = None
    tool_result: str | None = None
    prompt: str | None = None
    finish: str | None = None

    def why_not(self, ask: Ask) -> str | None:
        """Return which condition does not hold; None if all do."""
        if self.turn is not None and self.turn != ask.turn:
            return f"it is for turn {self.turn}, but this is turn {ask.turn}"
        if self.tool_result is not None:
            results = "\n".join(ask.tool_results)
            if not ask.tool_results:
                return "it needs a tool result, but there is none"
            if not matches(self.tool_result, results):
                return f"no tool result matches {self.tool_result!r}: {results[:80]!r}"
        if self.prompt is not None and not matches(self.prompt, ask.last_user):
            return f"the last user message does not match {self.prompt!r}: {ask.last_user[:80]!r}"
        return None

    def reply(self) -> Reply:
        finish = None
        if self.finish is not None:
            finish = Finish.aborted() if self.finish == "abort" else Finish(self.finish)
        return Reply(text=self.say, calls=self.calls, finish=finish)


class ScriptedPolicy:
    """A policy that gives the first of its turns whose conditions hold."""

    def __init__(self, turns: Iterable[ScriptedTurn | str], otherwise: ScriptedTurn | str | None = None) -> None:
        """Plain strings are given in their order, one per turn."""
        given = list(turns)
        self.turns = tuple(
            ScriptedTurn(say=turn, turn=number) if isinstance(turn, str) else turn for number, turn in enumerate(given)
        )
        self.otherwise = ScriptedTurn(say=otherwise) if isinstance(otherwise, str) else otherwise

    def reply(self, ask: Ask) -> Reply:
        reasons: list[str] = []
        for number, turn in enumerate(self.turns):
            reason = turn.why_not(ask)
            if reason is None:
                return turn.reply()
            reasons.append(f"turn {number} of the script: {reason}")
        if self.otherwise is not None:
            return self.otherwise.reply()
        why = "; ".join(reasons) or "the script is empty"
        raise NothingToSay(f"No turn of the script matches, and there is no `otherwise`: {why}")

    @classmethod
    def load(cls, path: Path) -> ScriptedPolicy:
        """Read a script from YAML or JSON: ``turns`` (strings or mappings) and optionally ``otherwise``."""
        try:
            data = (
                parse_json(read_bounded(path, 1_000_000), str(path))
                if path.suffix == ".json"
                else read_marked(path).data
            )
        except (InputError, YamlError) as error:
            raise BadScript(f"{error}; it cannot be read as a script") from error
        if isinstance(data, list):
            data = {"turns": data}
        if not isinstance(data, dict) or not isinstance(data.get("turns"), list):
            raise BadScript(
                f"{path}: a script is a list of turns, or a mapping with `turns` and optionally `otherwise`"
            )
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
        raise BadScript(f"{where}: a turn must be a string or a mapping, not {type(given).__name__}")
    known = {field.name for field in fields(ScriptedTurn)}
    for key in given:
        if key not in known:
            raise BadScript(f"{where}: unknown key {key!r}: {near(str(key), known)}")
    calls = tuple(_call(call, where) for call in _listed(given.get("calls"), where))
    turn = given.get("turn")
    if turn is not None and not isinstance(turn, int):
        raise BadScript(f"{where}: `turn` must be an integer, not {turn!r}")
    texts: dict[str, Any] = {}
    for key in ("say", "tool_result", "prompt", "finish"):
        if (value := given.get(key)) is not None:
            if not isinstance(value, str):
                raise BadScript(f"{where}: `{key}` must be a string, not {value!r}")
            texts[key] = value
    for key in ("tool_result", "prompt"):
        try:
            check_pattern(texts.get(key, ""))
        except ValueError as error:
            raise BadScript(f"{where}: `{key}`: {error}") from error
    if texts.get("finish") not in (None, "stop", "length", "tool_calls", "abort"):
        raise BadScript(f"{where}: `finish` must be stop, length, tool_calls or abort, not {texts['finish']!r}")
    return ScriptedTurn(calls=calls, turn=turn, **texts)


def _listed(value: Any, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadScript(f"{where}: `calls` must be a list of {{name, arguments}}, not {type(value).__name__}")
    return value


def _call(given: Any, where: str) -> ToolCall:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise BadScript(f"{where}: a call must have a `name` and `arguments`")
    arguments = given.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise BadScript(f"{where}: `arguments` of {given['name']!r} must be a mapping, not {arguments!r}")
    return ToolCall(given["name"], dict(arguments))
