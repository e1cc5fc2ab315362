"""A policy that solves word problems: it reads the question, writes a program, and reads its output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sfusion.fakes.sglang.keyed_digest import hex_id
from sfusion.fakes.sglang.protocol import Ask, Reply, ToolCall
from sfusion.fakes.sglang.templates import TEMPLATES, Template

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


class Gsm8kSolver:
    """A policy that uses nothing but the text of the question.

    It calls ``code_tool`` with a program, tries again if the result is not a number, passes its answer to
    ``reward_tool`` once if that tool is offered, and ends with ``#### ANSWER``. With ``marks``, each program contains
    ``sfusion:call=ID``, so that a sandbox's ledger can follow it.
    """

    def __init__(
        self,
        *,
        code_tool: str = "code_interpreter",
        reward_tool: str = "calc_gsm8k_reward",
        attempts: int = 3,
        marks: bool = False,
    ) -> None:
        self.code_tool = code_tool
        self.reward_tool = reward_tool
        self.attempts = attempts
        self.marks = marks

    def reply(self, ask: Ask) -> Reply:
        read = _read(ask)
        if read is None:
            return Reply("<think>\nI have not seen a problem like this.\n</think>\n\nI do not know how to solve this.")
        template, name, numbers = read
        answer = self._answer(ask)
        if answer is None:
            return self._program(ask, template, name, numbers)
        closing = f"<think>\n{template.close(name, numbers, answer)}</think>\n\n"
        if self.reward_tool in ask.tool_names and not self._was_called(ask, self.reward_tool):
            return Reply(closing, (ToolCall(self.reward_tool, {"answer": answer}),))
        return Reply(f"{closing}#### {answer}")

    def _program(self, ask: Ask, template: Template, name: str, numbers: Mapping[str, int]) -> Reply:
        if ask.turn == 0:
            thought = template.think(name, numbers)
        elif ask.turn < self.attempts:
            thought = "That is not a number, so the program did not run as it should. I will run it again.\n"
        else:
            return Reply("<think>\nThe tool does not give me a result.\n</think>\n\nI could not run the program.")
        code = template.code(numbers)
        if self.marks:
            code = f"# sfusion:call={template.kind}-{hex_id(10, ask.question, ask.sample)}-{ask.turn}\n{code}"
        call = ToolCall(self.code_tool, {"code": code, **template.extra_arguments})
        return Reply(f"<think>\n{thought}</think>\n\n", (call,))

    def _answer(self, ask: Ask) -> str | None:
        """Return the number that a tool printed last, if any."""
        for message in reversed(ask.messages):
            if message.get("role") == "tool":
                lines = str(message.get("content") or "").strip().splitlines()
                if lines and _NUMBER.fullmatch(lines[-1].strip()):
                    return lines[-1].strip()
        return None

    def _was_called(self, ask: Ask, tool: str) -> bool:
        return any(message.get("role") == "assistant" and tool in _message_text(message) for message in ask.messages)


def _read(ask: Ask) -> tuple[Template, str, dict[str, int]] | None:
    for text in (ask.last_user, ask.question):
        for template in TEMPLATES:
            read = template.read(text)
            if read is not None:
                return template, *read
    return None


def _message_text(message: Mapping[str, Any]) -> str:
    return f"{message.get('content') or ''}{message.get('tool_calls') or ''}"
