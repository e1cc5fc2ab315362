"""The fault proxy in this process, started from async or from synchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self, Unpack

from sfusion_tools.exposition import MetricFamily, single

from ..errors import BadUpstream, SandboxSetupError
from ..faults import read_rules
from ..faults.lifecycle import without_operations
from ..sandbox.gate import Gate
from ..sandbox.models import read_model
from ..wire.core import EventLogPath, RequestLog, WorkEvents
from ..wire.fake_server import FakeServer, ServerOptions, queue_family, server_of
from .app import PROXY_REALM, WHOLE_BODY, ProxyApp, ProxyLedger
from .forwarding import Forwarder, UpstreamFailed, read_upstream

_WORK_EVENTS = WorkEvents(
    started="forwarded",
    finished="replied",
    ran={"no": "no", "began": "unknown", "ended": "unknown"},
)


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise SandboxSetupError for a header that cannot be sent."""
    for name, value in headers.items():
        if not name.strip() or not (name + value).isprintable() or ":" in name:
            # The value may be a secret, so it is not shown.
            raise SandboxSetupError(
                f"the header {name!r} cannot be sent: its name or value is not a single line "
                "of text"
            )


class FaultProxy(FakeServer):
    """A reverse proxy that changes nothing, except where its faults strike.

    ``async with FaultProxy("http://127.0.0.1:8080") as proxy:`` or ``with FaultProxy(...) as
    proxy:`` (its loop then runs in a thread). Clients talk to ``proxy.url``; ``proxy.upstream =
    URL`` redirects all later requests.
    """

    def __init__(
        self,
        upstream: str,
        *,
        model: Any = None,
        event_log: EventLogPath | None = None,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
        **options: Unpack[ServerOptions],
    ) -> None:
        """``headers`` are added to forwarded requests.

        ``trust_env`` uses the HTTP proxies of the environment.
        """
        self.model = read_model(model)
        if self.model.cores is not None or self.model.spawn_cost:
            raise SandboxSetupError(
                "cores and spawn_cost describe how a server runs programs, and a proxy runs none; "
                "the model of a proxy is unbounded, a quota or a queue"
            )
        _check_headers(headers or {})
        self._host = options.get("host", "127.0.0.1")
        self._trust_env = trust_env
        self._gate = Gate(self.model)
        self._ledger = ProxyLedger()
        forwarder = Forwarder(read_upstream(upstream), trust_env=trust_env)
        self._app = ProxyApp(forwarder, self._gate, self._ledger, headers=headers or {})
        server = server_of(
            self,
            self._app,
            without_operations(read_rules(options.get("faults", ()))),
            options,
            runs_code=True,  # the server behind it does
            realm=PROXY_REALM,
            ledger=self._ledger,
            work_events=_WORK_EVENTS,
            whole_body=WHOLE_BODY,
        )
        super().__init__(server)
        self._app.access = server.access
        if event_log is not None:
            self.server.request_log = RequestLog(event_log, lambda: self.upstream)
        self._check(forwarder)

    async def start(self) -> Self:
        """Listen, on the running loop. The upstream need not be up."""
        await super().start()
        try:
            self._check(self._app.forwarder)
        except BadUpstream:
            await self.server.stop()
            raise
        self._app.forwarder.open()
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight get ``grace`` seconds, then all connections close."""
        await super().stop(grace)
        self._gate.close()
        await self._app.forwarder.close()

    @property
    def ledger(self) -> ProxyLedger:
        return self._ledger

    @property
    def upstream(self) -> str:
        """The URL that requests are forwarded to, without user, password and query."""
        return self._app.forwarder.upstream.shown

    @upstream.setter
    def upstream(self, url: str) -> None:
        forwarder = Forwarder(read_upstream(url), trust_env=self._trust_env)
        self._check(forwarder)
        self._do(lambda: self._switch(forwarder))

    def _switch(self, forwarder: Forwarder) -> None:
        former = self._app.forwarder
        self._app.forwarder = forwarder
        if former.opened:
            forwarder.open()
            self.server.note("upstream", url=forwarder.upstream.shown)
            self.server.keep(former.retire())

    def _check(self, forwarder: Forwarder) -> None:
        port = self.server.port
        if port and forwarder.upstream.is_at(self._host, port):
            raise BadUpstream(
                f"the upstream {forwarder.upstream.shown} is this proxy itself; give the address "
                "of the real server, or let the proxy listen on another port (--port)"
            )

    async def ping_upstream(self, patience: float = 3.0) -> str:
        """Ping the upstream; return an empty text if it answers, else what happened."""
        forwarder = self._app.forwarder
        try:
            async with asyncio.timeout(patience):
                headers = self._app.own_headers()
                reply = await forwarder.send("GET", "/v1/ping", headers=headers, body=None)
        except UpstreamFailed as failure:
            return str(failure)
        except TimeoutError:
            return f"{self.upstream} did not answer /v1/ping within {patience:g} s"
        reply.release()
        status = reply.response.status
        # Servers other than Sandbox Fusion have no such route; it is enough that they answer.
        if status < 500:
            return ""
        return f"{self.upstream} answers {status} to /v1/ping"

    def _families(self) -> list[MetricFamily]:
        ledger = self._ledger
        return [
            *super()._families(),
            queue_family(self._gate.waiting),
            single(
                "sfusion_server_forwarded_total",
                "counter",
                "Requests that were forwarded.",
                ledger.forwarded,
            ),
            single(
                "sfusion_server_replied_total",
                "counter",
                "Requests that the upstream answered.",
                ledger.replied,
            ),
            single(
                "sfusion_server_upstream_failures_total",
                "counter",
                "Requests that the upstream did not answer, or not to the end.",
                ledger.upstream_failed,
            ),
        ]

    def _settings(self) -> dict[str, Any]:
        return {"upstream": self.upstream, "model": self.model.as_data()}
