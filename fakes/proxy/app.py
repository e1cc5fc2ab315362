"""What a proxy does with a request.

It finds out which call it is, forwards it, relays the answer, and counts all that.
"""

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
from ..wire.app import App, Execution, Request, Subject, call_of, digest_of, origin_form
from ..wire.ledger import CallCounts, CallRecord, Ledger, LedgerCounts
from ..wire.message import Answer
from .forwarding import (
    Forwarder,
    RelayedHead,
    UpstreamFailed,
    UpstreamReply,
    forwarded,
    relayed,
    without_header,
)


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
        self.started = None  # type: ignore[assignment]
        self.finished = None  # type: ignore[assignment]
        self.executing = None  # type: ignore[assignment]
        self.peak_executing = None  # type: ignore[assignment]

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
"""Bytes of a request that are looked at; longer requests are forwarded while they arrive.

aiohttp's bound: it warns about longer bodies that are passed whole.
"""
_RUNS = frozenset({"/run_code", "/run_jupyter"})
_NO_BODY = frozenset({204, 304})


class ProxyApp(App):
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
        """The headers that the proxy adds; those that were given go before the URL's user."""
        authorization = self.forwarder.upstream.authorization
        if authorization is None:
            return self._headers
        return {"Authorization": authorization, **self._headers}


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
        """Find the call as the fake sandbox would.

        A request that is not understood goes by mark or digest.
        """
        request = self.request
        # Requests about datasets are not work for the fake sandbox either.
        if request.method != "POST" or request.path in DATASETS:
            return Subject(f"{request.method} {request.path}", work=False)
        if request.path in _RUNS and request.rest is None:
            fields = _json_object(request.body)
            if fields is not None:
                self.fields = fields
                return subject_of(request.path, fields, request.body)
        text = request.body.decode("utf-8", "replace")
        return Subject(call_of(text, request.body), code=text)

    async def answer(self, execution: Execution) -> Answer:
        app = self._app
        request = self.request
        if app.via in request.headers.get("Via", ""):
            return error_answer(
                "the request has been here before: the upstream leads back to this proxy", 508
            )
        target = origin_form(request.target)
        if app.forwarder.upstream.is_left_by(target):
            return error_answer("the path leaves the prefix of the upstream's address", 400)

        self._execution = execution
        try:
            reply = await app.forwarder.send(
                request.method,
                target,
                headers=app.headers_for(request),
                body=self._body(),
                sent=execution.started,
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

    def _body(self) -> bytes | AsyncIterator[bytes] | None:
        """The body for the upstream; a long one is passed on while it arrives."""
        request = self.request
        if request.rest is not None or len(request.body) > WHOLE_BODY:
            return self._upload()
        return request.body or None

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
        request = self.request
        response = reply.response
        head = relayed(response.raw_headers, reply.upstream, request.host)
        answer = Answer(
            response.status,
            headers=head.headers,
            relayed=True,
            reason=response.reason or "",
        )
        if request.method == "HEAD" or response.status in _NO_BODY:
            reply.release()
            return answer

        body = reply.at_hand() if head.length is not None else None
        if body is not None:
            answer.body = body
            reply.release()
        else:
            self._stream(answer, reply, head)
        return answer

    def _stream(self, answer: Answer, reply: UpstreamReply, head: RelayedHead) -> None:
        """Let an answer be sent while its body arrives."""
        answer.stream = reply
        answer.length = head.length
        answer.chunked = head.chunked
        answer.release = reply.release
        reply.failed = self._upstream_failed
        # When the client has left, the rest of the answer is not waited for.
        reply.until(self.request.gone() if self.request.gone is not None else None)
        if head.length is None:
            self._frame(answer)

    def _frame(self, answer: Answer) -> None:
        """Let the client see the end of a stream of unknown length."""
        if self.request.http_1_0:
            answer.headers = without_header(answer.headers, "transfer-encoding")
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
    if path == "/run_jupyter":
        code = _code_of_cells(fields.get("cells"))
        language: Any = "python"
    else:
        code = fields.get("code")
        language = fields.get("language", "python")
    if not isinstance(code, str):
        return Subject(digest_of(body))
    return Subject(
        call=call_of(code, body),
        language=language if isinstance(language, str) else None,
        code=code,
        sent=sent_fields(fields),
    )


def _code_of_cells(cells: Any) -> str | None:
    """Join the cells of a notebook; None if they are not what a sandbox accepts."""
    if not isinstance(cells, list):
        return None
    return "\n".join(cell for cell in cells if isinstance(cell, str))


def _json_object(body: bytes) -> dict[str, Any] | None:
    """Read a body; None if it is not a JSON object."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


_LONGEST_UNPACKED = 64 << 20
"""Bytes (chosen: more than any sandbox answers, and an attack must not fill the memory)."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
"""Lets zlib find out which of the two it is."""


def unpacked(answer: Answer) -> Answer:
    """Undo gzip or deflate, so that the content can be changed.

    Other answers, and very long ones, stay as they are.
    """
    encodings = [value for name, value in answer.headers if name.lower() == "content-encoding"]
    if not encodings or encodings[0].strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return answer
    try:
        body = _unpacked(answer.body)
    except zlib.error:
        return answer
    headers = without_header(answer.headers, "content-encoding")
    return replace(answer, headers=headers).with_body(body)


def _unpacked(packed: bytes) -> bytes:
    """Unpack all members of a gzip file, or one of zlib; raise zlib.error for what is cut, too
    long, or neither."""
    body = b""
    while True:
        unpacker = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
        body += unpacker.decompress(packed, _LONGEST_UNPACKED - len(body) + 1)
        if not unpacker.eof or len(body) > _LONGEST_UNPACKED:
            raise zlib.error("cut, or too long")
        packed = unpacker.unused_data
        if not packed:
            return body


def error_answer(what: str, status: int = 502) -> Answer:
    """An error answer of the proxy itself."""
    return Answer.json({"detail": f"sfusion proxy: {what}"}, status=status)
