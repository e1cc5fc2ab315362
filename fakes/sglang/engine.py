"""The fake engine: `async_generate` like sglang's Engine, without a model or a GPU."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sfusion_tools.formats import get_format
from sfusion_tools.tokenizers import ByteTokenizer, Tokenizer

from ..errors import BadValue, EngineDown, EngineRefused
from ..faults import Rule
from .faults import EngineFaults
from .generation import (
    GenerateCall,
    Generation,
    GenerationRequest,
    StreamProgress,
    output,
    steps_of,
)
from .keyed_digest import hex_id, whole
from .protocol import Ask, Finish, JsonObject, Policy
from .rendering import read_ids, read_tools, render_reply
from .requests import CALL_OPTIONS, requests_of
from .sampling import end
from .state import EngineRun, EngineSnapshot, Latency, State

CONTEXT_LENGTH = 32768
"""Tokens of prompt and answer together, unless told."""


class FakeSGLang:
    """An engine whose text comes from a policy.

    Its answers depend on the seed and the request, never on the order of arrival. It takes the time
    from the running event loop, so it also runs on virtual time. With ``label_tool_calls``, a turn
    that calls tools ends with ``tool_calls``, as verl's rollout expects; sglang's engine reports
    ``stop``, which its chat route changes.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        format: str = "qwen25",
        tokenizer: Tokenizer | None = None,
        context_length: int = CONTEXT_LENGTH,
        latency: Latency | None = None,
        max_running: int | None = None,
        max_queued: int | None = None,
        stream_interval: int = 4,
        label_tool_calls: bool = False,
        faults: Iterable[Rule] = (),
        seed: int = 0,
        step: int = 0,
    ) -> None:
        if max_running is not None and max_running < 1:
            raise ValueError(f"max_running must be at least 1, found {max_running}")
        if stream_interval < 1:
            raise ValueError(f"stream_interval must be at least 1, found {stream_interval}")
        self.policy = policy
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.context_length = context_length
        self.latency = latency or Latency()
        self.max_queued = max_queued
        self.stream_interval = stream_interval
        self.weight_version = "default"
        self.label_tool_calls = label_tool_calls
        self.seed = seed
        self.step = step
        self.format = get_format(format)
        self.max_running = max_running
        self._state = State()
        self._faults = EngineFaults(faults, seed)
        self._idle = asyncio.Event()

    async def async_generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        *,
        stream: bool = False,
        **options: Any,
    ) -> Any:
        """Generate for a prompt or a batch: an object or a list of them, or an async iterator of
        them when streaming.

        The other options are those of sglang: ``return_logprob``, ``rid``, ... Those that a fake
        cannot use (images, adapters, priorities) are accepted and ignored.
        """
        used = {name: value for name, value in options.items() if name in CALL_OPTIONS}
        call = GenerateCall(
            text=prompt, input_ids=input_ids, sampling_params=sampling_params, stream=stream, **used
        )
        return self.stream(call) if stream else await self.generate(call)

    async def generate(self, call: GenerateCall) -> JsonObject | list[JsonObject]:
        """Generate, and return the complete output."""
        requests = self._requests(call)
        if len(requests) == 1 and requests[0].index is None:
            return await self._last(requests[0])
        tasks = [
            asyncio.ensure_future(self._last(replace(request, index=None))) for request in requests
        ]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def stream(
        self, call: GenerateCall, progress: StreamProgress | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """Yield the output as it is generated; the objects of a batch are interleaved and have an
        ``index``."""
        requests = self._requests(call)
        progress = progress or StreamProgress()
        progress.requests = len(requests)
        if len(requests) == 1:
            async with aclosing(self._items(requests[0], progress)) as items:
                async for item in items:
                    yield item
            return
        queue: asyncio.Queue[tuple[JsonObject, float] | BaseException | None] = asyncio.Queue()

        async def feed(request: GenerationRequest) -> None:
            own = StreamProgress()
            try:
                async for item in self._items(request, own):
                    queue.put_nowait((item, own.generated))
                queue.put_nowait(None)
            except Exception as error:
                queue.put_nowait(error)

        tasks = [asyncio.ensure_future(feed(request)) for request in requests]
        left = len(tasks)
        try:
            while left:
                got = await queue.get()
                if isinstance(got, BaseException):
                    raise got
                if got is None:
                    left -= 1
                else:
                    item, share = got
                    progress.shares[item["index"]] = share
                    yield item
        finally:
            for task in tasks:
                task.cancel()

    def abort_request(self, rid: str = "", abort_all: bool = False) -> int:
        """Abort the running requests whose id begins with ``rid``, or all; return how many."""
        return self._state.abort(rid, abort_all)

    def flush_cache(self) -> bool:
        """Clear the prefix cache; return False while anything runs."""
        if self._state.idle:
            self._state.cache.clear()
        return self._state.idle

    async def flush_when_idle(self, timeout: float) -> bool:
        """Clear the prefix cache as soon as nothing runs; return False on timeout."""
        try:
            async with asyncio.timeout(timeout):
                while not self.flush_cache():
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def pause_generation(self, mode: str = "abort") -> None:
        """Pause; in mode ``abort``, abort the running requests first."""
        if mode == "abort":
            self._state.abort("", True)
        self._state.paused = True
        self._notify()

    def continue_generation(self) -> None:
        self._state.paused = False
        self._notify()

    def crash(self) -> None:
        """Crash: running requests are lost, and nothing is served until :meth:`restart`."""
        self._state.crash()

    def restart(self) -> None:
        """Recover from a crash, with an empty cache."""
        self._state.restart()

    def set_faults(self, rules: Iterable[Rule]) -> None:
        """Replace the faults; counters restart now, clocks with the next request."""
        self._faults = EngineFaults(rules, self.seed)

    def fault_strikes(self) -> dict[str, int]:
        """How often each of its rules has struck."""
        return self._faults.plan.strikes()

    def snapshot(self) -> EngineSnapshot:
        return self._state.snapshot()

    @property
    def up(self) -> bool:
        """False between a crash and the restart."""
        return self._state.up

    def _notify(self) -> None:
        for run in self._state.runs:
            run.wake.set()

    def _requests(self, call: GenerateCall) -> list[GenerationRequest]:
        requests = requests_of(call, self.tokenizer, self.context_length)
        named: list[GenerationRequest] = []
        for request in requests:
            self._state.arrivals += 1
            if not request.rid:
                request = replace(request, rid=hex_id(32, self.seed, "rid", self._state.arrivals))
            named.append(request)
        if twice := sorted(
            rid for rid, count in Counter(one.rid for one in named).items() if count > 1
        ):
            raise BadValue(f"Duplicate request IDs detected within the request: {twice}")
        return named

    async def _last(self, request: GenerationRequest) -> JsonObject:
        return [item async for item in self._items(request)][-1]

    async def _items(
        self, request: GenerationRequest, progress: StreamProgress | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """Yield the output of each step, if there is progress to report, or the last one."""
        state, stream = self._state, progress is not None
        if not state.up:
            raise EngineDown("The engine is not running.")
        if (
            self._is_full()
            and self.max_queued is not None
            and len(state.waiting) >= self.max_queued
        ):
            state.refused += 1
            raise EngineRefused("The request queue is full.")
        run = EngineRun(request.rid)
        state.waiting[run] = None
        started = asyncio.get_running_loop().time()
        try:
            await self._acquire_slot(run)
            fate = self._faults.fate(request, state.running)
            await self._faults.before(
                fate, lambda seconds: self._wait_working_time(run, seconds), state
            )
            generation = self._faults.during(fate, self._generation(request))
            factor = self.latency.factor(state.running)
            await self._wait_working_time(run, self.latency.first_token * factor)
            items = self._streamed if stream else self._whole
            async for upto, done in items(run, generation, factor):
                took = asyncio.get_running_loop().time() - started
                if progress is not None:
                    progress.shares[0] = done.share(upto)
                yield self._output(request, done, upto, took if upto == len(done.steps) else None)
        except Exception:
            state.failed += 1
            raise
        except (asyncio.CancelledError, GeneratorExit):
            state.aborted += 1  # the caller has gone
            raise
        finally:
            state.leave(run)
            self._admit_next()
            if state.idle:
                self._idle.set()

    def _is_full(self) -> bool:
        return self.max_running is not None and self._state.running >= self.max_running

    async def _acquire_slot(self, run: EngineRun) -> None:
        """Wait for a slot, in order of arrival."""
        while self._is_full() or self._state.first_waiting() is not run:
            if run.ended_by or run.crashed:
                break
            run.wake.clear()
            await run.wake.wait()
        self._state.admit(run)
        self._admit_next()

    def _admit_next(self) -> None:
        waiting = self._state.first_waiting()
        if waiting is not None and not self._is_full():
            waiting.wake.set()

    def _generation(self, request: GenerationRequest) -> Generation:
        messages = request.call.messages or read_ids(request.ids, request.prompt, self.tokenizer)
        tools = request.call.tools or read_tools(messages)
        custom = request.sampling.get("custom_params") or {}
        ask = Ask(
            prompt=request.prompt,
            messages=messages,
            tools=tools,
            sampling=request.sampling,
            rid=request.rid,
            sample=request.sample,
            seed=_seed(self.seed, request.sampling.get("sampling_seed")),
            step=custom.get("step", self.step),
            format=self.format.name,
        )
        reply = self.policy.reply(ask)
        prompt_tokens = len(request.ids) if reply.prompt_tokens is None else reply.prompt_tokens
        known = self._state.cache.match(request.ids)
        # The last token of a prompt must be computed.
        cached = (
            min(known[0], max(len(request.ids) - 1, 0))
            if reply.cached_tokens is None
            else reply.cached_tokens
        )
        if reply.steps is not None:
            steps, finish = (
                reply.steps,
                reply.finish or Finish("stop", matched=self.tokenizer.eos_token_id),
            )
        else:
            text = render_reply(
                reply, self.format, tools, request.call.constraint, request.params.json_schema
            )
            ending = end(
                text, request.params, self.tokenizer, self.context_length - len(request.ids)
            )
            skip = request.params.skip_special_tokens
            steps = steps_of(ending, self.tokenizer, self.stream_interval, skip)
            finish = reply.finish or ending.finish
            if self.label_tool_calls and reply.calls and finish.type == "stop":
                finish = Finish("tool_calls")
        return Generation(
            steps, finish, prompt_tokens, cached, known, reply.error, reply.error_after
        )

    def _output(
        self, request: GenerationRequest, generation: Generation, upto: int, latency: float | None
    ) -> JsonObject:
        state = self._state
        if latency is not None:
            aborted = generation.finish.type == "abort"
            state.aborted += aborted
            state.finished += not aborted
            state.prompt_tokens += generation.prompt_tokens
            state.completion_tokens += generation.tokens
            ids = [*request.ids, *(number for step in generation.steps for number in step.ids)]
            state.cache.add(ids, *generation.known)
        return output(
            request,
            generation,
            upto,
            seed=self.seed,
            tokenizer=self.tokenizer,
            weight_version=self.weight_version,
            latency=latency,
        )

    async def _streamed(
        self, run: EngineRun, generation: Generation, factor: float
    ) -> AsyncIterator[tuple[int, Generation]]:
        for number, step in enumerate(generation.steps, start=1):
            self._fail(generation, number - 1)
            tokens = len(step.ids) - (number == 1)
            await self._wait_working_time(run, self.latency.for_tokens(tokens, factor))
            if run.ended_by is not None:
                sent = sum(len(done.ids) for done in generation.steps[: number - 1])
                yield number - 1, generation.until(sent, run.ended_by)
                return
            yield number, generation
        self._fail(generation, len(generation.steps))
        if not generation.steps:
            yield 0, generation

    async def _whole(
        self, run: EngineRun, generation: Generation, factor: float
    ) -> AsyncIterator[tuple[int, Generation]]:
        worked = 0.0
        if generation.error is None:
            worked = await self._wait_working_time(
                run, self.latency.for_tokens(generation.tokens - 1, factor)
            )
        self._fail(generation, len(generation.steps))
        if run.ended_by is not None:
            each = self.latency.for_tokens(1, factor)
            tokens = int(worked / each) + 1 if each and worked else 0
            generation = generation.until(tokens, run.ended_by)
        yield len(generation.steps), generation

    @staticmethod
    def _fail(generation: Generation, after: int) -> None:
        if generation.error is not None and after >= generation.error_after:
            raise generation.error

    async def _wait_working_time(self, run: EngineRun, seconds: float) -> float:
        """Wait for working time to pass or the request to end; pauses do not count."""
        loop = asyncio.get_running_loop()
        worked = 0.0
        await asyncio.sleep(0)
        while not run.ended_by:
            if run.crashed:
                raise EngineDown("The engine died while the request was running.")
            if not self._state.paused and worked >= seconds:
                break
            run.wake.clear()
            since = loop.time()
            paused = self._state.paused
            try:
                endless = paused or seconds == float("inf")
                async with asyncio.timeout(None if endless else seconds - worked):
                    await run.wake.wait()
            except TimeoutError:
                worked = seconds
                continue
            if not paused:
                worked += loop.time() - since
        return worked


def _seed(engine: int, request: int | None) -> int:
    """The seed of what a policy draws: the engine's, changed by the request's if it has one."""
    return engine if request is None else whole(0, 2**63 - 1, engine, "request", request)
