"""The answers of the completions route, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sfusion.fakes.sglang.answer_parts import completion_logprobs, event, meta_usage, total_usage
from sfusion.fakes.sglang.chat import StreamAborted, is_error
from sfusion.fakes.sglang.protocol import JsonObject
from sfusion.fakes.sglang.schema import CompletionRequest
from sfusion_tools.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class CompletionView:
    """The options of one completions request that shape its answer."""

    request: CompletionRequest
    created: int
    tokenizer: Tokenizer
    report_cache: bool = False

    def echo(self, index: int) -> str:
        """Return the prompt of a choice if the request wants it repeated."""
        if not self.request.echo:
            return ""
        prompt: Any = self.request.prompt
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt[0], int):
            return self.tokenizer.decode(prompt, skip_special_tokens=True)
        one = prompt[index // self.request.n]
        return one if isinstance(one, str) else self.tokenizer.decode(one, skip_special_tokens=True)

    def logprobs(self, meta: JsonObject, since: int, first: bool) -> JsonObject | None:
        """Return the log probabilities since a token, including the prompt's if it is repeated."""
        if self.request.logprobs is None:
            return None
        tokens = meta["output_token_logprobs"][since:]
        tops = (meta.get("output_top_logprobs") or [])[since:]
        if first and self.request.echo:
            tokens = [*meta["input_token_logprobs"], *tokens]
            tops = [*(meta.get("input_top_logprobs") or []), *tops]
        return completion_logprobs(tokens, tops)


def completion_body(view: CompletionView, outputs: Sequence[JsonObject]) -> JsonObject:
    metas = {index: output["meta_info"] for index, output in enumerate(outputs)}
    return {
        "id": metas[0]["id"],
        "object": "text_completion",
        "created": view.created,
        "model": view.request.model,
        "choices": [_choice(view, index, output) for index, output in enumerate(outputs)],
        "usage": total_usage(metas, view.request.n, view.report_cache),
        "metadata": {"weight_version": metas[0]["weight_version"]},
    }


def _choice(view: CompletionView, index: int, output: JsonObject) -> JsonObject:
    meta = output["meta_info"]
    finish = meta["finish_reason"]
    choice = {
        "index": index,
        "text": view.echo(index) + output["text"],
        "logprobs": view.logprobs(meta, 0, True),
        "finish_reason": finish["type"],
        "matched_stop": finish.get("matched"),
    }
    if view.request.return_token_ids:
        choice |= {"token_ids": output["output_ids"], "prompt_token_ids": output.get("prompt_token_ids")}
    return choice


class CompletionStream:
    """Turns the engine's stream into the events of the completions route."""

    def __init__(self, view: CompletionView, incremental: bool = False) -> None:
        self._view = view
        self._incremental = incremental
        self._shown: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        self._metas: dict[int, JsonObject] = {}
        options = view.request.stream_options
        self._include_usage = bool(options and options.include_usage)
        self._continuous = bool(options and options.continuous_usage_stats)

    @property
    def begun(self) -> bool:
        """True once anything was sent to the client."""
        return bool(self._metas)

    def feed(self, output: JsonObject) -> Iterator[bytes]:
        """Yield the event of one step of the engine."""
        view, index, meta = self._view, output.get("index", 0), output["meta_info"]
        finish = meta["finish_reason"]
        if finish is not None and is_error(finish):
            raise StreamAborted(finish)
        first = index not in self._metas
        self._metas[index] = meta
        shown, tokens = (0, 0) if self._incremental else (self._shown.get(index, 0), self._tokens.get(index, 0))
        delta = output["text"][shown:]
        self._shown[index] = len(output["text"])
        choice: JsonObject = {
            "index": index,
            "text": (view.echo(index) if first else "") + delta,
            "logprobs": view.logprobs(meta, tokens, first),
            "finish_reason": finish["type"] if finish else None,
            "matched_stop": finish.get("matched") if finish else None,
        }
        if view.request.return_token_ids:
            choice["token_ids"] = output["output_ids"][tokens:]
            if first:
                choice["prompt_token_ids"] = output.get("prompt_token_ids")
        self._tokens[index] = meta["completion_tokens"]
        yield event(self._chunk([choice]) | {"usage": meta_usage(meta) if self._continuous else None})

    def finish(self) -> Iterator[bytes]:
        """Yield the usage event after the last step, if the request wants it; null values are left out."""
        if not self._include_usage:
            return
        usage = total_usage(dict(sorted(self._metas.items())), self._view.request.n, self._view.report_cache)
        yield event(self._chunk([]) | {"usage": {key: value for key, value in usage.items() if value is not None}})

    def _chunk(self, choices: list[JsonObject]) -> JsonObject:
        return {
            "id": next(iter(self._metas.values()))["id"],
            "object": "text_completion",
            "created": self._view.created,
            "model": self._view.request.model,
            "choices": choices,
        }
