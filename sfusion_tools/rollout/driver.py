"""Drives requests from PENDING to their end, one or a batch of them.

It generates, executes calls and releases tools; the request has the rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Protocol
from weakref import WeakSet, ref

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.errors import EngineAnswerError
from sfusion_tools.rollout.request import AsyncRolloutRequest
from sfusion_tools.rollout.states import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout.states import EndCause, FinishReasonTypeEnum
from sfusion_tools.rollout.toolset import ToolSet, bounded, even_if_cancelled, settle
from sfusion_tools.rollout.turns import TurnParser
from sfusion_tools.tokenizers import Tokenizer

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """An engine with the interface of sglang's."""

    async def async_generate(self, *, input_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """Generate one turn.

        Returns ``text``, ``output_ids`` and ``meta_info`` with a ``finish_reason``.
        """
        ...


class Interaction(Protocol):
    """A simulated user, with the same interface as verl's."""

    async def start_interaction(self, instance_id: str, **kwargs: Any) -> Any: ...

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float | None, dict[str, Any]]:
        """Return whether the conversation is over, what the user says, a score and metrics."""
        ...

    async def finalize_interaction(self, instance_id: str) -> None: ...


class RolloutDriver:
    """Runs requests with an engine and tools, any number of them concurrently."""

    def __init__(
        self,
        engine: Engine,
        tools: Sequence[BaseTool],
        parse: TurnParser,
        *,
        sampling_params: Mapping[str, Any] | None = None,
        interaction: Interaction | None = None,
    ) -> None:
        self._engine = engine
        self._tools = {tool.name: tool for tool in tools}
        self._parse = parse
        self._sampling = dict(sampling_params or {})
        self._interaction = interaction
        self._takes_rid = _takes(engine.async_generate, "rid")

    async def run(self, request: AsyncRolloutRequest) -> AsyncRolloutRequest:
        """Run one request to its end.

        Failures are recorded in it; only what is not an Exception is raised.
        """
        wanted = {name: self._tools[name] for name in request.tool_names if name in self._tools}
        tools = ToolSet(wanted, request.request_id, request.tools_kwargs, request.limits)
        try:
            await self._start(request, tools)
            while not request.state.is_final:
                await self._step(request, tools)
            if request.state is State.COMPLETED:
                request.reward_scores = await tools.rewards()
        except asyncio.CancelledError:
            request.stop(EndCause.CANCELLED, "the request was cancelled")
            raise
        except Exception as error:
            # Of a tool, an interaction or a parser: one request fails, and the batch goes on.
            why = f"{type(error).__name__}: {error}"
            if request.state.is_final:
                # The trajectory is complete; only the rewards of its tools are missing.
                request.failure = why
            else:
                request.fail(EndCause.ERROR, why)
        except BaseException as error:  # such as GuardTripped
            request.stop(EndCause.ERROR, f"{type(error).__name__}: {error}")
            raise
        finally:
            await even_if_cancelled(self._release(request, tools))
        return request

    async def _start(self, request: AsyncRolloutRequest, tools: ToolSet) -> None:
        missing = [name for name in request.tool_names if name not in self._tools]
        if missing:
            known = ", ".join(self._tools) or "none"
            request.fail(
                EndCause.TOOL_CREATION,
                f"no tool is called {', '.join(missing)}; the driver has {known}",
            )
            return
        request.start()
        if request.state.is_final:
            return
        try:
            await tools.create()
            await self._start_interaction(request)
        except Exception as error:  # whatever a user's tool raises
            request.fail(EndCause.TOOL_CREATION, f"{type(error).__name__}: {error}")

    async def _start_interaction(self, request: AsyncRolloutRequest) -> None:
        if self._interaction is None or request.interaction_kwargs is None:
            return
        options = request.interaction_kwargs
        start = self._interaction.start_interaction(request.request_id, **options)
        (error,) = await bounded(
            {f"start_interaction for request {request.request_id!r}": start},
            timeout=request.limits.tool_timeout,
            grace=request.limits.release_timeout,
        )
        if isinstance(error, Exception):
            raise error

    async def _step(self, request: AsyncRolloutRequest, tools: ToolSet) -> None:
        began = _now()
        if request.state is State.RUNNING:
            await self._generate(request)
            request.metrics.generation_seconds += _now() - began
        elif request.state is State.TOOL_CALLING:
            results = await tools.execute(request.calls_to_execute)
            request.metrics.tool_seconds += _now() - began
            request.add_tool_results(results)
        else:
            await self._interact(request)

    async def _generate(self, request: AsyncRolloutRequest) -> None:
        params = dict(self._sampling)
        bounds = (params.get("max_new_tokens"), request.tokens_left)
        known_bounds = [bound for bound in bounds if bound is not None]
        params["max_new_tokens"] = min(known_bounds, default=None)
        if request.sampling_seed is not None:
            params["sampling_seed"] = request.sampling_seed
        named: dict[str, Any] = {"rid": request.request_id} if self._takes_rid else {}
        try:
            answer = await self._engine.async_generate(
                input_ids=request.input_ids, sampling_params=params, **named
            )
            generated = read_generated(answer, request.processing_class)
        except Exception as error:  # whatever an engine raises
            request.fail(EndCause.ENGINE, f"{type(error).__name__}: {error}")
            return
        request.metrics.retokenised_turns += int(generated.retokenised)
        turn = self._parse(generated.text, request.tool_schemas)
        request.add_assistant_turn(generated.ids, turn, generated.finish_reason)

    async def _interact(self, request: AsyncRolloutRequest) -> None:
        if self._interaction is None:
            request.fail(
                EndCause.ERROR, "the request asks for an interaction and the driver has none"
            )
            return
        over, response, score, _metrics = await self._interaction.generate_response(
            request.request_id, request.template_messages, **(request.interaction_kwargs or {})
        )
        if over:
            request.end_interaction(score)
        else:
            request.add_user_turn(response, score)

    async def _release(self, request: AsyncRolloutRequest, tools: ToolSet) -> None:
        try:
            request.metrics.release_errors += await tools.release()
        finally:
            await self._end_interaction(request)

    async def _end_interaction(self, request: AsyncRolloutRequest) -> None:
        if self._interaction is not None and request.interaction_kwargs is not None:
            end = self._interaction.finalize_interaction(request.request_id)
            what = f"finalize_interaction for request {request.request_id!r}"
            (error,) = await bounded({what: end}, timeout=request.limits.release_timeout, grace=0.0)
            if isinstance(error, Exception):
                logger.warning("%s: %s: %s", what, type(error).__name__, error)
                request.metrics.release_errors += 1


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Has a function a parameter of this name, or takes it any?"""
    parameters = signature(function).parameters
    if name in parameters:
        return True
    return any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())


def _now() -> float:
    return asyncio.get_running_loop().time()


async def run_batch(
    driver: RolloutDriver,
    requests: Sequence[AsyncRolloutRequest],
    *,
    enough: int | None = None,
    at_once: int | None = None,
    on_end: Callable[[AsyncRolloutRequest], None] | None = None,
) -> list[AsyncRolloutRequest]:
    """Run all requests and return them in order, each in a final state.

    With ``enough``, the rest are cancelled as soon as that many are finished: COMPLETED, rewarded
    and released (over-sampling). At most ``at_once`` run concurrently. ``on_end`` is called once
    with each request when it has ended; if it raises, the batch is cancelled and the error is
    raised. An error that is not an Exception, such as GuardTripped, takes precedence over one that
    is.
    """
    if enough is not None and not 1 <= enough <= len(requests):
        raise ValueError(
            f"enough is {enough}: it must be between 1 and {len(requests)}, the size of the batch"
        )
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once is {at_once}: it must be at least 1")
    batch = _Batch(driver, requests, at_once or len(requests), on_end)
    try:
        while batch.running and not batch.errors and (enough is None or batch.finished < enough):
            await asyncio.wait(batch.running, return_when=asyncio.FIRST_COMPLETED)
            batch.collect()
    finally:
        # Also when this function itself is cancelled: no request may be left holding a permit.
        for task in batch.running:
            task.cancel()
        cancelled = await settle(batch.running)
        batch.collect()
    if cancelled is not None:
        raise cancelled
    if batch.errors:
        raise min(batch.errors, key=lambda error: isinstance(error, Exception))
    return list(requests)


class _Batch:
    """The tasks of a batch.

    A task leaves ``running`` when its request is reported, so each is reported once.
    """

    def __init__(
        self,
        driver: RolloutDriver,
        requests: Sequence[AsyncRolloutRequest],
        at_once: int,
        on_end: Callable[[AsyncRolloutRequest], None] | None,
    ) -> None:
        self._driver = driver
        self._gate = asyncio.Semaphore(max(at_once, 1))
        self._on_end = on_end
        self.running = {asyncio.ensure_future(self._run(request)): request for request in requests}
        self.finished = 0
        self.errors: list[BaseException] = []

    async def _run(self, request: AsyncRolloutRequest) -> None:
        async with self._gate:
            await self._driver.run(request)

    def collect(self) -> None:
        """Report the requests whose tasks are done, in the order of the batch."""
        for task in [task for task in self.running if task.done()]:
            request = self.running.pop(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.errors.append(error)
            if not request.state.is_final:
                request.stop(EndCause.CANCELLED, "the batch ended before this request began")
            # A COMPLETED request with a failure has no rewards.
            if request.state is State.COMPLETED and request.failure is None:
                self.finished += 1
            self._report(request)

    def _report(self, request: AsyncRolloutRequest) -> None:
        if self._on_end is None:
            return
        try:
            self._on_end(request)
        except BaseException as error:  # the other requests are to be reported too
            logger.exception("on_end raised for request %s", request.request_id)
            self.errors.append(error)


@dataclass(frozen=True)
class Generated:
    """One turn, with the ids exactly as the engine returned them."""

    ids: list[int]
    text: str
    finish_reason: FinishReasonTypeEnum
    retokenised: bool = False
    """True when the engine returned no ids and the text had to be encoded."""


def read_generated(answer: Any, tokenizer: Tokenizer) -> Generated:
    """Read the turn that an engine generated; raises EngineAnswerError for any other answer."""
    if not isinstance(answer, Mapping):
        raise EngineAnswerError(
            f"the engine answered with a {type(answer).__name__}; an object was expected"
        )
    finish_reason = _finish_reason(answer)

    ids = answer.get("output_ids")
    if ids is not None:
        kept = [int(number) for number in ids]
        # The text comes from the ids: they are what will be trained on, special tokens included.
        has_end = bool(kept) and kept[-1] == tokenizer.eos_token_id
        shown = tokenizer.decode(kept[:-1] if has_end else kept)
        return Generated(kept, shown, finish_reason)

    text = answer.get("text")
    if not isinstance(text, str):
        raise EngineAnswerError("the engine's answer has neither output_ids nor text")
    encoded = tokenizer.encode(text, allow_special=False)
    _warn_of_letters(text, encoded, tokenizer)
    if finish_reason is not FinishReasonTypeEnum.LENGTH:
        encoded = [*encoded, tokenizer.eos_token_id]
    return Generated(encoded, text, finish_reason, retokenised=True)


_WARNED: WeakSet[Any] = WeakSet()
"""The tokenizers whose markers were said to be encoded as letters."""


def _warn_of_letters(text: str, encoded: list[int], tokenizer: Tokenizer) -> None:
    """Log once for a tokenizer if markers that the model wrote as tokens are encoded as letters."""
    remembered = _rememberable(tokenizer)
    if remembered in _WARNED or tokenizer.encode(text, allow_special=True) == encoded:
        return
    _WARNED.add(remembered)
    logger.warning(
        "The engine returned text without output_ids, and special tokens in it, such as markers "
        "of calls, are encoded as letters: the ids are not those that the model generated. Let "
        "the engine return ids, or leave such samples out (metrics.retokenised_turns counts them)."
    )


def _rememberable(tokenizer: Tokenizer) -> Any:
    """Return the tokenizer, or its class if it is not hashable or cannot be referred to weakly."""
    try:
        hash(tokenizer)
        ref(tokenizer)
    except TypeError:
        return type(tokenizer)
    return tokenizer


def _finish_reason(answer: Mapping[str, Any]) -> FinishReasonTypeEnum:
    """Return ``meta_info.finish_reason``: a text, or an object whose ``type`` is one."""
    meta = answer.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, Mapping) else None
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    if not isinstance(kind, str):
        raise EngineAnswerError("the engine's answer has no meta_info.finish_reason.type")
    try:
        return FinishReasonTypeEnum.from_str(kind)
    except ValueError as error:
        raise EngineAnswerError(str(error)) from error
