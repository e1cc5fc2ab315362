"""The request bodies of all routes, as pydantic models.

Validation errors of the real server quote the names of models in unions, validators and fields, so
these have the same names, types and order. Fields that a fake cannot use are here because the real
server refuses wrong values for them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.dataclasses import dataclass

from .generation import GenerateCall
from .requests import CALL_OPTIONS

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Role = Literal["system", "assistant", "tool", "function", "developer", "latest_reminder"]
_ROLES = get_args(Role)


class StreamOptions(BaseModel):
    """Whether a stream reports usage, at its end or with every chunk."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class JsonSchemaResponseFormat(BaseModel):
    name: str
    description: str | None = None
    schema_: dict[str, object] | None = Field(alias="schema", default=None)
    strict: bool | None = None


class ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaResponseFormat | None = None


class StructuresResponseFormat(BaseModel):
    begin: str
    schema_: dict[str, object] | None = Field(alias="schema", default=None)
    end: str


class LegacyStructuralTagResponseFormat(BaseModel):
    type: Literal["structural_tag"]
    structures: list[StructuresResponseFormat]
    triggers: list[str]
    at_least_one: bool = False


class ChatCompletionMessageContentTextPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatCompletionMessageContentThinkingPart(BaseModel):
    type: Literal["thinking", "reasoning"]
    thinking: str | None = None
    text: str | None = None

    @model_validator(mode="after")
    def validate_payload(self) -> ChatCompletionMessageContentThinkingPart:
        if (self.thinking is None) == (self.text is None):
            raise ValueError("thinking parts require exactly one of 'thinking' or 'text'")
        return self


class ChatCompletionMessageContentImageURL(BaseModel):
    url: str
    detail: Literal["auto", "low", "high"] | None = "auto"
    max_dynamic_patch: int | None = None
    min_dynamic_patch: int | None = None


class ChatCompletionMessageContentVideoURL(BaseModel):
    url: str
    max_dynamic_patch: int | None = None
    min_dynamic_patch: int | None = None


class ChatCompletionMessageContentAudioURL(BaseModel):
    url: str


class ChatCompletionMessageContentImagePart(BaseModel):
    type: Literal["image_url"]
    image_url: ChatCompletionMessageContentImageURL
    modalities: Literal["image", "multi-images", "video"] | None = "image"


class ChatCompletionMessageContentVideoPart(BaseModel):
    type: Literal["video_url"]
    video_url: ChatCompletionMessageContentVideoURL


class ChatCompletionMessageContentAudioPart(BaseModel):
    type: Literal["audio_url"]
    audio_url: ChatCompletionMessageContentAudioURL


class ChatCompletionMessageContentToolReferenceBlock(BaseModel):
    type: Literal["tool_reference"]
    name: str


# Errors name each member of a union, in the order of the real models.
ChatCompletionMessageContentPart = Union[  # noqa: UP007 - a plain alias: pydantic names its members in errors
    ChatCompletionMessageContentTextPart,
    ChatCompletionMessageContentThinkingPart,
    ChatCompletionMessageContentImagePart,
    ChatCompletionMessageContentVideoPart,
    ChatCompletionMessageContentAudioPart,
    ChatCompletionMessageContentToolReferenceBlock,
]


class FunctionResponse(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ChatToolCall(BaseModel):
    """A call in an earlier message; ``ToolCall`` in sglang."""

    id: str | None = None
    index: int | None = None
    type: Literal["function"] = "function"
    function: FunctionResponse


class Function(BaseModel):
    description: str | None = None
    name: str
    parameters: object | None = None
    strict: bool = False


class Tool(BaseModel):
    type: str = "function"
    function: Function


class _Message(BaseModel):
    role: str
    content: str | list[ChatCompletionMessageContentPart] | None

    @model_validator(mode="after")
    def validate_thinking_parts_role(self) -> Self:
        if self.role == "assistant" or not isinstance(self.content, list):
            return self
        for part in self.content:
            if isinstance(part, ChatCompletionMessageContentThinkingPart):
                raise ValueError("thinking content parts are only valid in assistant messages")
        return self


class ChatCompletionMessageGenericParam(_Message):
    """A message of any role but ``user``."""

    role: Role
    content: str | list[ChatCompletionMessageContentPart] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    tools: list[Tool] | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _normalize_role(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError("'role' must be a string")
        if value.lower() not in _ROLES:
            known = ", ".join(map(repr, _ROLES))
            raise ValueError(f"'role' must be one of {known} (case-insensitive).")
        return value.lower()


class ChatCompletionMessageUserParam(_Message):
    role: Literal["user"]
    content: str | list[ChatCompletionMessageContentPart]


class ToolChoiceFuncName(BaseModel):
    name: str | None = None


class ToolChoice(BaseModel):
    function: ToolChoiceFuncName
    type: Literal["function"] = "function"


class ChatCompletionRequest(BaseModel):
    """The body of ``/v1/chat/completions``."""

    messages: list[ChatCompletionMessageGenericParam | ChatCompletionMessageUserParam]
    model: str = "default"
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int = 1
    presence_penalty: float = 0.0
    response_format: ResponseFormat | LegacyStructuralTagResponseFormat | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | Literal["auto", "required", "none"] = "auto"
    parallel_tool_calls: bool = True
    return_hidden_states: bool | Literal["last"] = False
    return_routed_experts: bool = False
    return_cached_tokens_details: bool = False
    return_prompt_token_ids: bool = False
    return_token_ids: bool = False
    return_meta_info: bool = False
    reasoning_effort: (
        Effort | Annotated[float, Field(ge=0.0, le=0.99, allow_inf_nan=False)] | None
    ) = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int = 0
    regex: str | None = None
    ebnf: str | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    no_stop_trim: bool = False
    ignore_eos: bool = False
    continue_final_message: bool = False
    skip_special_tokens: bool = True
    lora_path: list[str | None] | str | None = None
    session_params: dict[str, Any] | None = None
    separate_reasoning: bool = True
    stream_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    custom_params: dict[str, Any] | None = None
    input_ids: list[int] | None = None
    rid: list[str] | str | None = None
    priority: int | None = None

    @model_validator(mode="before")
    @classmethod
    def set_tool_choice_default(cls, values: Any) -> Any:
        """Default to ``auto`` if there are tools, to ``none`` otherwise."""
        if values.get("tool_choice") is None:
            values["tool_choice"] = "none" if values.get("tools") is None else "auto"
        return values

    @field_validator("reasoning_effort", mode="before")
    @classmethod
    def validate_reasoning_effort_type(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("reasoning_effort must not be a boolean")
        return value

    @model_validator(mode="before")
    @classmethod
    def normalize_reasoning_inputs(cls, values: Any) -> Any:
        """Translate a reasoning effort into options of the chat template."""
        effort = values.get("reasoning_effort")
        if effort is None:
            return values

        given = values.get("chat_template_kwargs")
        switches = dict(given) if isinstance(given, dict) else {}
        switches.setdefault("thinking", effort != "none")
        switches.setdefault("enable_thinking", effort != "none")
        values["chat_template_kwargs"] = switches
        return values


class CompletionRequest(BaseModel):
    """The body of ``/v1/completions``."""

    model: str = "default"
    prompt: list[int] | list[list[int]] | str | list[str]
    best_of: int | None = None
    echo: bool = False
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    max_tokens: int = 16
    n: int = 1
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    user: str | None = None
    return_hidden_states: bool | Literal["last"] = False
    return_token_ids: bool = False
    top_k: int = -1
    min_p: float = 0.0
    min_tokens: int = 0
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    repetition_penalty: float = 1.0
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    lora_path: list[str | None] | str | None = None
    session_params: dict[str, Any] | None = None
    response_format: ResponseFormat | LegacyStructuralTagResponseFormat | None = None
    custom_params: dict[str, Any] | None = None
    rid: list[str] | str | None = None
    priority: int | None = None

    @field_validator("max_tokens")
    @classmethod
    def validate_max_tokens_positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("max_tokens must be positive")
        return value


@dataclass(config=ConfigDict(extra="ignore"))
class GenerateReqInput:
    """The body of ``/generate``."""

    rid: str | list[str] | None = None
    text: list[str] | str | None = None
    input_ids: list[list[int]] | list[int] | None = None
    input_embeds: list[list[list[float]]] | list[list[float]] | None = None
    sampling_params: list[dict[str, Any]] | dict[str, Any] | None = None
    return_logprob: list[bool] | bool | None = None
    logprob_start_len: list[int] | int | None = None
    top_logprobs_num: list[int] | int | None = None
    token_ids_logprob: list[list[int]] | list[int] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    return_hidden_states: bool = False
    return_routed_experts: bool = False
    session_params: dict[str, Any] | None = None
    lora_path: list[str | None] | str | None = None
    priority: int | None = None
    return_prompt_token_ids: bool = False

    def call(self) -> GenerateCall:
        """Return the call of the engine; what a fake cannot use is left out."""
        options = {name: getattr(self, name) for name in CALL_OPTIONS}
        return GenerateCall(**options)


@dataclass(config=ConfigDict(extra="ignore"))
class AbortReq:
    """The body of ``/abort_request``."""

    rid: str = ""
    abort_all: bool = False


@dataclass(config=ConfigDict(extra="ignore"))
class PauseGenerationReqInput:
    """The body of ``/pause_generation``."""

    mode: str = "abort"


@dataclass(config=ConfigDict(extra="ignore"))
class ContinueGenerationReqInput:
    """The body of ``/continue_generation``."""


class ParseFunctionCallReq(BaseModel):
    """The body of ``/parse_function_call``."""

    text: str
    tools: list[Tool]
    tool_call_parser: str | None = None
