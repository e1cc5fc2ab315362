"""The fake engine as a server, started from async or from synchronous code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self, Unpack

from sfusion.fakes.errors import UnsafeBindError
from sfusion.fakes.faults import Rule
from sfusion.fakes.sglang.app import SGLangApp
from sfusion.fakes.sglang.engine import FakeSGLang
from sfusion.fakes.sglang.faults import engine_rules, split
from sfusion.fakes.sglang.policies import Gsm8kSolver
from sfusion.fakes.sglang.protocol import Policy
from sfusion.fakes.sglang.quirks import Quirks
from sfusion.fakes.sglang.routes import ModelInfo
from sfusion.fakes.wire import Answer, Request, Served, ServerOptions, WireServer
from sfusion.fakes.wire.metrics import queue_family
from sfusion.fakes.wire.served import server_of
from sfusion_tools.exposition import MetricFamily, single
from sfusion_tools.hosts import is_loopback


class _EngineServer(WireServer):
    """A server that crashes and restarts together with its engine."""

    app: SGLangApp

    def crash(self, *, restart_after: float | None = None) -> None:
        super().crash(restart_after=restart_after)
        self.app.engine.crash()

    async def restart(self) -> None:
        self.app.engine.restart()
        await super().restart()


class FakeSGLangServer(Served):
    """An sglang server without a model.

    ``async with FakeSGLangServer(policy) as server`` inside a loop, ``with FakeSGLangServer(policy) as server``
    anywhere else (its loop then runs in a thread); then ``server.url``. Takes a policy, or an engine that has one.
    ``tool_call_parser`` is the format in which calls are written and read; None turns tool calls off, as in sglang.
    """

    def __init__(
        self,
        policy: Policy | FakeSGLang | None = None,
        *,
        tool_call_parser: str | None = "qwen25",
        reasoning_parser: str | None = None,
        quirks: Quirks = None,
        model: str = "fake-model",
        report_cache: bool = False,
        **options: Unpack[ServerOptions],
    ) -> None:
        host = options.get("host", "127.0.0.1")
        if not options.get("allow_remote") and not is_loopback(host):
            raise UnsafeBindError(
                f"{host} can be reached from other machines; give allow_remote (--allow-remote) if that is intended"
            )
        if isinstance(policy, FakeSGLang):
            self.engine = policy
        else:
            self.engine = FakeSGLang(
                policy or Gsm8kSolver(), format=tool_call_parser or "qwen25", seed=options.get("seed", 0)
            )
        self.info = ModelInfo(
            name=model,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            quirks=quirks,
            report_cache=report_cache,
        )
        self.app = SGLangApp(self.engine, self.info)
        self.rules: list[Rule] = engine_rules(list(options.get("faults", ())))
        at_socket, in_engine = split(self.rules)
        if in_engine:
            self.engine.set_faults(in_engine)
        admin = {("PUT", "step"): self._set_step}
        super().__init__(server_of(self, self.app, at_socket, options, routes=admin, kind=_EngineServer))

    async def start(self) -> Self:
        self.app.handlers.exiting = False
        return await super().start()

    async def stop(self, grace: float = 5.0) -> None:
        self.app.handlers.exiting = True
        await super().stop(grace)

    def state(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "model": self.info.name,
            "format": self.engine.format.name,
            "policy": type(self.engine.policy).__name__,
            "quirks": self.info.quirks,
            "seed": self.engine.seed,
            "step": self.engine.step,
            "faults": [rule.name or rule.what[0].kind for rule in self.rules],
            "engine": asdict(self.engine.snapshot()),
        }

    def _strikes(self) -> Mapping[str, int]:
        return {**self.ledger.strikes, **self.engine.fault_strikes()}

    def _families(self) -> list[MetricFamily]:
        engine = self.engine.snapshot()
        return [
            *super()._families(),
            queue_family(engine.waiting),
            single("sfusion_engine_running", "gauge", "Requests that the engine generates for.", engine.running),
            single("sfusion_engine_prompt_tokens_total", "counter", "Tokens of prompts.", engine.prompt_tokens),
            single("sfusion_engine_tokens_total", "counter", "Tokens generated.", engine.completion_tokens),
        ]

    def faults(self) -> dict[str, Any]:
        strikes = self.server.plan.strikes() | self.engine.fault_strikes()
        return {"seed": self.server.plan.seed, "faults": [rule.as_data() for rule in self.rules], "strikes": strikes}

    def read_faults(self, source: object, *, where: str = "faults") -> list[Rule]:
        return engine_rules(source, where=where)

    def _replace_faults(self, rules: list[Rule], seed: int | None = None) -> None:
        self.rules = rules
        at_socket, in_engine = split(rules)
        self.server.set_faults(at_socket, seed=seed)
        self.engine.set_faults(in_engine)

    def _forget(self) -> None:
        self.ledger.clear()
        self._replace_faults(self.rules)

    def _set_step(self, request: Request) -> Answer:
        try:
            self.engine.step = int(request.body)
        except ValueError:
            return Answer.json({"detail": f"a step is a whole number, found {request.body[:40]!r}"}, 422)
        return Answer.json(self.state())
