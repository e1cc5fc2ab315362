"""The admin door under ``/__sfusion/``: state, faults, ledger, step, reset."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml

from sfusion.fakes.faults import FaultError
from sfusion.fakes.sglang.faults import engine_rules
from sfusion.fakes.wire import Answer, Doors, Request

if TYPE_CHECKING:
    from sfusion.fakes.sglang.server import FakeSGLangServer


class Admin(Doors):
    """Answers admin requests about one server."""

    def __init__(self, server: FakeSGLangServer) -> None:
        self._server = server
        super().__init__(
            {
                ("GET", "state"): self._state,
                ("PUT", "faults"): self._set_faults,
                ("DELETE", "faults"): self._clear_faults,
                ("GET", "ledger"): self._ledger,
                ("PUT", "step"): self._step,
                ("POST", "reset"): self._reset,
            }
        )

    def _state(self, request: Request) -> Answer:
        server = self._server
        about: dict[str, Any] = {
            "url": server.url,
            "model": server.info.name,
            "format": server.engine.format.name,
            "policy": type(server.engine.policy).__name__,
            "quirks": server.info.quirks,
            "seed": server.engine.seed,
            "step": server.engine.step,
            "faults": server.fault_names(),
        }
        return Answer.json(about | {"engine": asdict(server.engine.snapshot())})

    def _set_faults(self, request: Request) -> Answer:
        try:
            # JSON is YAML, so one reader does for both.
            data = yaml.safe_load(request.body.decode("utf-8"))
            self._server.replace_faults(engine_rules(data, where="body"))
        except (FaultError, UnicodeDecodeError, yaml.YAMLError) as error:
            return Answer.json({"detail": " ".join(str(error).split())}, 422)
        return self._state(request)

    def _clear_faults(self, request: Request) -> Answer:
        self._server.replace_faults([])
        return self._state(request)

    def _ledger(self, request: Request) -> Answer:
        return Answer.json(self._server.ledger.snapshot(calls="calls=0" not in request.query.split("&")))

    def _step(self, request: Request) -> Answer:
        try:
            step = int(request.body)
        except ValueError:
            return Answer.json({"detail": f"a step is a whole number, found {request.body[:40]!r}"}, 422)
        self._server.engine.step = step
        return self._state(request)

    def _reset(self, request: Request) -> Answer:
        self._server.ledger.clear()
        self._server.replace_faults(self._server.rules)
        return self._state(request)
