"""Small engines and tools for the rollout's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.formats import get_format
from sfusion_tools.rollout import AsyncRolloutRequest
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from sfusion_tools.tokenizers import ByteTokenizer

TOKENIZER = ByteTokenizer()


def schema(name: str = "code_interpreter") -> OpenAIFunctionToolSchema:
    """A tool that takes code."""
    return OpenAIFunctionToolSchema.model_validate(
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "A tool for executing code.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "code": {"type": "string", "description": "The code to execute."}
                    },
                    "required": ["code"],
                },
            },
        }
    )


def calling(*codes: str, name: str = "code_interpreter") -> str:
    """Return the text of a turn that calls a tool once for each program."""
    return get_format("hermes").render(
        [{"name": name, "arguments": {"code": code}} for code in codes]
    )


def request(question: str = "How many?", **options: Any) -> AsyncRolloutRequest:
    """Make a pending request with one tool."""
    options.setdefault("tool_schemas", [schema()])
    return AsyncRolloutRequest(messages=[{"role": "user", "content": question}], **options)


class ScriptedEngine:
    """Generates its lines in order, starting with the first for each request."""

    def __init__(self, *lines: str | Exception) -> None:
        self.lines = lines
        self.asked: list[dict[str, Any]] = []

    async def async_generate(
        self, *, input_ids: list[int], sampling_params: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the line of the turn that the prompt has reached."""
        self.asked.append({"input_ids": input_ids, **sampling_params})
        await asyncio.sleep(0)
        turn = TOKENIZER.decode(input_ids).count("<|im_start|>assistant\n") - 1
        line = self.lines[turn]
        if isinstance(line, Exception):
            raise line
        ids = [*TOKENIZER.encode(line), TOKENIZER.eos_token_id]
        limit = sampling_params["max_new_tokens"]
        if limit is not None and len(ids) > limit:
            return {
                "output_ids": ids[:limit],
                "meta_info": {"finish_reason": {"type": "length", "length": limit}},
            }
        return {
            "output_ids": ids,
            "meta_info": {"finish_reason": {"type": "stop", "matched": ids[-1]}},
        }


class RecordingTool(BaseTool):
    """Records its calls and gives prepared answers."""

    def __init__(
        self,
        answer: Callable[[str], Any] = lambda code: (
            ToolResponse(text=code),
            1.0,
            {"outcome": "ok"},
        ),
        **kw: Any,
    ) -> None:
        super().__init__({}, schema(kw.get("name", "code_interpreter")))
        self.answer = answer
        self.created: dict[str, dict[str, Any]] = {}
        self.released: list[str] = []
        self.running = 0
        self.peak = 0
        self.together: asyncio.Event | None = None
        self.expected = 0
        self.busy, self.busy_at = asyncio.Event(), 1

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        assert instance_id is not None
        self.created[instance_id] = kwargs
        return instance_id, ToolResponse()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        """Answer once the expected number of calls run concurrently."""
        assert instance_id in self.created
        self.enter()
        try:
            if self.together is not None:
                if self.running >= self.expected:
                    self.together.set()
                await self.together.wait()
            return self.answer(parameters["code"])
        finally:
            self.running -= 1

    def enter(self) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)
        if self.running >= self.busy_at:
            self.busy.set()

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Drop the instance after yielding once, as a real tool would."""
        await asyncio.sleep(0)
        self.released.append(instance_id)

    @property
    def open_instances(self) -> list[str]:
        """The instances that were created but not released."""
        return sorted(set(self.created) - set(self.released))


def roles(messages: Sequence[Any]) -> list[str]:
    return [message.role for message in messages]
