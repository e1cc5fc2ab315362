"""Mistakes drawn instead of listed: every value that a right tool handles, altered in every way
that is wrong.

A mutation is a site (a step of ``GoodTool`` and a part of what it returns), an operator and a
condition. What would still be a right tool is not drawn: another wording, a longer pause, more
patience.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from tests.reference_tool import PROGRAMS, GoodTool, PeerRequest, PeerResult, Shared

Operator = Callable[[Any, "_Past"], Any]


class _Past:
    """The earlier values of a site."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.changed = 0

    @property
    def stale(self) -> Any:
        return self.values[-2] if len(self.values) > 1 else self.values[-1]


def _lines(change: Callable[[list[str]], list[str]]) -> Operator:
    return lambda text, past: "".join(change(text.splitlines(keepends=True)))


def _always(value: Any) -> Operator:
    return lambda _, past: value


def _if_outcome(name: str) -> Callable[[_Past, Any], bool]:
    return lambda past, outcome: bool(outcome == name)


def _swapped_in(text: str, at: int) -> str:
    return text[:at] + text[at : at + 2][::-1] + text[at + 2 :]


def _some(operators: dict[str, Operator], names: str) -> dict[str, Operator]:
    return {name: operators[name] for name in names.split()}


TEXT: dict[str, Operator] = {
    "emptied": lambda text, past: "",
    "first-character-dropped": lambda text, past: text.lstrip()[1:],
    "last-character-dropped": lambda text, past: text.rstrip()[:-1],
    "first-line-dropped": _lines(lambda lines: lines[1:]),
    "last-line-dropped": _lines(lambda lines: lines[:-1]),
    "middle-dropped": lambda text, past: text[: len(text) // 2 - 1] + text[len(text) // 2 + 1 :],
    "doubled": lambda text, past: text + text,
    "last-line-doubled": _lines(lambda lines: lines + lines[-1:]),
    "lines-reversed": _lines(lambda lines: lines[::-1]),
    "characters-swapped": lambda text, past: _swapped_in(text, len(text) // 2),
    "upper-case": lambda text, past: text.upper(),
    "ascii-only": lambda text, past: text.encode("ascii", "replace").decode(),
    "blank-lines-dropped": _lines(lambda lines: [line for line in lines if line.strip()]),
    "indentation-dropped": _lines(lambda lines: [line.lstrip(" \t") for line in lines]),
    "ends-of-lines-stripped": _lines(lambda lines: [line.rstrip() + "\n" for line in lines]),
    "lines-joined": lambda text, past: " ".join(text.split("\n")),
    "halved": lambda text, past: text[: len(text) // 2],
    "cut-at-100": lambda text, past: text[:100],
    "end-only": lambda text, past: text[-40:],
    "of-the-call-before": lambda text, past: past.stale,
    "of-the-first-call": lambda text, past: past.values[0],
    "with-that-of-the-call-before": lambda text, past: (
        text + past.stale if past.stale is not text else text
    ),
}
OUTPUT = TEXT
PROGRAM: dict[str, Operator] = {
    **TEXT,
    "three-lines-prepended": lambda text, past: f"import os\nimport sys\n\n{text}",
    "comment-appended": lambda text, past: f"{text}# sent by a tool\n",
    "newlines-changed": lambda text, past: text.replace("\n", "\r\n"),
    "tabs-expanded": lambda text, past: text.expandtabs(4),
    "unescaped": lambda text, past: text.replace("\\n", "\n"),
}
NUMBER: dict[str, Operator] = {
    "plus-one": lambda number, past: number + 1,
    "minus-one": lambda number, past: number - 1,
    "doubled": lambda number, past: number * 2,
    "zero": lambda number, past: 0,
    "one": lambda number, past: 1,
    "negated": lambda number, past: -number,
    "of-the-call-before": lambda number, past: past.stale,
    "of-the-first-call": lambda number, past: past.values[0],
}
WAIT: dict[str, Operator] = {
    "zero": lambda number, past: 0.0,
    "tenth": lambda number, past: number / 10,
    "endless": lambda number, past: 1e6,
}
REMARK = {name: TEXT[name] for name in ("emptied", "of-the-call-before", "of-the-first-call")}
OUTCOMES = (
    *PROGRAMS,
    "throttled",
    "sandbox_error",
    "unreachable",
    "transport_timeout",
    "bad_response",
    "bad_arguments",
)
OUTCOME: dict[str, Operator] = {f"always-{one}": _always(one) for one in OUTCOMES}
FLAG: dict[str, Operator] = {
    "inverted": lambda flag, past: not flag,
    "always-true": lambda flag, past: True,
    "always-false": lambda flag, past: False,
}
LANGUAGE: dict[str, Operator] = {
    "always-python": lambda name, past: "python",
    "always-cpp": lambda name, past: "cpp",
    "of-the-call-before": lambda name, past: past.stale,
}
DROPPED: dict[str, Operator] = {"dropped": lambda value, past: None}

Condition = Callable[[_Past, Any], bool]
ALWAYS: dict[str, Condition] = {"": lambda past, outcome: True}
SOMETIMES: dict[str, Condition] = {
    "every-third": lambda past, outcome: len(past.values) % 3 == 0,
    "after-the-fifth": lambda past, outcome: len(past.values) > 5,
}
OF_PROGRAMS: dict[str, Condition] = {f"if-{one}": _if_outcome(one) for one in PROGRAMS}
OF_FAILED_PROGRAMS = {key: OF_PROGRAMS[key] for key in ("if-program_error", "if-program_timeout")}
OF_FAILURES: dict[str, Condition] = {
    f"if-{one}": _if_outcome(one) for one in OUTCOMES if one not in PROGRAMS
}


@dataclasses.dataclass(frozen=True)
class Site:
    """A step of the tool, and the part of its value that is altered: an attribute, a key, or all
    of it."""

    step: str
    part: str
    operators: dict[str, Operator]
    conditions: dict[str, Condition]


SITES = (
    Site("arguments", "code", PROGRAM, ALWAYS),
    Site(
        "arguments",
        "code",
        _some(PROGRAM, "lines-joined halved ends-of-lines-stripped"),
        SOMETIMES,
    ),
    Site("arguments", "timeout", NUMBER, ALWAYS),
    Site(
        "body",
        "code",
        _some(PROGRAM, "emptied upper-case ascii-only of-the-call-before"),
        ALWAYS,
    ),
    Site("body", "language", LANGUAGE, ALWAYS),
    Site("body", "run_timeout", {**NUMBER, **DROPPED}, ALWAYS),
    Site("body", "compile_timeout", {**NUMBER, **DROPPED}, ALWAYS),
    Site("body", "memory_limit_MB", {**NUMBER, **DROPPED}, ALWAYS),
    Site("printed", "stdout", OUTPUT, ALWAYS | OF_FAILED_PROGRAMS),
    Site("printed", "stderr", OUTPUT, ALWAYS),
    Site("printed", "code", NUMBER, ALWAYS | SOMETIMES),
    Site("printed", "outcome", OUTCOME, OF_PROGRAMS),
    Site("output", "", OUTPUT, ALWAYS | SOMETIMES),
    Site(
        "cut",
        "",
        _some(
            OUTPUT,
            "first-character-dropped last-character-dropped halved doubled middle-dropped "
            "lines-reversed end-only",
        ),
        ALWAYS,
    ),
    Site(
        "text",
        "",
        _some(OUTPUT, "emptied of-the-call-before of-the-first-call doubled cut-at-100"),
        ALWAYS | SOMETIMES | OF_PROGRAMS,
    ),
    Site("text", "", _some(OUTPUT, "emptied of-the-call-before"), OF_FAILURES),
    Site(
        "remark",
        "",
        REMARK,
        ALWAYS | {key: OF_PROGRAMS[key] for key in OF_PROGRAMS if key != "if-ok"},
    ),
    Site("metrics", "outcome", OUTCOME, ALWAYS),
    Site("metrics", "outcome", {"of-the-call-before": TEXT["of-the-call-before"]}, ALWAYS),
    Site("metrics", "infrastructure", FLAG, ALWAYS),
    Site("metrics", "permit_wait_s", NUMBER, ALWAYS),
    Site(
        "calc_reward",
        "",
        _some(NUMBER, "one zero of-the-call-before of-the-first-call negated"),
        ALWAYS | SOMETIMES,
    ),
    Site("step_reward", "", {"zero": NUMBER["zero"], "one": NUMBER["one"]}, ALWAYS),
    Site(
        "retry_after",
        "",
        {"zero": NUMBER["zero"], "minus-one": NUMBER["minus-one"], **WAIT},
        ALWAYS,
    ),
    Site("pause", "", {"zero": NUMBER["zero"], "negated": NUMBER["negated"]}, ALWAYS),
    Site(
        "seconds",
        "",
        {"zero": WAIT["zero"], "tenth": WAIT["tenth"], "endless": WAIT["endless"]},
        ALWAYS,
    ),
)


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One altered tool; ``past.changed`` counts how often it did something else than the right
    one."""

    name: str
    tool: type[GoodTool]
    past: _Past


def drawn() -> Iterator[Mutation]:
    """Yield every mutation, the same in every process."""
    for site in SITES:
        for operator_name, operator in site.operators.items():
            for condition_name, condition in site.conditions.items():
                place = f"{site.step}.{site.part}" if site.part else site.step
                yield _mutated(
                    f"{place} {operator_name} {condition_name}".strip(), site, operator, condition
                )
    for name, change in STEPS.items():
        past = _Past()
        past.changed = 1
        yield Mutation(f"step {name}", type("Mutated", (GoodTool,), change()), past)


def _mutated(name: str, site: Site, operator: Operator, condition: Condition) -> Mutation:
    past = _Past()
    original = getattr(GoodTool, site.step)

    def alter(value: Any, given: tuple[Any, ...]) -> Any:
        whole = value
        if site.part:
            value = (
                whole.get(site.part) if isinstance(whole, dict) else getattr(whole, site.part, None)
            )
        if value is None and not (
            site.step == "step_reward"
            or (site.step == "calc_reward" and name.split()[1] in ("one", "zero"))
        ):
            return whole
        past.values.append(value)
        if not condition(past, _outcome(whole, given)):
            return whole
        altered = operator(value, past)
        if altered == value:
            return whole
        past.changed += 1
        if not site.part:
            return altered
        if isinstance(whole, dict):
            rest = {key: one for key, one in whole.items() if key != site.part}
            return rest if altered is None else {**whole, site.part: altered}
        return dataclasses.replace(whole, **{site.part: altered})

    if inspect.iscoroutinefunction(original):

        async def later(self: GoodTool, *given: Any, **more: Any) -> Any:
            return alter(await original(self, *given, **more), given)

        return Mutation(name, type("Mutated", (GoodTool,), {site.step: later}), past)

    def now(self: GoodTool, *given: Any, **more: Any) -> Any:
        return alter(original(self, *given, **more), given)

    return Mutation(name, type("Mutated", (GoodTool,), {site.step: now}), past)


def _outcome(value: Any, given: tuple[Any, ...]) -> Any:
    for one in (*given, value):
        if isinstance(one, PeerResult):
            return one.outcome
    return given[0] if given and isinstance(given[0], str) else None


# -- steps: what is done, how often, when and in which order --


def _permit(around: Callable[[Shared], Any]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        @asynccontextmanager
        async def permit(self: GoodTool, shared: Shared) -> AsyncIterator[None]:
            async with around(shared):
                yield

        return {"permit": permit}

    return make


@asynccontextmanager
async def _no_permit(shared: Shared) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def _never_returned(shared: Shared) -> AsyncIterator[None]:
    await shared.gate.acquire()
    yield


@asynccontextmanager
async def _returned_on_success(shared: Shared) -> AsyncIterator[None]:
    await shared.gate.acquire()
    yield
    shared.gate.release()


@asynccontextmanager
async def _returned_twice(shared: Shared) -> AsyncIterator[None]:
    async with shared.gate:
        yield
    shared.gate.release()


@asynccontextmanager
async def _taken_twice(shared: Shared) -> AsyncIterator[None]:
    async with shared.gate, asyncio.timeout(None):
        yield
        await asyncio.sleep(1.0)


@asynccontextmanager
async def _returned_early(shared: Shared) -> AsyncIterator[None]:
    async with shared.gate:
        pass
    yield


@asynccontextmanager
async def _delayed_with_it(shared: Shared) -> AsyncIterator[None]:
    async with shared.gate:
        await asyncio.sleep(1.0)
        yield


@asynccontextmanager
async def _shielded(shared: Shared) -> AsyncIterator[None]:
    await asyncio.shield(shared.gate.acquire())
    try:
        yield
    finally:
        shared.gate.release()


@asynccontextmanager
async def _returned_unless_cancelled(shared: Shared) -> AsyncIterator[None]:
    await shared.gate.acquire()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException:
        shared.gate.release()
        raise
    else:
        shared.gate.release()


@asynccontextmanager
async def _one_for_all(shared: Shared) -> AsyncIterator[None]:
    lock: asyncio.Lock = shared.__dict__.setdefault("lock", asyncio.Lock())
    async with lock, shared.gate:
        yield


@asynccontextmanager
async def _last_first(shared: Shared) -> AsyncIterator[None]:
    waiting: list[asyncio.Future[None]] = shared.__dict__.setdefault("waiting", [])
    if shared.gate.locked():
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in waiting:
                waiting.remove(turn)
            else:
                shared.gate.release()
            raise
    else:
        await shared.gate.acquire()
    try:
        yield
    finally:
        if waiting:
            waiting.pop().set_result(None)
        else:
            shared.gate.release()


def _run(change: Callable[[Any, PeerRequest], Any]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        original = GoodTool.run
        kept: dict[str, Any] = {}

        async def run(self: GoodTool, request: PeerRequest) -> PeerResult:
            result: PeerResult = await change(
                (lambda: original(self, request), kept, self), request
            )
            return result

        return {"run": run}

    return make


async def _twice(tool: Any, request: PeerRequest) -> PeerResult:
    await tool[0]()
    result: PeerResult = await tool[0]()
    return result


async def _at_once(tool: Any, request: PeerRequest) -> PeerResult:
    first, _ = await asyncio.gather(tool[0](), tool[0]())
    return first  # type: ignore[no-any-return]


async def _in_background(tool: Any, request: PeerRequest) -> PeerResult:
    result: PeerResult = await asyncio.shield(tool[0]())
    return result


async def _again_later(tool: Any, request: PeerRequest) -> PeerResult:
    result: PeerResult = await tool[0]()
    tool[1]["task"] = asyncio.ensure_future(tool[0]())
    return result


async def _never_sent(tool: Any, request: PeerRequest) -> PeerResult:
    return PeerResult("ok")


async def _sent_once_only(tool: Any, request: PeerRequest) -> PeerResult:
    if "first" not in tool[1]:
        tool[1]["first"] = await tool[0]()
    first: PeerResult = tool[1]["first"]
    return first


async def _cached_by_code(tool: Any, request: PeerRequest) -> PeerResult:
    if request.code not in tool[1]:
        tool[1][request.code] = await tool[0]()
    found: PeerResult = tool[1][request.code]
    return found


async def _delayed(tool: Any, request: PeerRequest) -> PeerResult:
    await asyncio.sleep(0.5)
    result: PeerResult = await tool[0]()
    return result


async def _blocking(tool: Any, request: PeerRequest) -> PeerResult:
    time.sleep(0.3)  # noqa: ASYNC251 - the mistake
    result: PeerResult = await tool[0]()
    return result


async def _swapped(tool: Any, request: PeerRequest) -> PeerResult:
    mine: PeerResult = await tool[0]()
    other: PeerResult | None = tool[1].pop("waiting", None)
    tool[1]["waiting"] = mine
    return other or mine


async def _cancellation_swallowed(tool: Any, request: PeerRequest) -> PeerResult:
    try:
        result: PeerResult = await tool[0]()
    except asyncio.CancelledError:
        return PeerResult("sandbox_error", "cancelled")
    return result


async def _one_at_a_time(tool: Any, request: PeerRequest) -> PeerResult:
    async with (
        tool[1].setdefault("lock", asyncio.Lock()) if _same_loop(tool[1]) else asyncio.Lock()
    ):
        result: PeerResult = await tool[0]()
    return result


def _same_loop(kept: dict[str, Any]) -> bool:
    loop = asyncio.get_running_loop()
    if kept.get("loop") is not loop:
        kept.clear()
        kept["loop"] = loop
    return True


def _method(name: str, method: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {name: method}


async def _not_released(self: GoodTool, instance_id: str, **kwargs: Any) -> None:
    return


async def _truth_kept(self: GoodTool, instance_id: str, **kwargs: Any) -> None:
    self.last.pop(instance_id, None)


async def _arguments_emptied(
    self: GoodTool, instance_id: str, parameters: Any, **kwargs: Any
) -> Any:
    answer = await GoodTool.execute(self, instance_id, parameters, **kwargs)
    if isinstance(parameters, dict):
        parameters.clear()
    return answer


async def _arguments_filled(
    self: GoodTool, instance_id: str, parameters: Any, **kwargs: Any
) -> Any:
    if isinstance(parameters, dict):
        parameters.setdefault("timeout", self.config["default_timeout"])
    return await GoodTool.execute(self, instance_id, parameters, **kwargs)


async def _one_dict_of_metrics(self: Any, instance_id: str, parameters: Any, **kwargs: Any) -> Any:
    response, reward, metrics = await GoodTool.execute(self, instance_id, parameters, **kwargs)
    kept = self.__dict__.setdefault("metrics_of_all", {})
    kept.update(metrics or {"calls": len(kept)})
    kept["calls"] = kept.get("calls", 0) + 1
    return response, reward, kept


async def _instances_mixed(self: GoodTool, instance_id: str, **kwargs: Any) -> Any:
    return await GoodTool.calc_reward(self, next(reversed(self.last), instance_id))


def _printing(self: GoodTool, request: PeerRequest) -> dict[str, Any]:
    print("sending", request.call, self.config["headers"])
    return GoodTool.body(self, request)


def _streams_swapped(self: GoodTool, outcome: str, part: dict[str, Any]) -> PeerResult:
    return GoodTool.printed(
        self, outcome, {**part, "stdout": part["stderr"], "stderr": part["stdout"]}
    )


def _stderr_in_stdout(self: GoodTool, outcome: str, part: dict[str, Any]) -> PeerResult:
    both = (part["stdout"] or "") + (part["stderr"] or "")
    return GoodTool.printed(self, outcome, {**part, "stdout": both, "stderr": both})


def _headers(change: Callable[[dict[str, str]], dict[str, str]]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        def init(self: GoodTool, config: dict[str, Any], tool_schema: Any = None) -> None:
            GoodTool.__init__(self, {**config, "headers": change(config["headers"])}, tool_schema)

        return {"__init__": init}

    return make


def _setting(**changed: Any) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        def init(self: GoodTool, config: dict[str, Any], tool_schema: Any = None) -> None:
            new = {
                key: value(config.get(key)) if callable(value) else value
                for key, value in changed.items()
            }
            GoodTool.__init__(self, {**config, **new}, tool_schema)

        return {"__init__": init}

    return make


def _field_renamed(old: str, new: str) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        def body(self: GoodTool, request: PeerRequest) -> dict[str, Any]:
            return {
                new if key == old else key: value
                for key, value in GoodTool.body(self, request).items()
            }

        return {"body": body}

    return make


def _read_status(change: Callable[[int], int]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        def read(self: GoodTool, status: int, headers: Any, body: bytes) -> PeerResult:
            return GoodTool.read(self, change(status), headers, body)

        return {"read": read}

    return make


STEPS: dict[str, Callable[[], dict[str, Any]]] = {
    "permit not taken": _permit(_no_permit),
    "permit never returned": _permit(_never_returned),
    "permit returned on success only": _permit(_returned_on_success),
    "permit returned twice": _permit(_returned_twice),
    "permit kept a second longer": _permit(_taken_twice),
    "permit returned before the request": _permit(_returned_early),
    "request delayed while it has its permit": _permit(_delayed_with_it),
    "permit of a cancelled waiter lost": _permit(_shielded),
    "permit of a cancelled request lost": _permit(_returned_unless_cancelled),
    "a lock around the permit": _permit(_one_for_all),
    "the last waiter is served first": _permit(_last_first),
    "each call made twice": _run(_twice),
    "each call made twice at once": _run(_at_once),
    "calls go on in the background": _run(_in_background),
    "each call made again when it has ended": _run(_again_later),
    "nothing is sent": _run(_never_sent),
    "one answer for all": _run(_sent_once_only),
    "answers cached by code": _run(_cached_by_code),
    "each call delayed": _run(_delayed),
    "the loop is blocked": _run(_blocking),
    "results swapped between calls": _run(_swapped),
    "cancellation swallowed": _run(_cancellation_swallowed),
    "one call at a time": _run(_one_at_a_time),
    "instances not released": _method("release", _not_released),
    "ground truths not released": _method("release", _truth_kept),
    "arguments emptied": _method("execute", _arguments_emptied),
    "arguments filled in": _method("execute", _arguments_filled),
    "metrics in one dict": _method("execute", _one_dict_of_metrics),
    "rewards of the latest instance": _method("calc_reward", _instances_mixed),
    "headers printed": _method("body", _printing),
    "streams swapped": _method("printed", _streams_swapped),
    "stderr in both streams": _method("printed", _stderr_in_stdout),
    "headers not sent": _headers(lambda headers: {}),
    "first header not sent": _headers(lambda headers: dict(list(headers.items())[1:])),
    "headers in lower case": _headers(
        lambda headers: {name: value.lower() for name, value in headers.items()}
    ),
    "rate_limit doubled": _setting(rate_limit=lambda limit: 2 * limit),
    "rate_limit plus one": _setting(rate_limit=lambda limit: limit + 1),
    "rate_limit minus one": _setting(rate_limit=lambda limit: max(1, limit - 1)),
    "default_timeout ignored": _setting(default_timeout=30.0),
    "compile_timeout ignored": _setting(compile_timeout=10.0),
    "memory limit ignored": _setting(memory_limit_mb=1024),
    "deadline ignored": _setting(call_deadline=None),
    "deadline doubled": _setting(call_deadline=lambda deadline: deadline and 2 * deadline),
    "first sandbox only": _setting(sandbox_fusion_url=lambda urls: urls[:1]),
    "last sandbox only": _setting(sandbox_fusion_url=lambda urls: urls[-1:]),
    "memory_limit_mb for memory_limit_MB": _field_renamed("memory_limit_MB", "memory_limit_mb"),
    "timeout for run_timeout": _field_renamed("run_timeout", "timeout"),
    "compileTimeout for compile_timeout": _field_renamed("compile_timeout", "compileTimeout"),
    "lang for language": _field_renamed("language", "lang"),
    "source for code": _field_renamed("code", "source"),
    "429 taken for success": _read_status(lambda status: 200 if status == 429 else status),
    "5xx taken for success": _read_status(lambda status: 200 if status >= 500 else status),
    "429 taken for 404": _read_status(lambda status: 404 if status == 429 else status),
    "success taken for 500": _read_status(lambda status: 500 if status == 200 else status),
}
