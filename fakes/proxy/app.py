"""What a proxy does with a request: find out which call it is, forward it, relay the answer, and
count all that."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from multidict import CIMultiDict

from ..errors import BrokenStream
from ..faults import ContentFault
from ..sandbox.gate import Gate, GatedVisit
from ..sandbox.protocol import DATASETS, sent_fields
from ..wire.access import PINGS, Access
from ..wire.app import Execution, Request, Subject, call_of, digest_of, origin_form
from ..wire.ledger import CallCounts, CallRecord, Ledger, LedgerCounts
from ..wire.message import Answer
from .forwarding import Forwarder, UpstreamFailed, UpstreamReply, forwarded, relayed


@dataclass(slots=True)
class ForwardRecord(CallRecord):
    """What the proxy knows about one call; null is what only the upstream knows."""

    forwarded: int = 0
    """Attempts that were forwarded."""
    replied: int = 0
    """Attempts that the upstream answered, whether or not the answer reached the client."""

    def as_dict(self) -> CallCounts:
        return {
            "arrived": self.arrived,
            "forwarded": self.forwarded,
            "replied": self.replied,
            "started": None,
            "finished": None,
            "statuses": list(self.statuses),
        }


class ProxyLedger(Ledger):
    """Counts over all requests for work that reached a proxy."""

    record = ForwardRecord
    calls: dict[str, ForwardRecord]  # type: ignore[assignment] # ``record`` makes them

    def clear(self) -> None:
        super().clear()
        self.forwarded = 0
        self.replied = 0
        self.upstream_failed = 0
        # Only the upstream knows these.
        self.started = self.finished = self.executing = self.peak_executing = None  # type: ignore[assignment]

    def start(self, call: str) -> None:
        """Count an attempt that is forwarded."""
        self.forwarded += 1
        self._record(call)
        self.calls[call].forwarded += 1

    def finish(self, call: str, *, completed: bool) -> None:
        """Count an attempt that the upstream answered, or never will."""
        if completed:
            self.replied += 1
            self._record(call)
            self.calls[call].replied += 1

    def executions(self, call: str) -> None:  # type: ignore[override] # a number would be a guess
        """Unknown: a request may have run without an answer, or been answered without running."""

    def snapshot(self, *, calls: bool = True) -> LedgerCounts:
        counts = super().snapshot(calls=calls)
        # The order that a reader of the admin route sees.
        return {
            "arrived": self.arrived,
            "forwarded": self.forwarded,
            "replied": self.replied,
            "upstream_failed": self.upstream_failed,
            **counts,
        }


PROXY_REALM = "sfusion proxy"
"""What a proxy calls itself when it asks for its token."""
WHOLE_BODY = 1 << 20
"""Bytes of a request that are looked at; longer requests are forwarded while they arrive."""
_LONGEST_UNPACKED = 64 << 20
_RUNS = frozenset({"/run_code", "/run_jupyter"})
_NO_BODY = frozenset({204, 304})


class ProxyApp:
    """Everything between the wire and the upstream."""

    paths = _RUNS | PINGS | DATASETS.keys()

    access: Access
    """Knows the token of the proxy."""

    def __init__(
        self, forwarder: Forwarder, gate: Gate, ledger: ProxyLedger, *, headers: Mapping[str, str]
    ) -> None:
        self.forwarder = forwarder
        self.gate = gate
        self.ledger = ledger
        self.via = f"1.1 sfusion-{secrets.token_hex(4)}"
        self._headers = dict(headers)

    def visit(self, request: Request) -> ProxyVisit:
        return ProxyVisit(self, request)

    def failure(self, error: Exception) -> Answer:
        if isinstance(error, BrokenStream):
            return error_answer(str(error))
        return error_answer(f"internal error ({type(error).__name__})", 500)

    def own_headers(self) -> CIMultiDict[str]:
        """The headers of a request that the proxy makes itself."""
        return forwarded({}, via=self.via, ours=self._ours())

    def headers_for(self, request: Request) -> CIMultiDict[str]:
        """The headers of a client's request, as the upstream gets them."""
        # An Authorization with the token is meant for the proxy itself.
        drop = "authorization" if self.access.is_authorized(request.headers) else ""
        headers = forwarded(request.headers, via=self.via, ours=self._ours(), drop=drop)
        if "Content-Length" in request.headers and len(request.body) >= WHOLE_BODY:
            headers["Content-Length"] = request.headers["Content-Length"]
        return headers

    def _ours(self) -> Mapping[str, str]:
        authorization = self.forwarder.upstream.authorization
        return (
            self._headers
            if authorization is None
            else {"Authorization": authorization, **self._headers}
        )


class ProxyVisit(GatedVisit):
    """One request: forwarded, and its answer relayed."""

    def __init__(self, app: ProxyApp, request: Request) -> None:
        super().__init__(request, app.gate)
        self._app = app
        self._execution: Execution | None = None
        self._client_left = False
        """The client disconnected in the middle of its body."""
        self.ping = request.path in PINGS and request.method == "GET"
        headers = request.headers
        self.reads_body = "Content-Length" in headers or "Transfer-Encoding" in headers

    def describe(self) -> Subject:
        """Find the call as the fake sandbox would; a request that is not understood goes by mark or
        digest."""
        request = self.request
        path, method, body = request.path, request.method, request.body
        if method != "POST" or path in DATASETS:  # which are not work for the fake sandbox either
            return Subject(f"{method} {path}", work=False)
        if path in _RUNS and request.rest is None:
            try:
                fields = json.loads(body)
            except (ValueError, RecursionError):
                fields = None
            if isinstance(fields, dict):
                self.fields = fields
                return subject_of(path, fields, body)
        text = body.decode("utf-8", "replace")
        return Subject(call_of(text, body), code=text)

    async def answer(self, execution: Execution) -> Answer:
        app, request = self._app, self.request
        if app.via in request.headers.get("Via", ""):
            return error_answer(
                "the request has been here before: the upstream leads back to this proxy", 508
            )
        target = origin_form(request.target)
        if app.forwarder.upstream.is_left_by(target):
            return error_answer("the path leaves the prefix of the upstream's address", 400)
        self._execution = execution
        # aiohttp warns about long bodies that are passed whole.
        long = request.rest is not None or len(request.body) > WHOLE_BODY
        try:
            reply = await app.forwarder.send(
                request.method,
                target,
                app.headers_for(request),
                self._upload() if long else request.body or None,
                execution.started,
            )
        except UpstreamFailed as failure:
            if self._client_left:
                execution.failed(
                    "broken_off", why="the client left before all of its request had come"
                )
            else:
                self._upstream_failed(str(failure))
            return error_answer(str(failure))
        execution.finished()
        return self._relayed(reply)

    async def _upload(self) -> AsyncIterator[bytes]:
        """A long body: the part that was read already, then the rest as it arrives."""
        yield self.request.body
        if self.request.rest is not None:
            try:
                async for piece in self.request.rest:
                    yield piece
            except Exception:  # aiohttp has several types for this, not all public
                self._client_left = True
                raise

    def spoil(self, answer: Answer | None, action: ContentFault) -> tuple[Answer, float]:
        if action.changes_answer and answer is not None:
            answer = unpacked(answer)
        return super().spoil(answer, action)

    def _relayed(self, reply: UpstreamReply) -> Answer:
        """Relay the answer; the part of its body that has not arrived yet is streamed."""
        request, response = self.request, reply.response
        headers, length, chunked = relayed(response.raw_headers, reply.upstream, request.host)
        answer = Answer(
            response.status, headers=headers, relayed=True, reason=response.reason or ""
        )
        if request.method == "HEAD" or response.status in _NO_BODY:
            reply.release()
        elif length is not None and (body := reply.at_hand()) is not None:
            answer.body = body
            reply.release()
        else:
            answer.stream, answer.length, answer.chunked, answer.release = (
                reply,
                length,
                chunked,
                reply.release,
            )
            reply.failed = self._upstream_failed
            # When the client has left, the rest of the answer is not waited for.
            reply.until(request.gone() if request.gone is not None else None)
            if length is None:
                self._frame(answer)
        return answer

    def _frame(self, answer: Answer) -> None:
        """Let the client see the end of a stream of unknown length."""
        if self.request.http_1_0:
            answer.headers = [
                pair for pair in answer.headers if pair[0].lower() != "transfer-encoding"
            ]
            answer.chunked = False  # such a connection is closed in any case
        elif not answer.chunked:
            answer.headers = [*answer.headers, ("transfer-encoding", "chunked")]
            answer.chunked = True

    def _upstream_failed(self, why: str) -> None:
        assert self._execution is not None
        self._app.ledger.upstream_failed += 1
        self._execution.failed("upstream_failed", why=why)


def subject_of(path: str, fields: dict[str, Any], body: bytes) -> Subject:
    """Which call a request to run code belongs to."""
    code, language = fields.get("code"), fields.get("language", "python")
    if path == "/run_jupyter":
        cells, language = fields.get("cells"), "python"
        code = (
            "\n".join(cell for cell in cells if isinstance(cell, str))
            if isinstance(cells, list)
            else None
        )
    if not isinstance(code, str):
        return Subject(digest_of(body))
    language = language if isinstance(language, str) else None
    return Subject(call_of(code, body), True, language, code, sent_fields(fields))


def unpacked(answer: Answer) -> Answer:
    """Undo gzip or deflate, so that the content can be changed; other answers, and very long ones,
    stay as they are."""
    encoding = next(
        (value for name, value in answer.headers if name.lower() == "content-encoding"), ""
    )
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return answer
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        body = unpacker.decompress(answer.body, _LONGEST_UNPACKED)
    except zlib.error:
        return answer
    if not unpacker.eof:
        return answer
    headers = [pair for pair in answer.headers if pair[0].lower() != "content-encoding"]
    return replace(answer, headers=headers).with_body(body)


def error_answer(what: str, status: int = 502) -> Answer:
    """An error answer of the proxy itself."""
    return Answer.json({"detail": f"sfusion proxy: {what}"}, status=status)
