"""Checks of well-formed chat requests, and their translation into calls of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sfusion_tools.tokenizers import Tokenizer

from ..errors import BadValue
from .generation import GenerateCall
from .json_schema import validator
from .rendering import Constraint
from .schema import ChatCompletionRequest, CompletionRequest, ToolChoice

_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop_token_ids",
    "stop_regex",
    "regex",
    "ebnf",
    "n",
    "no_stop_trim",
    "ignore_eos",
    "logit_bias",
    "custom_params",
)
"""The sampling parameters that both OpenAI routes pass on as they are."""
_TYPE_ALIASES = {"int": "integer", "varchar": "string", "enum": "string"}
"""Types that are not of JSON schema, and what sglang reads them as."""
_MEDIA = ("image_url", "video_url", "audio_url")
_NOT_IN_STREAMS = ("return_prompt_token_ids", "return_meta_info")


def refusal(request: ChatCompletionRequest, context_length: int) -> str | None:
    """Return sglang's message if it refuses the request, None otherwise."""
    if not request.messages:
        return "Messages cannot be empty."
    # In the order of sglang: the first thing that is wrong is the one in the message.
    return (
        _wrong_tool_choice(request)
        or _wrong_tools(request)
        or _too_many_tokens(request, context_length)
        or _missing_schema(request)
        or _unsupported_content(request)
    )


def _wrong_tool_choice(request: ChatCompletionRequest) -> str | None:
    """Return what is wrong if the request forces a call that its tools do not allow."""
    if request.tool_choice == "required" and not request.tools:
        return "Tools cannot be empty if tool choice is set to required."
    if not isinstance(request.tool_choice, ToolChoice):
        return None

    if not request.tools:
        return "Tools cannot be empty if tool choice is set to a specific tool."
    name = request.tool_choice.function.name
    if name not in [tool.function.name for tool in request.tools]:
        return f"Tool '{name}' not found in tools list."
    return None


def _wrong_tools(request: ChatCompletionRequest) -> str | None:
    """Return what is wrong with the first tool whose parameters are not a JSON schema."""
    for number, tool in enumerate(request.tools or ()):
        parameters = tool.function.parameters
        if parameters is None:
            continue
        try:
            _respell_types(parameters)
            validator(json.dumps(parameters))
        except BadValue as error:
            return f"Tool {number} function has invalid 'parameters' schema: {error.__cause__}"
        except RecursionError:
            return (
                f"Tool {number} function 'parameters' schema is too deeply nested or "
                "contains a cycle."
            )
    return None


def _too_many_tokens(request: ChatCompletionRequest, context_length: int) -> str | None:
    """Return what is wrong if the request wants more tokens than the model can hold."""
    wanted = _token_limit(request)
    if not wanted or wanted <= context_length:
        return None
    return (
        f"max_completion_tokens is too large: {wanted}."
        f"This model supports at most {context_length} completion tokens."
    )


def _missing_schema(request: ChatCompletionRequest) -> str | None:
    """Return what is wrong if the answer must follow a schema that the request does not have."""
    shape = request.response_format
    if shape is None or shape.type != "json_schema":
        return None
    if getattr(shape.json_schema, "schema_", None) is not None:
        return None
    return "schema_ is required for json_schema response format request."


def _unsupported_content(request: ChatCompletionRequest) -> str | None:
    """Return what is wrong if a message contains an image, a video or a sound."""
    for message in request.messages:
        parts = message.content if isinstance(message.content, list) else []
        for part in parts:
            if part.type in _MEDIA:
                return (
                    "Model only supports text input; received unsupported content type "
                    f"'{part.type}'."
                )
    return None


def _token_limit(request: ChatCompletionRequest) -> int | None:
    """Return how many tokens the answer may have; the newer name of the parameter wins."""
    return request.max_completion_tokens or request.max_tokens


def _chosen_tool(request: ChatCompletionRequest) -> str | None:
    """Return the name of the tool that the model must call, if the request names one."""
    if isinstance(request.tool_choice, ToolChoice):
        return request.tool_choice.function.name
    return None


def _respell_types(schema: Any) -> None:
    """Replace, in place, the types that sglang reads as others."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str):
            schema["type"] = _TYPE_ALIASES.get(kind, kind)
        for value in schema.values():
            _respell_types(value)
    elif isinstance(schema, list):
        for value in schema:
            _respell_types(value)


def must_call(request: ChatCompletionRequest) -> bool:
    """Return whether the model must call a tool."""
    return request.tool_choice == "required" or isinstance(request.tool_choice, ToolChoice)


def chat_call(
    request: ChatCompletionRequest,
    tokenizer: Tokenizer,
    as_array: bool,
    free_until: str | None = None,
) -> GenerateCall:
    """Translate a chat request into a call of the engine.

    ``free_until`` ends the thinking, to which the schema of an answer does not apply.
    """
    _check_stream_options(request)
    messages = [message.model_dump(exclude_none=True) for message in request.messages]
    for message in messages:
        _check_arguments(message)

    tools: tuple[Mapping[str, Any], ...] = ()
    if request.tools and request.tool_choice != "none":
        tools = tuple(tool.model_dump() for tool in request.tools)

    begun_answer = _take_begun_answer(messages, request)
    ids = request.input_ids
    if ids is None:
        offered = _offered(request, tools)
        ids = tokenizer.apply_chat_template(messages, offered, add_generation_prompt=True)
        ids += tokenizer.encode(begun_answer, allow_special=False)

    # Calls are marked by special tokens in some formats, so these stay if there are tools.
    skip_special_tokens = request.skip_special_tokens and not tools
    return GenerateCall(
        input_ids=ids,
        sampling_params=_sampling(request, _token_limit(request), skip_special_tokens),
        return_logprob=request.logprobs,
        top_logprobs_num=request.top_logprobs or 0,
        return_text_in_logprobs=True,
        stream=request.stream,
        rid=request.rid,
        return_prompt_token_ids=request.return_prompt_token_ids,
        messages=tuple(messages),
        tools=tools,
        constraint=Constraint(
            must_call=bool(tools) and must_call(request),
            tool=_chosen_tool(request),
            at_most_one=not request.parallel_tool_calls,
            as_array=as_array and must_call(request),
            free_until=free_until,
        ),
    )


def _check_stream_options(request: ChatCompletionRequest) -> None:
    """Refuse what sglang cannot return in a stream."""
    if not request.stream:
        return
    for name in _NOT_IN_STREAMS:
        if getattr(request, name):
            raise BadValue(
                f"{name} is not supported with streaming. "
                f"Please set stream=false when using {name}=true."
            )


def _take_begun_answer(messages: list[dict[str, Any]], request: ChatCompletionRequest) -> str:
    """Take the beginning of an answer off the messages, and return it.

    A last message of the assistant is such a beginning if the request wants it continued.
    Otherwise it becomes a message of the user, as in sglang.
    """
    last = messages[-1]
    if last["role"] != "assistant" or not isinstance(last.get("content"), str):
        return ""

    content: str = last["content"]
    if request.continue_final_message:
        messages.pop()
        return content
    messages[-1] = {"role": "user", "content": content}
    return ""


def _offered(
    request: ChatCompletionRequest, tools: tuple[Mapping[str, Any], ...]
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the tools for the prompt: if one must be called, only that one."""
    if isinstance(request.tool_choice, ToolChoice):
        name = request.tool_choice.function.name
        tools = tuple(tool for tool in tools if tool["function"]["name"] == name)
    return tools or None


def _check_arguments(message: Mapping[str, Any]) -> None:
    """Refuse earlier calls whose arguments are not a JSON object."""
    if message["role"] != "assistant":
        return
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments")
        if not isinstance(arguments, str):
            continue

        try:
            parsed = json.loads(arguments)
        except ValueError as error:
            raise BadValue("Assistant tool call function.arguments must be valid JSON.") from error
        if not isinstance(parsed, dict):
            raise BadValue("Assistant tool call function.arguments must be a JSON object.")


def _sampling(
    request: ChatCompletionRequest | CompletionRequest,
    max_tokens: int | None,
    skip_special_tokens: bool,
) -> dict[str, Any]:
    """Return the sampling parameters of a request, by the engine's names for them."""
    params: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": request.min_tokens,
        "stop": request.stop,
        "skip_special_tokens": skip_special_tokens,
        "sampling_seed": request.seed,
        **_json_schema(request),
    }
    for name in _SAMPLING:
        value = getattr(request, name)
        if value is not None:
            params[name] = value
    return params


def _json_schema(request: ChatCompletionRequest | CompletionRequest) -> dict[str, str]:
    """Return the schema of the answer as a sampling parameter.

    A structural tag is accepted and ignored.
    """
    shape = request.response_format
    if shape is None or shape.type not in ("json_object", "json_schema"):
        return {}
    if shape.type == "json_object":
        return {"json_schema": '{"type": "object"}'}
    schema = getattr(shape.json_schema, "schema_", None)
    return {} if schema is None else {"json_schema": json.dumps(schema)}


def completion_call(request: CompletionRequest) -> GenerateCall:
    """Translate a completions request into a call of the engine."""
    prompt = request.prompt
    if not prompt or (isinstance(prompt, list) and not any(prompt)):
        raise BadValue("Prompt cannot be empty")

    is_text = isinstance(prompt, str) or isinstance(prompt[0], str)
    sampling = _sampling(request, request.max_tokens, request.skip_special_tokens)
    return GenerateCall(
        text=prompt if is_text else None,  # type: ignore[arg-type] # checked by is_text above
        input_ids=None if is_text else prompt,  # type: ignore[arg-type] # likewise
        sampling_params={"json_schema": request.json_schema} | sampling,
        return_logprob=request.logprobs is not None,
        top_logprobs_num=request.logprobs or 0,
        logprob_start_len=0 if request.echo and request.logprobs else -1,
        return_text_in_logprobs=True,
        stream=request.stream,
        rid=request.rid,
        return_prompt_token_ids=request.return_token_ids,
    )
