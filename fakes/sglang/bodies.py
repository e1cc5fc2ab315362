"""The request bodies of sglang's own routes, with the names that its validation errors quote."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.dataclasses import dataclass

from sfusion.fakes.sglang.requests import GenerateCall
from sfusion.fakes.sglang.schema import Tool


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
        return GenerateCall(
            text=self.text,
            input_ids=self.input_ids,
            sampling_params=self.sampling_params,
            return_logprob=self.return_logprob,
            logprob_start_len=self.logprob_start_len,
            top_logprobs_num=self.top_logprobs_num,
            token_ids_logprob=self.token_ids_logprob,
            return_text_in_logprobs=self.return_text_in_logprobs,
            stream=self.stream,
            rid=self.rid,
            return_prompt_token_ids=self.return_prompt_token_ids,
        )


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
