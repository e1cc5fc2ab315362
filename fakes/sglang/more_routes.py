"""Routes beside generation that trainers and tools call.

They do what a client needs of them; routes that this fake does not have answer with 501. verl's
adapter releases and resumes memory and updates weights. The fake has neither and only keeps
account: the version of the weights changes, and generating without memory is refused, as it would
fail on the real engine.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from sfusion_tools._version import __version__
from sfusion_tools.errors import TemplateError

from ..errors import EngineRefused
from ..wire.app import Handler, Refused, Request
from ..wire.message import Answer
from .completions import error_answer
from .engine import FakeSGLang
from .reasoning import Reasoning, reasoning_parser
from .schema import Tool
from .validation import read_body

_UPDATES = (
    "/update_weights_from_disk",
    "/update_weights_from_tensor",
    "/update_weights_from_distributed",
    "/update_weights_from_ipc",
    "/post_process_weights",
    "/init_weights_update_group",
    "/destroy_weights_update_group",
)
_ABSENT = (
    "/generate_from_file",
    "/classify",
    "/encode",
    "/v1/classify",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/open_session",
    "/close_session",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/get_weights_by_name",
    "/weights_checker",
    "/load_lora_adapter_from_tensors",
    "/init_weights_send_group_for_remote_instance",
    "/send_weights_to_remote_instance",
    "/remote_instance_transfer_engine_info",
    "/get_remote_instance_transfer_engine_info",
    "/parallelism_config",
    "/start_expert_distribution_record",
    "/stop_expert_distribution_record",
    "/dump_expert_distribution_record",
    "/configure_logging",
    "/set_trace_level",
    "/slow_down",
    "/clear_hicache_storage_backend",
    "/hicache/storage-backend",
    "/hicache/storage-backend/clear",
    "/v1/audio/transcriptions",
    "/vertex_generate",
    "/invocations",
    "/api/chat",
    "/api/generate",
    "/api/tags",
    "/api/show",
)
ONE_RESPONSE = re.compile(r"/v1/responses/[^/]+(/cancel)?")
"""The routes about one response, which the fake does not have either."""
_SAID = {
    "/start_profile": "Start profiling.\n",
    "/stop_profile": "Stop profiling. This will take some time.\n",
    "/freeze_gc": "Garbage collection frozen.\n",
}
"""What routes answer that change nothing in a fake."""
_MEMORY_TAGS = ("kv_cache", "weights", "cuda_graph")
"""The kinds of memory; without tags, a request releases or resumes all of them."""


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Occupation(_Open):
    tags: list[str] | None = None


class _Weights(_Open):
    weight_version: str | None = None


class _NewVersion(_Open):
    new_version: str
    abort_all_requests: bool = True


class _InternalState(_Open):
    server_args: dict[str, Any]


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
        self.table: dict[str, dict[str, Handler]] = {
            "/release_memory_occupation": {"GET": self.release, "POST": self.release},
            "/resume_memory_occupation": {"GET": self.resume, "POST": self.resume},
            "/tokenize": {"POST": self.tokenize},
            "/v1/tokenize": {"POST": self.tokenize},
            "/detokenize": {"POST": self.detokenize},
            "/v1/detokenize": {"POST": self.detokenize},
            "/get_load": {"GET": self.load},
            "/v1/loads": {"GET": self.loads},
            "/weight_version": {"GET": self.weight_version},
            "/get_weight_version": {"GET": self.weight_version},
            "/update_weight_version": {"POST": self.update_version},
            "/set_internal_state": {"POST": self.set_state, "PUT": self.set_state},
            "/metrics": {"GET": self.metrics},
            "/separate_reasoning": {"POST": self.separate_reasoning},
        }
        for path in _UPDATES:
            self.table[path] = {"POST": self.update}
        for path in _SAID:
            self.table[path] = {"GET": self.say, "POST": self.say}
        for path in _ABSENT:
            self.table[path] = dict.fromkeys(("DELETE", "GET", "POST", "PUT"), self.absent)

    def check_memory(self) -> None:
        """Refuse to generate while memory is released."""
        if self._released:
            released = ", ".join(sorted(self._released))
            message = f"The memory of {released} was released; resume it first."
            raise EngineRefused(message, 503)

    async def release(self, request: Request) -> Answer:
        self._released |= self._tags(request)
        return Answer.json(None)

    async def resume(self, request: Request) -> Answer:
        self._released -= self._tags(request)
        return Answer.json(None)

    def _tags(self, request: Request) -> set[str]:
        """Return what a request wants to release or resume."""
        tags = read_body(_Occupation, request).tags if request.body else None
        for tag in tags or ():
            if tag not in _MEMORY_TAGS:
                known = ", ".join(_MEMORY_TAGS)
                raise Refused(error_answer(f"There is no memory tag {tag!r}; known: {known}"))
        return set(tags or _MEMORY_TAGS)

    async def update(self, request: Request) -> Answer:
        """Note the version of new weights; the weights themselves are ignored."""
        body = read_body(_Weights, request)
        is_about_group = request.path.endswith("group")
        if not is_about_group and body.weight_version is not None:
            self._engine.weight_version = body.weight_version

        message = "Succeeded." if is_about_group else "Succeeded to update model weights."
        answer: dict[str, Any] = {"success": True, "message": message}
        if request.path.endswith("from_disk"):
            answer["num_paused_requests"] = 0
        return Answer.json(answer)

    async def weight_version(self, request: Request) -> Answer:
        """Return the version; the newest sglang refers to ``/model_info`` instead."""
        return Answer.json({"weight_version": self._engine.weight_version})

    async def update_version(self, request: Request) -> Answer:
        """Set the version of the weights, which aborts what runs unless the request says no."""
        body = read_body(_NewVersion, request)
        if body.abort_all_requests:
            self._engine.abort_request("", True)
        self._engine.weight_version = body.new_version
        message = f"Weight version updated to {body.new_version}"
        return Answer.json({"success": True, "message": message, "new_version": body.new_version})

    async def set_state(self, request: Request) -> Answer:
        """Accept arguments of the server, which have no meaning for a fake."""
        body = read_body(_InternalState, request)
        return Answer.json([{"updated": True, "server_args": body.server_args}])

    async def say(self, request: Request) -> Answer:
        return Answer(body=_SAID[request.path].encode(), content_type=None)

    async def tokenize(self, request: Request) -> Answer:
        """Return the tokens of a text, of several texts, or of a conversation."""
        body = read_body(_Tokenize, request)
        tokenizer = self._engine.tokenizer
        if body.messages is not None:
            return self._tokenized_chat(body.messages, body.tools)
        if body.prompt is None:
            return error_answer("Either prompt or messages is required.")
        if isinstance(body.prompt, str):
            ids = tokenizer.encode(body.prompt)
            return self._tokens(ids, len(ids))

        rows = [tokenizer.encode(text) for text in body.prompt]
        return self._tokens(rows, [len(row) for row in rows])

    def _tokenized_chat(self, messages: list[dict[str, Any]], tools: list[Tool] | None) -> Answer:
        shown_tools = [tool.model_dump() for tool in tools] if tools else None
        try:
            ids = self._engine.tokenizer.apply_chat_template(
                messages, shown_tools, add_generation_prompt=True
            )
        except TemplateError as error:
            return error_answer(str(error))
        return self._tokens(ids, len(ids))

    def _tokens(self, tokens: Any, count: Any) -> Answer:
        length = self._engine.context_length
        return Answer.json({"tokens": tokens, "count": count, "max_model_len": length})

    async def detokenize(self, request: Request) -> Answer:
        """Return the text of some tokens, or a list of texts for a list of lists."""
        body = read_body(_Detokenize, request)
        is_batch = bool(body.tokens) and isinstance(body.tokens[0], list)
        rows: Any = body.tokens if is_batch else [body.tokens]
        decode = self._engine.tokenizer.decode
        try:
            texts = [decode(row, skip_special_tokens=body.skip_special_tokens) for row in rows]
        except ValueError as error:
            return error_answer(str(error))
        return Answer.json({"text": texts if is_batch else texts[0]})

    async def load(self, request: Request) -> Answer:
        """Report how many requests and tokens the engine holds."""
        now = self._engine.snapshot()
        load = {
            "dp_rank": 0,
            "num_reqs": now.running + now.waiting,
            "num_waiting_reqs": now.waiting,
            "num_tokens": now.running_tokens + now.waiting_tokens,
            "ts_tic": time.perf_counter(),
        }
        return Answer.json([load])

    async def loads(self, request: Request) -> Answer:
        """Report the same as ``/get_load``, as the newest sglang names it; always all sections."""
        engine = self._engine
        now = engine.snapshot()
        capacity = engine.context_length * (engine.max_running or 1)
        load = {
            "dp_rank": 0,
            "timestamp": time.time(),
            "num_running_reqs": now.running,
            "num_waiting_reqs": now.waiting,
            "num_used_tokens": now.running_tokens,
            "num_total_tokens": now.running_tokens + now.waiting_tokens,
            "max_total_num_tokens": capacity,
            "token_usage": min(1.0, now.running_tokens / capacity),
            "gen_throughput": 0.0,
            "cache_hit_rate": 0.0,
            "utilization": now.running / (engine.max_running or max(1, now.running)),
            "max_running_requests": engine.max_running,
        }
        answer = {
            "timestamp": datetime.now(UTC).isoformat(),
            "version": f"sfusion-{__version__}",
            "accelerator": None,
            "num_accelerators": 1,
            "loads": [load],
        }
        return Answer.json(answer)

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
            f"{request.path} is a route of sglang that this fake does not have; "
            "it generates and calls tools."
        )
        return error_answer(message, "NotImplementedError", 501)
