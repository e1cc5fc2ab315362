"""The fake as a server: inside a running loop, or beside synchronous code in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from sfusion.fakes.faults import Rule
from sfusion.fakes.sglang.admin import Admin
from sfusion.fakes.sglang.app import SGLangApp
from sfusion.fakes.sglang.engine import FakeSGLang
from sfusion.fakes.sglang.faults import engine_rules, split
from sfusion.fakes.sglang.gsm8k import Gsm8kSolver
from sfusion.fakes.sglang.parsers import Quirks
from sfusion.fakes.sglang.protocol import Policy
from sfusion.fakes.sglang.routes import ModelInfo
from sfusion.fakes.wire import Journal, Served, WireServer, is_loopback


class _Wire(WireServer):
    """A server whose death is also its engine's."""

    engine: FakeSGLang

    def crash(self, *, restart_after: float | None = None) -> None:
        """Die, and forget what the engine knew."""
        super().crash(restart_after=restart_after)
        self.engine.crash()

    async def restart(self) -> None:
        """Come back."""
        self.engine.restart()
        await super().restart()


class FakeSGLangServer(Served):
    """An sglang server without a model.

    ``async with FakeSGLangServer(policy) as server`` inside a loop, ``with FakeSGLangServer(policy) as server``
    anywhere else (its loop then runs in a thread); then ``server.url``. An engine may be given in place of a policy.
    ``tool_call_parser`` is the format in which calls are written and read; None switches tool calls off, as in sglang.
    """

    def __init__(
        self,
        policy: Policy | FakeSGLang | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tool_call_parser: str | None = "qwen25",
        reasoning_parser: str | None = None,
        quirks: Quirks = None,
        model: str = "fake-model",
        report_cache: bool = False,
        faults: Iterable[Rule | Mapping[str, Any]] = (),
        seed: int = 0,
        allow_remote: bool = False,
        journal: Journal | None = None,
        access_log: Callable[[str], None] | None = None,
    ) -> None:
        if not allow_remote and not is_loopback(host):
            raise ValueError(
                f"{host} can be reached from other machines; say allow_remote (--allow-remote) if that is meant"
            )
        if isinstance(policy, FakeSGLang):
            self.engine = policy
        else:
            self.engine = FakeSGLang(policy or Gsm8kSolver(), format=tool_call_parser or "qwen25", seed=seed)
        self.info = ModelInfo(
            name=model,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            quirks=quirks,
            report_cache=report_cache,
        )
        self.app = SGLangApp(self.engine, self.info)
        if is_loopback(host):
            self.app.admin = Admin(self)  # who cannot log in must not change faults from afar
        self.rules: list[Rule] = engine_rules(list(faults))
        at_socket, in_engine = split(self.rules)
        if in_engine:
            self.engine.set_faults(in_engine)
        wire = _Wire(self.app, host=host, port=port, rules=at_socket, seed=seed, journal=journal, access_log=access_log)
        wire.engine = self.engine
        super().__init__(wire)

    async def start(self) -> Self:
        """Listen, on the running loop."""
        self.app.handlers.exiting = False
        return await super().start()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight have so many seconds to end."""
        self.app.handlers.exiting = True
        await super().stop(grace)

    def set_faults(self, faults: Iterable[Rule | Mapping[str, Any]], *, seed: int | None = None) -> None:
        """Replace all faults; their counters and clocks begin anew."""
        rules = engine_rules(list(faults))
        self._do(lambda: self.replace_faults(rules, seed=seed))

    def replace_faults(self, rules: list[Rule], *, seed: int | None = None) -> None:
        """The same from inside the server's loop."""
        self.rules = rules
        at_socket, in_engine = split(rules)
        self.server.set_faults(at_socket, seed=seed)
        self.engine.set_faults(in_engine)

    def fault_names(self) -> list[str]:
        """The rules in force, by name or kind."""
        return [rule.name or rule.what[0].kind for rule in self.rules]
