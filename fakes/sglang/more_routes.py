"""Routes beside generation that trainers and tools call: what a client needs of each, and a 501 for
the others.

verl's adapter releases and resumes memory and updates weights. The fake has neither and only keeps
account: the version of the weights changes, and generating without memory is refused, as it would
fail on the real engine.
"""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, ConfigDict

from sfusion_tools.errors import TemplateError

from ..errors import EngineRefused
from ..wire.app import Handler, Request
from ..wire.message import Answer
from .completions import error_answer
from .engine import FakeSGLang
from .reasoning import Reasoning, reasoning_parser
from .schema import Tool
from .validation import read_body

_UPDATES = ("from_disk", "from_tensor", "from_distributed", "from_ipc")
_GROUPS = ("init_weights_update_group", "destroy_weights_update_group")
_ABSENT = (
    *("/classify", "/encode", "/v1/classify", "/v1/embeddings", "/v1/rerank", "/v1/score"),
    *(
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/open_session",
        "/close_session",
    ),
    *(
        "/load_lora_adapter",
        "/unload_lora_adapter",
        "/get_weights_by_name",
        "/weights_checker",
        "/start_profile",
    ),
)


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Occupation(_Open):
    tags: list[str] | None = None


class _Weights(_Open):
    weight_version: str | None = None


class _Tokenize(_Open):
    prompt: str | list[str] | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[Tool] | None = None


class _Detokenize(_Open):
    tokens: list[int] | list[list[int]]
    skip_special_tokens: bool = True


class _SeparateReasoning(_Open):
    text: str
    reasoning_parser: str


class MoreHandlers:
    """One method for each kind of route."""

    def __init__(self, engine: FakeSGLang) -> None:
        self._engine = engine
        self._released: set[str] = set()
        updates = [f"/update_weights_{how}" for how in _UPDATES] + [f"/{name}" for name in _GROUPS]
        self.table: dict[str, dict[str, Handler]] = {
            "/release_memory_occupation": {"GET": self.release, "POST": self.release},
            "/resume_memory_occupation": {"GET": self.resume, "POST": self.resume},
            "/tokenize": {"POST": self.tokenize},
            "/v1/tokenize": {"POST": self.tokenize},
            "/detokenize": {"POST": self.detokenize},
            "/v1/detokenize": {"POST": self.detokenize},
            "/get_load": {"GET": self.load},
            "/metrics": {"GET": self.metrics},
            "/separate_reasoning": {"POST": self.separate_reasoning},
            **{path: {"POST": self.update} for path in updates},
            **{
                path: {"GET": self.absent, "POST": self.absent, "PUT": self.absent}
                for path in _ABSENT
            },
        }

    def check_memory(self) -> None:
        if self._released:
            raise EngineRefused(
                f"The memory of {', '.join(sorted(self._released))} was released; resume it first.",
                503,
            )

    async def release(self, request: Request) -> Answer:
        self._released |= self._tags(request)
        return Answer.json(None)

    async def resume(self, request: Request) -> Answer:
        self._released -= self._tags(request)
        return Answer.json(None)

    def _tags(self, request: Request) -> set[str]:
        return set(
            (read_body(_Occupation, request).tags if request.body else None)
            or ("kv_cache", "weights")
        )

    async def update(self, request: Request) -> Answer:
        body = read_body(_Weights, request)
        answer: dict[str, Any] = {"success": True, "message": "Succeeded to update model weights."}
        if request.path.endswith("group"):
            answer["message"] = "Succeeded."
        elif body.weight_version is not None:
            self._engine.weight_version = body.weight_version
        if request.path.endswith("from_disk"):
            answer["num_paused_requests"] = 0
        return Answer.json(answer)

    async def tokenize(self, request: Request) -> Answer:
        body = read_body(_Tokenize, request)
        tokenizer = self._engine.tokenizer
        if body.messages is not None:
            tools = [tool.model_dump() for tool in body.tools] if body.tools else None
            try:
                ids = tokenizer.apply_chat_template(
                    body.messages, tools, add_generation_prompt=True
                )
            except TemplateError as error:
                return error_answer(str(error))
            return self._tokens(ids, len(ids))
        if body.prompt is None:
            return error_answer("Either prompt or messages is required.")
        if isinstance(body.prompt, str):
            ids = tokenizer.encode(body.prompt)
            return self._tokens(ids, len(ids))
        rows = [tokenizer.encode(text) for text in body.prompt]
        return self._tokens(rows, list(map(len, rows)))

    def _tokens(self, tokens: Any, count: Any) -> Answer:
        return Answer.json(
            {"tokens": tokens, "count": count, "max_model_len": self._engine.context_length}
        )

    async def detokenize(self, request: Request) -> Answer:
        body = read_body(_Detokenize, request)
        rows: Any = (
            body.tokens if body.tokens and isinstance(body.tokens[0], list) else [body.tokens]
        )
        try:
            texts = [
                self._engine.tokenizer.decode(row, skip_special_tokens=body.skip_special_tokens)
                for row in rows
            ]
        except ValueError as error:
            return error_answer(str(error))
        return Answer.json({"text": texts if rows is body.tokens else texts[0]})

    async def load(self, request: Request) -> Answer:
        now = self._engine.snapshot()
        tokens = now.prompt_tokens + now.completion_tokens if now.running else 0
        counts = {"num_reqs": now.running + now.waiting, "num_waiting_reqs": now.waiting}
        return Answer.json(
            [{"dp_rank": 0, **counts, "num_tokens": tokens, "ts_tic": time.perf_counter()}]
        )

    async def metrics(self, request: Request) -> Answer:
        now = self._engine.snapshot()
        values = (
            ("num_running_reqs", "gauge", now.running),
            ("num_queue_reqs", "gauge", now.waiting),
            ("prompt_tokens_total", "counter", now.prompt_tokens),
            ("generation_tokens_total", "counter", now.completion_tokens),
            ("num_requests_total", "counter", now.finished),
        )
        lines = [
            f"# TYPE sglang:{name} {kind}\nsglang:{name} {value}.0\n"
            for name, kind, value in values
        ]
        return Answer.text("".join(lines))

    async def separate_reasoning(self, request: Request) -> Answer:
        body = read_body(_SeparateReasoning, request)
        try:
            parser = reasoning_parser(body.reasoning_parser)
        except ValueError as error:
            return error_answer(str(error))
        if not isinstance(parser, Reasoning):
            return await self.absent(request)
        thought, text = parser.whole(body.text, parser.begins_inside(None))
        return Answer.json({"reasoning_text": thought, "text": text})

    async def absent(self, request: Request) -> Answer:
        message = (
            f"{request.path} is a route of sglang that this fake does not have; it "
            "generates and calls tools."
        )
        return error_answer(message, "NotImplementedError", 501)
