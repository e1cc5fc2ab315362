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
    *(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
    ),
    *("stop_token_ids", "stop_regex", "regex", "ebnf", "n", "no_stop_trim", "ignore_eos"),
    *("logit_bias", "custom_params"),
)
"""The sampling parameters that both OpenAI routes pass on as they are."""
_TYPE_ALIASES = {"int": "integer", "varchar": "string", "enum": "string"}


def refusal(request: ChatCompletionRequest, context_length: int) -> str | None:
    """Return sglang's message if it refuses the request, None otherwise."""
    if not request.messages:
        return "Messages cannot be empty."
    if request.tool_choice == "required" and not request.tools:
        return "Tools cannot be empty if tool choice is set to required."
    if isinstance(request.tool_choice, ToolChoice):
        if not request.tools:
            return "Tools cannot be empty if tool choice is set to a specific tool."
        name = request.tool_choice.function.name
        if name not in [tool.function.name for tool in request.tools]:
            return f"Tool '{name}' not found in tools list."
    for number, tool in enumerate(request.tools or ()):
        if tool.function.parameters is None:
            continue
        try:
            _respell_types(tool.function.parameters)
            validator(json.dumps(tool.function.parameters))
        except BadValue as error:
            return f"Tool {number} function has invalid 'parameters' schema: {error.__cause__}"
        except RecursionError:
            return (
                f"Tool {number} function 'parameters' schema is too deeply nested or "
                "contains a cycle."
            )
    wanted = request.max_completion_tokens or request.max_tokens
    if wanted and wanted > context_length:
        return (
            f"max_completion_tokens is too large: {wanted}.This model supports at most "
            f"{context_length} completion "
            "tokens."
        )
    shape = request.response_format
    if shape is not None and shape.type == "json_schema":
        schema = getattr(shape.json_schema, "schema_", None)
        if schema is None:
            return "schema_ is required for json_schema response format request."
    for message in request.messages:
        for part in message.content if isinstance(message.content, list) else ():
            if part.type in ("image_url", "video_url", "audio_url"):
                return (
                    "Model only supports text input; received unsupported content type "
                    f"'{part.type}'."
                )
    return None


def _respell_types(schema: Any) -> None:
    if isinstance(schema, dict):
        if isinstance(kind := schema.get("type"), str):
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
    """Translate a chat request into a call of the engine; ``free_until`` ends the thinking, which
    no schema binds."""
    if request.stream:
        for name in ("return_prompt_token_ids", "return_meta_info"):
            if getattr(request, name):
                raise BadValue(
                    f"{name} is not supported with streaming. Please set stream=false when "
                    f"using {name}=true."
                )
    messages = [message.model_dump(exclude_none=True) for message in request.messages]
    for message in messages:
        _check_arguments(message)
    tools: tuple[Mapping[str, Any], ...] = ()
    if request.tools and request.tool_choice != "none":
        tools = tuple(tool.model_dump() for tool in request.tools)
    prefix = ""
    if messages[-1]["role"] == "assistant" and isinstance(messages[-1].get("content"), str):
        if request.continue_final_message:
            prefix = messages.pop()["content"]
        else:
            messages[-1] = {"role": "user", "content": messages[-1]["content"]}
    ids = request.input_ids
    if ids is None:
        ids = tokenizer.apply_chat_template(
            messages, _offered(request, tools), add_generation_prompt=True
        )
        ids += tokenizer.encode(prefix, allow_special=False)
    most = request.max_completion_tokens or request.max_tokens
    return GenerateCall(
        input_ids=ids,
        sampling_params=_sampling(request, most, request.skip_special_tokens and not tools),
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
            tool=request.tool_choice.function.name
            if isinstance(request.tool_choice, ToolChoice)
            else None,
            at_most_one=not request.parallel_tool_calls,
            as_array=as_array and must_call(request),
            free_until=free_until,
        ),
    )


def _offered(
    request: ChatCompletionRequest, tools: tuple[Mapping[str, Any], ...]
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the tools for the prompt: if one must be called, only that one."""
    if isinstance(request.tool_choice, ToolChoice):
        name = request.tool_choice.function.name
        tools = tuple(tool for tool in tools if tool["function"]["name"] == name)
    return tools or None


def _check_arguments(message: Mapping[str, Any]) -> None:
    for call in message.get("tool_calls") or () if message["role"] == "assistant" else ():
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
    given: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": request.min_tokens,
        "stop": request.stop,
        "skip_special_tokens": skip_special_tokens,
        "sampling_seed": request.seed,
        **_json_schema(request),
    }
    return given | {
        name: value for name in _SAMPLING if (value := getattr(request, name)) is not None
    }


def _json_schema(request: ChatCompletionRequest | CompletionRequest) -> dict[str, str]:
    """Return the schema of the answer as a sampling parameter; a structural tag is accepted and
    ignored."""
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
