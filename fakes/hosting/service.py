"""A fake service of sandboxes as a server: its options, its admin routes and its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Unpack

from sfusion_tools.exposition import MetricFamily, by_label, single

from ..faults import Rule
from ..faults.lifecycle import lifecycle_rules
from ..lifecycle.model import read_lifecycle
from ..lifecycle.sandbox import Sandbox
from ..sandbox.executors import make_executor
from ..sandbox.program import ProgramScript
from ..sandbox.protocol import Executor
from ..wire.fake_server import FakeServer, ServerOptions, server_of
from ..wire.message import Answer
from .host import Host
from .visit import HostApp


class SandboxService(FakeServer):
    """Base of the fakes of services whose sandboxes have a life cycle.

    ``async with`` uses the running loop, ``with`` a thread. Nothing runs code unless
    ``executor="python"`` asks for it: a command without a script ends with exit code 127, and says
    how to give it one. A plain ``echo ready`` or ``printf ready`` is answered without running.
    """

    face: ClassVar[str]
    """Its name in scenarios and commands."""

    def __init__(
        self,
        *,
        model: Any = None,
        executor: str | Executor = "none",
        scripts: Iterable[ProgramScript | Mapping[str, Any]] = (),
        **options: Unpack[ServerOptions],
    ) -> None:
        self.model = read_lifecycle(model)
        rules = lifecycle_rules(options.get("faults", ()))
        if isinstance(executor, str):
            self.executor_name = executor
            self.executor = make_executor(executor, scripts=scripts)
        else:
            self.executor_name = getattr(executor, "name", type(executor).__name__)
            self.executor = executor
        self.host = Host(
            self.model,
            executor=self.executor,
            seed=options.get("seed", 0),
            journal=lambda: self.server.journal,
        )
        self.app = self._make_app()
        server = server_of(
            self,
            self.app,
            rules,
            options,
            runs_code=self.executor.runs_code,
            routes={("GET", "sandboxes"): lambda _: Answer.json(self.snapshot())},
        )
        super().__init__(server)

    def _make_app(self) -> HostApp:
        """What the face serves."""
        raise NotImplementedError

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which the vendor's SDK talks to this server."""
        return {}

    async def stop(self, grace: float = 5.0) -> None:
        await super().stop(grace)
        self.host.close()
        await self.executor.aclose()

    # -- its sandboxes --

    def snapshot(self) -> dict[str, Any]:
        """Counts and sandboxes as plain data."""
        return self._do(self._current)

    def _current(self) -> dict[str, Any]:
        self.host.advance()
        return self.host.ledger.snapshot()

    def orphans(self) -> list[Sandbox]:
        """Sandboxes that are there and that nobody has asked to delete."""

        def find() -> list[Sandbox]:
            self.host.advance()
            return self.host.ledger.orphans()

        return self._do(find)

    def kill(self, instance: str) -> bool:
        """Let a sandbox die now; False if there is none of this id or name."""

        def kill() -> bool:
            sandbox = self.host.ledger.find(instance, self.host.now())
            if sandbox is None:
                return False
            self.host.ledger.kill(sandbox, self.host.now())
            self.host.advance()
            return True

        return self._do(kill)

    # -- what every fake has --

    def read_faults(self, source: object, *, where: str = "faults") -> list[Rule]:
        return lifecycle_rules(source, where=where)

    def _forget(self) -> None:
        self.host.clear()
        super()._forget()

    def _settings(self) -> dict[str, Any]:
        return {
            "face": self.face,
            "executor": self.executor_name,
            "runs_code": self.executor.runs_code,
            "model": self.model.as_data(),
        }

    def _families(self) -> list[MetricFamily]:
        ledger = self.host.ledger
        ended = {"died": ledger.died, "deleted": ledger.deleted}
        return [
            *super()._families(),
            single("sfusion_sandboxes_live", "gauge", "Sandboxes that are live.", ledger.live),
            single(
                "sfusion_sandboxes_pending", "gauge", "Sandboxes that still start.", ledger.pending
            ),
            single(
                "sfusion_sandboxes_orphaned",
                "gauge",
                "Sandboxes that are there and that nobody has asked to delete.",
                len(ledger.orphans()),
            ),
            single(
                "sfusion_sandboxes_created_total",
                "counter",
                "Sandboxes that were created.",
                ledger.created,
            ),
            single(
                "sfusion_sandboxes_refused_total",
                "counter",
                "Creates that were refused.",
                ledger.refused,
            ),
            by_label(
                "sfusion_sandboxes_ended_total",
                "counter",
                "Sandboxes that died or were deleted.",
                "how",
                ended,
            ),
        ]
