"""The fake engine: `async_generate` like sglang's Engine, without a model or a GPU."""

from __future__ import annotations

import asyncio
import math
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
from .protocol import Ask, EngineOutput, Finish, Policy, Reply, Step
from .rendering import read_ids, read_tools, render_reply
from .requests import CALL_OPTIONS, requests_of
from .sampling import end
from .state import EngineRun, EngineSnapshot, Latency, State

CONTEXT_LENGTH = 32768
"""Tokens of prompt and answer together, unless told. Chosen: as long as that of Qwen2.5."""
STREAM_INTERVAL = 4
"""Tokens between two outputs of a stream, unless told.

Chosen: few enough that a short answer has several steps.
"""
_MOST_SEED = 2**63 - 1
"""Seeds are positive numbers of 64 bits, as in most generators of random numbers."""


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
        stream_interval: int = STREAM_INTERVAL,
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
        """Generate for a prompt or a batch.

        Returns an object, or a list of them for a batch, or an async iterator of them when
        streaming. The other options are those of sglang: ``return_logprob``, ``rid``, ... Those
        that a fake cannot use (images, adapters, priorities) are accepted and ignored.
        """
        used = {name: value for name, value in options.items() if name in CALL_OPTIONS}
        call = GenerateCall(
            text=prompt,
            input_ids=input_ids,
            sampling_params=sampling_params,
            stream=stream,
            **used,
        )
        if stream:
            return self.stream(call)
        return await self.generate(call)

    async def generate(self, call: GenerateCall) -> EngineOutput | list[EngineOutput]:
        """Generate, and return the complete output."""
        requests = self._requests(call)
        if len(requests) == 1 and requests[0].index is None:
            return await self._last(requests[0])

        without_index = [replace(request, index=None) for request in requests]
        tasks = [asyncio.ensure_future(self._last(request)) for request in without_index]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def stream(
        self, call: GenerateCall, progress: StreamProgress | None = None
    ) -> AsyncGenerator[EngineOutput, None]:
        """Yield the output as it is generated.

        The objects of a batch are interleaved and have an ``index``.
        """
        requests = self._requests(call)
        progress = progress or StreamProgress()
        progress.requests = len(requests)
        if len(requests) == 1:
            items = self._items(requests[0], progress)
        else:
            items = self._interleaved(requests, progress)
        async with aclosing(items):
            async for item in items:
                yield item

    async def _interleaved(
        self, requests: Sequence[GenerationRequest], progress: StreamProgress
    ) -> AsyncGenerator[EngineOutput, None]:
        """Yield the outputs of several requests as they come; the first error ends all."""
        queue: asyncio.Queue[tuple[EngineOutput, float] | BaseException | None] = asyncio.Queue()

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
        """Return the single requests of a call, each with an id."""
        requests = requests_of(call, self.tokenizer, self.context_length)
        named: list[GenerationRequest] = []
        for request in requests:
            self._state.arrivals += 1
            if not request.rid:
                rid = hex_id(32, self.seed, "rid", self._state.arrivals)
                request = replace(request, rid=rid)
            named.append(request)

        counts = Counter(request.rid for request in named)
        twice = sorted(rid for rid, count in counts.items() if count > 1)
        if twice:
            raise BadValue(f"Duplicate request IDs detected within the request: {twice}")
        return named

    async def _last(self, request: GenerationRequest) -> EngineOutput:
        return [item async for item in self._items(request)][-1]

    async def _items(
        self, request: GenerationRequest, progress: StreamProgress | None = None
    ) -> AsyncGenerator[EngineOutput, None]:
        """Yield the output of each step, if there is progress to report, or the last one."""
        state = self._state
        self._check_open()
        run = EngineRun(request.rid, tokens=len(request.ids))
        state.waiting[run] = None
        started = asyncio.get_running_loop().time()

        async def wait(seconds: float) -> float:
            return await self._wait_working_time(run, seconds)

        try:
            await self._acquire_slot(run)
            fate = self._faults.fate(request, state.running)
            await self._faults.before(fate, wait, state)
            generation = self._faults.during(fate, self._generation(request))

            factor = self.latency.factor(state.running)
            await wait(self.latency.first_token * factor)
            items = self._whole if progress is None else self._streamed
            async for upto, done in items(run, generation, factor):
                if progress is not None:
                    progress.shares[0] = done.share(upto)
                is_last = upto == len(done.steps)
                took = asyncio.get_running_loop().time() - started
                yield self._output(request, done, upto, took if is_last else None)
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

    def _check_open(self) -> None:
        """Refuse a request if the engine is down or its queue is full."""
        if not self._state.up:
            raise EngineDown("The engine is not running.")
        if self.max_queued is None or not self._is_full():
            return
        if len(self._state.waiting) >= self.max_queued:
            self._state.refused += 1
            raise EngineRefused("The request queue is full.")

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
        """Ask the policy, and return its reply as a generation."""
        ask = self._ask(request)
        reply = self.policy.reply(ask)
        known = self._state.cache.match(request.ids)
        prompt_tokens = reply.prompt_tokens
        if prompt_tokens is None:
            prompt_tokens = len(request.ids)
        cached_tokens = reply.cached_tokens
        if cached_tokens is None:
            # The last token of a prompt must be computed.
            cached_tokens = min(known[0], max(len(request.ids) - 1, 0))

        if reply.steps is not None:
            steps = reply.steps
            finish = reply.finish or Finish("stop", matched=self.tokenizer.eos_token_id)
        else:
            steps, finish = self._sampled(request, reply, ask.tools)
        return Generation(
            steps=steps,
            finish=finish,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            known=known,
            error=reply.error,
            error_after=reply.error_after,
        )

    def _ask(self, request: GenerationRequest) -> Ask:
        """Return what the policy is asked for a request."""
        messages = request.call.messages or read_ids(request.ids, request.prompt, self.tokenizer)
        tools = request.call.tools or read_tools(messages)
        custom = request.sampling.get("custom_params") or {}
        return Ask(
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

    def _sampled(
        self, request: GenerationRequest, reply: Reply, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[Step, ...], Finish]:
        """Write the reply in the engine's format, and end it as the request wants."""
        params = request.params
        text = render_reply(reply, self.format, tools, request.call.constraint, params.json_schema)
        room = self.context_length - len(request.ids)
        ending = end(text, params, self.tokenizer, room)
        steps = steps_of(ending, self.tokenizer, self.stream_interval, params.skip_special_tokens)

        finish = reply.finish or ending.finish
        if self.label_tool_calls and reply.calls and finish.type == "stop":
            finish = Finish("tool_calls")
        return steps, finish

    def _count_finished(self, request: GenerationRequest, generation: Generation) -> None:
        """Count a request that has ended, and remember its tokens in the prefix cache."""
        state = self._state
        if generation.finish.type == "abort":
            state.aborted += 1
        else:
            state.finished += 1
        state.prompt_tokens += generation.prompt_tokens
        state.completion_tokens += generation.tokens

        ids = list(request.ids)
        for step in generation.steps:
            ids += step.ids
        state.cache.add(ids, *generation.known)

    def _output(
        self, request: GenerationRequest, generation: Generation, upto: int, latency: float | None
    ) -> EngineOutput:
        """Return the output after ``upto`` steps; only the last has a latency."""
        if latency is not None:
            self._count_finished(request, generation)
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
        """Yield the number of steps that are done after each step."""
        for number, step in enumerate(generation.steps, start=1):
            self._fail(generation, number - 1)
            tokens = len(step.ids)
            if number == 1:
                tokens -= 1  # the first token has a time of its own
            await self._wait_working_time(run, self.latency.for_tokens(tokens, factor))
            if run.ended_by is not None:
                sent = sum(len(done.ids) for done in generation.steps[: number - 1])
                yield number - 1, generation.until(sent, run.ended_by)
                return
            run.tokens += len(step.ids)
            yield number, generation
        self._fail(generation, len(generation.steps))
        if not generation.steps:
            yield 0, generation

    async def _whole(
        self, run: EngineRun, generation: Generation, factor: float
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield once, when everything is generated or the request was aborted."""
        worked = 0.0
        if generation.error is None:
            seconds = self.latency.for_tokens(generation.tokens - 1, factor)
            worked = await self._wait_working_time(run, seconds)
        self._fail(generation, len(generation.steps))

        if run.ended_by is not None:
            seconds_per_token = self.latency.for_tokens(1, factor)
            tokens = 0
            if seconds_per_token and worked:
                tokens = int(worked / seconds_per_token) + 1
            generation = generation.until(tokens, run.ended_by)
        yield len(generation.steps), generation

    @staticmethod
    def _fail(generation: Generation, after: int) -> None:
        """Raise the error of a generation if it fails after this many steps."""
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
            paused = self._state.paused
            if not paused and worked >= seconds:
                break

            run.wake.clear()
            since = loop.time()
            endless = paused or math.isinf(seconds)
            try:
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
    if request is None:
        return engine
    return whole(0, _MOST_SEED, engine, "request", request)
