"""The handlers of the routes."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qs

from pydantic import Field

from sfusion_tools._version import __version__
from sfusion_tools.errors import TemplateError

from ..errors import BadValue, EngineRefused, FakeSGLangError
from ..wire.app import Handler, Request
from ..wire.message import Answer
from . import schema
from .calls import ArrayParser, CallPiece, OwnParser, call_parser
from .chat import CallId, ChatView
from .chat_rules import chat_call, completion_call, must_call, refusal
from .completions import (
    DONE,
    EVENT_STREAM,
    AnswerStream,
    AnswerView,
    CompletionView,
    StreamAborted,
    error_answer,
    error_event,
    error_status,
    event,
    finish_of,
    native_error_event,
)
from .dialects import dialect_of, is_written_as_array, shown_name
from .engine import FakeSGLang
from .generation import GenerateCall, StreamProgress
from .keyed_digest import hex_id
from .more_routes import MoreHandlers
from .protocol import EngineOutput, JsonObject
from .reasoning import Harmony, Reasoning, reasoning_parser
from .validation import read_body, read_json_body, read_query

logger = logging.getLogger(__name__)

_FLUSHED = (
    "Cache flushed.\n"
    "Please check backend logs for more details. (When there are running or waiting requests, "
    "the operation will not be performed.)\n"
)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the server reports about its model."""

    path: str = "fake/model"
    name: str = "fake-model"
    tool_call_parser: str | None = "qwen25"
    reasoning_parser: str | None = None
    report_cache: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        # Refuse unknown names now, not with the first request.
        call_parser(self.tool_call_parser)
        reasoning_parser(self.reasoning_parser)


class Handlers:
    """One method for each route."""

    def __init__(self, engine: FakeSGLang, model: ModelInfo) -> None:
        self._engine = engine
        self._model = model
        self.starting = False
        self.exiting = False
        self.table: dict[str, dict[str, Handler]] = {
            "/health": {"GET": self.health},
            "/health_generate": {"GET": self.health},
            "/ping": {"GET": self.health},
            "/v1/models": {"GET": self.models},
            "/model_info": {"GET": self.model_info},
            "/get_model_info": {"GET": self.model_info},
            "/server_info": {"GET": self.server_info},
            "/get_server_info": {"GET": self.server_info},
            "/generate": {"POST": self.generate, "PUT": self.generate},
            "/v1/chat/completions": {"POST": self.chat},
            "/v1/completions": {"POST": self.completions},
            "/abort_request": {"POST": self.abort},
            "/flush_cache": {"GET": self.flush, "POST": self.flush},
            "/pause_generation": {"POST": self.pause},
            "/continue_generation": {"POST": self.resume},
            "/parse_function_call": {"POST": self.parse},
        }
        self._more = MoreHandlers(engine)
        self.table |= self._more.table
        self.absent = self._more.absent

    # -- information --

    async def health(self, request: Request) -> Answer:
        up = self._engine.up and not self.starting and not self.exiting
        return Answer(status=200 if up else 503, content_type=None)

    async def models(self, request: Request) -> Answer:
        return Answer.json({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Answer:
        name = request.path.removeprefix("/v1/models/")
        if name == self._model.name:
            return Answer.json(self._card())
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return Answer.json({"error": error}, status=404)

    def _card(self) -> JsonObject:
        return {
            "id": self._model.name,
            "object": "model",
            "created": self._model.created,
            "owned_by": "sglang",
            "root": self._model.name,
            "parent": None,
            "max_model_len": self._engine.context_length,
        }

    async def model_info(self, request: Request) -> Answer:
        model = self._model
        info = {
            "model_path": model.path,
            "served_model_name": model.name,
            "tokenizer_path": model.path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": self._engine.weight_version,
            "load_format": "auto",
            "reasoning_parser": model.reasoning_parser,
            "tool_call_parser": shown_name(model.tool_call_parser),
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
        }
        return Answer.json(info)

    async def server_info(self, request: Request) -> Answer:
        """Report the arguments of the server, as far as a fake has them, and its state."""
        engine = self._engine
        model = self._model
        host, _, port = request.address.rpartition(":")
        snapshot = engine.snapshot()
        internal_state = {
            "last_gen_throughput": 0.0,
            "num_running_reqs": snapshot.running,
            "num_waiting_reqs": snapshot.waiting,
            "effective_max_running_requests_per_dp": engine.max_running,
        }
        info = {
            "model_path": model.path,
            "tokenizer_path": model.path,
            "tokenizer_mode": "auto",
            "load_format": "auto",
            "trust_remote_code": False,
            "context_length": engine.context_length,
            "is_embedding": False,
            "host": host,
            "port": int(port),
            "dtype": "auto",
            "quantization": None,
            "max_running_requests": engine.max_running,
            "max_queued_requests": engine.max_queued,
            "device": "cpu",
            "tp_size": 1,
            "pp_size": 1,
            "dp_size": 1,
            "stream_interval": engine.stream_interval,
            "incremental_streaming_output": False,
            "random_seed": engine.seed,
            "served_model_name": model.name,
            "weight_version": engine.weight_version,
            "enable_cache_report": model.report_cache,
            "reasoning_parser": model.reasoning_parser,
            "tool_call_parser": shown_name(model.tool_call_parser),
            "disaggregation_mode": "null",
            "status": "ready",
            "max_total_num_tokens": engine.context_length * (engine.max_running or 1),
            "max_req_input_len": engine.context_length - 1,
            "internal_states": [internal_state],
            "version": f"sfusion-{__version__}",
        }
        return Answer.json(info)

    # -- control --

    async def abort(self, request: Request) -> Answer:
        body = read_body(schema.AbortReq, request)
        self._engine.abort_request(body.rid, body.abort_all)
        return Answer(content_type=None)

    async def flush(self, request: Request) -> Answer:
        """Clear the cache, waiting up to ``timeout`` seconds for the engine to be idle."""
        given = parse_qs(request.query, keep_blank_values=True).get("timeout")
        timeout = 0.0
        if given:
            timeout = read_query(Annotated[float, Field(ge=0)], given[-1], "timeout", request)

        flushed = self._engine.flush_cache()
        if not flushed and timeout <= 0:
            return Answer(status=400, body=b"Flush cache failed.\n", content_type=None)
        if not flushed and not await self._engine.flush_when_idle(timeout):
            return Answer(status=400, body=b"Timed out waiting for idle state.", content_type=None)
        return Answer(body=_FLUSHED.encode(), content_type=None)

    async def pause(self, request: Request) -> Answer:
        self._engine.pause_generation(read_body(schema.PauseGenerationReqInput, request).mode)
        return Answer.json({"message": "Generation paused successfully.", "status": "ok"})

    async def resume(self, request: Request) -> Answer:
        read_body(schema.ContinueGenerationReqInput, request)
        self._engine.continue_generation()
        return Answer.json({"message": "Generation continued successfully.", "status": "ok"})

    async def parse(self, request: Request) -> Answer:
        """Parse the calls in a text."""
        body = read_body(schema.ParseFunctionCallReq, request)
        parser = call_parser(body.tool_call_parser)
        tools = [tool.model_dump() for tool in body.tools]
        extract = parser.whole(body.text, tools, "stop") if parser is not None else None
        if extract is None:
            return Answer.json({"normal_text": body.text, "calls": []})

        names = [tool.function.name for tool in body.tools]
        calls = [
            {
                "tool_index": names.index(piece.name) if piece.name in names else -1,
                "name": piece.name,
                "parameters": piece.arguments,
            }
            for piece in extract.pieces
        ]
        return Answer.json({"normal_text": extract.content, "calls": calls})

    # -- generation --

    async def generate(self, request: Request) -> Answer:
        """Answer a request of sglang's own route."""
        self._more.check_memory()
        call = read_body(schema.GenerateReqInput, request).call()
        if call.stream:
            progress = StreamProgress()
            return Answer(
                stream=self._native_stream(call, progress),
                content_type=EVENT_STREAM,
                share=lambda: progress.sent,
            )
        try:
            output = await self._output(call)
        except ValueError as error:
            return Answer.json({"error": {"message": str(error)}}, status=400)
        except EngineRefused:
            raise
        except Exception as error:  # a policy may raise anything
            _log(error)
            return Answer.text("Internal Server Error", status=500)
        return Answer.json(output)

    async def _native_stream(
        self, call: GenerateCall, progress: StreamProgress
    ) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self._engine.stream(call, progress)) as outputs:
                async for output in outputs:
                    progress.sent = progress.generated
                    yield event(output)
        except ValueError as error:
            yield native_error_event(str(error))
        except EngineRefused as error:
            yield native_error_event(str(error), error.status)
        except Exception as error:
            _log(error)
            return  # the real server closes the connection here, without [DONE]
        yield DONE

    async def chat(self, request: Request) -> Answer:
        """Answer a request of the chat route."""
        self._more.check_memory()
        body = read_json_body(schema.ChatCompletionRequest, request)
        reason = refusal(body, self._engine.context_length)
        if reason is not None:
            return error_answer(reason)

        as_array = is_written_as_array(self._model.tool_call_parser)
        view = self._view(body, as_array)
        end_of_thinking = None
        if view.thinks and isinstance(view.reasoning, Reasoning):
            end_of_thinking = view.reasoning.end
        try:
            call = chat_call(body, self._engine.tokenizer, as_array, end_of_thinking)
        except (ValueError, TemplateError) as error:
            return error_answer(str(error), "BadRequest")
        return await self._answer(call, view)

    def _view(self, body: schema.ChatCompletionRequest, as_array: bool) -> ChatView:
        """Return what makes the answer to a chat request."""
        reasoning: Reasoning | Harmony | None = None
        if body.separate_reasoning:
            reasoning = reasoning_parser(self._model.reasoning_parser)
        thinks = reasoning is not None and reasoning.begins_inside(body.chat_template_kwargs)
        return ChatView(
            request=body,
            created=int(time.time()),
            call_id=self._call_ids(body),
            parser=self._call_parser(body, as_array),
            reasoning=reasoning,
            thinks=thinks,
            report_cache=self._model.report_cache,
        )

    def _call_parser(
        self, body: schema.ChatCompletionRequest, as_array: bool
    ) -> OwnParser | ArrayParser | None:
        """Return what extracts the calls of the answer; None if it may not have any."""
        format_name = self._model.tool_call_parser
        if not body.tools or body.tool_choice == "none" or format_name is None:
            return None
        if as_array and must_call(body):
            return ArrayParser()
        return call_parser(format_name)

    def _call_ids(self, body: schema.ChatCompletionRequest) -> CallId:
        """Return what makes the ids of the calls in the answer, in the manner of the format."""
        format_name = self._model.tool_call_parser
        if format_name is not None and dialect_of(format_name).numbered_ids:
            earlier = _count_calls(body)

            def numbered_id(piece: CallPiece, choice: int) -> str:
                return f"functions.{piece.name}:{earlier + piece.index}"

            return numbered_id

        finished = self._engine.snapshot().finished
        salt = hex_id(16, self._engine.seed, "call", finished, body.model_dump_json())

        def random_id(piece: CallPiece, choice: int) -> str:
            keys = (salt, choice, piece.index, str(piece.name), piece.arguments)
            return f"call_{hex_id(24, *keys)}"

        return random_id

    async def completions(self, request: Request) -> Answer:
        """Answer a request of the completions route."""
        self._more.check_memory()
        body = read_json_body(schema.CompletionRequest, request)
        try:
            call = completion_call(body)
        except ValueError as error:
            return error_answer(str(error))

        view = CompletionView(
            request=body,
            created=int(time.time()),
            report_cache=self._model.report_cache,
            tokenizer=self._engine.tokenizer,
        )
        return await self._answer(call, view)

    async def _answer(self, call: GenerateCall, view: AnswerView) -> Answer:
        """Generate, and answer as an OpenAI route does, whole or in a stream."""
        if call.stream:
            return await self._streamed(call, view.stream())
        try:
            output = await self._output(call)
        except Exception as error:
            return _failure(error)
        outputs = output if isinstance(output, list) else [output]
        return Answer.json(view.body(outputs))

    async def _output(self, call: GenerateCall) -> EngineOutput | list[EngineOutput]:
        """Generate; an abort with an error status is raised."""
        generated = await self._engine.generate(call)
        outputs = generated if isinstance(generated, list) else [generated]
        for output in outputs:
            finish = finish_of(output)
            status = error_status(finish)
            if status == 400:
                raise BadValue(finish["message"])
            if status is not None:
                raise EngineRefused(str(finish["message"]), status)
        return generated

    async def _streamed(self, call: GenerateCall, stream: AnswerStream) -> Answer:
        """Return a stream that has begun.

        It waits for the first event, so that an invalid request is answered with an error status.
        """
        progress = StreamProgress()
        events = self._events(call, stream, progress)
        try:
            first = await anext(events)
        except Exception as error:
            return _failure(error)
        return Answer(
            stream=_after(first, events),
            content_type=EVENT_STREAM,
            share=lambda: progress.sent,
        )

    async def _events(
        self, call: GenerateCall, stream: AnswerStream, progress: StreamProgress
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of an answer; errors before the first are raised."""
        try:
            async with aclosing(self._engine.stream(call, progress)) as outputs:
                async for output in outputs:
                    pieces = list(stream.feed(output))
                    for place, piece in enumerate(pieces, start=1):
                        if place == len(pieces):
                            progress.sent = progress.generated
                        yield piece
            for piece in stream.finish():
                yield piece
        except StreamAborted as aborted:
            yield aborted.event()
        except ValueError as error:
            if not stream.begun:
                raise
            yield error_event(str(error))
        except Exception as error:
            if not stream.begun:
                raise
            _log(error)
            return  # the real server closes the connection here, without [DONE]
        yield DONE


def _count_calls(body: schema.ChatCompletionRequest) -> int:
    """Return how many calls the conversation already has."""
    earlier = 0
    for message in body.messages:
        if message.role == "assistant":
            earlier += len(message.tool_calls or ())
    return earlier


def _log(error: Exception) -> None:
    """Log what is not an error of the engine: a bug of a policy, or of the fake."""
    if not isinstance(error, FakeSGLangError):
        logger.error(
            "generation failed; the client hears no more of it than from the real server",
            exc_info=error,
        )


def _failure(error: Exception) -> Answer:
    """Return the answer of the OpenAI routes to an error; the server answers a refusal."""
    if isinstance(error, EngineRefused):
        raise error
    if isinstance(error, ValueError):
        return error_answer(str(error))
    _log(error)
    return error_answer(f"Internal server error: {error}", "InternalServerError", 500)


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()
