"""What a proxy does with a request: find out which call it is, send it on, pass the answer back."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from multidict import CIMultiDict

from sfusion.fakes.faults import Action, Output
from sfusion.fakes.proxy.forwarding import Forwarder, Reply, UpstreamFailed
from sfusion.fakes.proxy.headers import forwarded, relayed
from sfusion.fakes.proxy.ledger import ProxyLedger
from sfusion.fakes.proxy.upstream import origin_form
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.spoil import spoil
from sfusion.fakes.wire import MARK, PREFIX, Answer, BrokenStream, Execution, Request, Subject, digest_of
from sfusion.fakes.wire.admin import Admin, authorised, not_authorised

WHOLE_BODY = 1 << 20
"""Bytes of a request that are looked at; longer requests are sent on while they come."""
_RUNS = frozenset({"/run_code", "/run_jupyter"})
_PINGS = frozenset({"/v1/ping", "/health"})
# Requests about data sets run no code of the model; the fake does not count them as work either.
_DATASETS = frozenset(
    {"/list_ids", "/get_prompts", "/get_prompt_by_id", "/submit", "/get_metrics", "/get_metrics_function"}
)
_NO_BODY = frozenset({204, 304})


class ProxyApp:
    """Everything between the wire and the server behind."""

    def __init__(
        self,
        forwarder: Forwarder,
        gate: Gate,
        ledger: ProxyLedger,
        *,
        headers: Mapping[str, str],
        token: str | None = None,
        guard_all: bool = False,
    ) -> None:
        self.forwarder = forwarder
        self.gate = gate
        self.admin: Admin | None = None
        self._ledger = ledger
        self._headers = dict(headers)
        self._token = token
        self._guard_all = guard_all
        self._via = f"1.1 sfusion-{secrets.token_hex(4)}"

    # -- what the server asks --

    def reads_body(self, request: Request) -> bool:
        """Whatever was announced is read, for any method; not from those who have no token."""
        at_door = is_admin(request.path)
        guarded = self._token is not None if at_door else self._guard_all and request.path != "/v1/ping"
        if guarded and (self._token is None or not authorised(request.headers, self._token)):
            request.parsed = not_authorised()
            return False
        return "Content-Length" in request.headers or "Transfer-Encoding" in request.headers

    def describe(self, request: Request) -> Subject | None:
        """Which call it is, as the fake would say it; what the proxy cannot understand goes by mark or digest."""
        path, method = request.path, request.method
        if is_admin(path):
            return None
        if method != "POST" or path in _DATASETS or isinstance(request.parsed, Answer):
            return Subject(f"{method} {path}", work=False)
        body = request.body
        if path in _RUNS and request.rest is None:
            try:
                fields = json.loads(body)
            except (ValueError, RecursionError):
                fields = None
            if isinstance(fields, dict):
                request.parsed = fields
                return subject_of(path, fields, body)
        text = body.decode("utf-8", "replace")
        found = MARK.search(text)
        return Subject(found.group(1) if found else digest_of(body), code=text)

    def is_ping(self, request: Request) -> bool:
        """``/v1/ping``, or what other servers have for it."""
        return request.path in _PINGS and request.method == "GET"

    async def admit(self, request: Request, subject: Subject) -> Answer | None:
        """Ask the model."""
        return None if self.gate.open else await self.gate.admit()

    def leave(self, subject: Subject) -> None:
        """Tell the model."""
        if not self.gate.open:
            self.gate.leave()

    async def answer(self, request: Request, execution: Execution) -> Answer:
        """The answer of the server behind."""
        if isinstance(request.parsed, Answer):
            return request.parsed
        if is_admin(request.path):
            assert self.admin is not None
            return self.admin.answer(request)
        forwarder = self.forwarder
        if self._via in request.headers.get("Via", ""):
            return complaint("the request has come through here before: the upstream leads back to this proxy", 508)
        # aiohttp warns of long bodies that are given whole.
        long = request.rest is not None or len(request.body) > WHOLE_BODY
        upload = Upload(request.body, request.rest) if long else None
        try:
            reply = await forwarder.send(
                request.method,
                origin_form(request.target),
                self._sent_headers(request),
                upload or request.body or None,
                execution.started,
            )
        except UpstreamFailed as failure:
            if upload is not None and upload.left:
                execution.failed("broken off", why="the client left before all of its request had come")
            else:
                self._broken(str(failure), execution)
            return complaint(str(failure))
        execution.finished()
        return self._relay(request, reply, execution)

    def spoil(self, request: Request, answer: Answer | None, action: Action) -> tuple[Answer, float]:
        """A fault of content."""
        fields = request.parsed if isinstance(request.parsed, dict) else {}
        if isinstance(action, Output) and answer is not None:
            answer = unpacked(answer)
        return spoil(request.path, fields, answer, action)

    def failure(self, error: Exception) -> Answer:
        """What the client hears when the server behind failed, or the proxy itself."""
        if isinstance(error, BrokenStream):
            return complaint(str(error))
        return complaint(f"it failed itself ({type(error).__name__})", 500)

    # -- both ways --

    def own_headers(self) -> CIMultiDict[str]:
        """The headers of a request that is the proxy's own."""
        return forwarded({}, via=self._via, ours=self._ours())

    def _ours(self) -> Mapping[str, str]:
        authorization = self.forwarder.upstream.authorization
        return self._headers if authorization is None else {"Authorization": authorization, **self._headers}

    def _sent_headers(self, request: Request) -> CIMultiDict[str]:
        drop = "authorization" if self._guard_all else ""
        headers = forwarded(request.headers, via=self._via, ours=self._ours(), drop=drop)
        if "Content-Length" in request.headers and len(request.body) >= WHOLE_BODY:
            headers["Content-Length"] = request.headers["Content-Length"]
        return headers

    def _relay(self, request: Request, reply: Reply, execution: Execution) -> Answer:
        """The answer as it came; what of its body is not here yet is streamed."""
        response = reply.response
        headers, length, chunked = relayed(response.raw_headers, reply.upstream, request.host)
        answer = Answer(response.status, headers=headers, relayed=True, reason=response.reason or "")
        if request.method == "HEAD" or response.status in _NO_BODY:
            reply.release()
        elif length is not None and (body := reply.at_hand()) is not None:
            answer.body = body
            reply.release()
        else:
            answer.stream, answer.length, answer.chunked, answer.release = reply, length, chunked, reply.release
            reply.failed = lambda why: self._broken(why, execution)
            # When nobody is left to read the rest of it, it is not waited for either.
            reply.until(request.gone() if request.gone is not None else None)
            if length is None:
                self._frame(answer, http_1_0=request.http_1_0)
        return answer

    def _frame(self, answer: Answer, *, http_1_0: bool) -> None:
        """How the client sees the end of a stream of unknown length."""
        if http_1_0:
            answer.headers = [pair for pair in answer.headers if pair[0].lower() != "transfer-encoding"]
            answer.chunked = False  # such a connection is closed in any case
        elif not answer.chunked:
            answer.headers = [*answer.headers, ("transfer-encoding", "chunked")]
            answer.chunked = True

    def _broken(self, why: str, execution: Execution) -> None:
        self._ledger.upstream_failed += 1
        execution.failed("upstream_failed", why=why)


def is_admin(path: str) -> bool:
    """Is it the proxy's own door, which is never forwarded?"""
    return path.startswith(PREFIX) or path == PREFIX[:-1]


def subject_of(path: str, fields: dict[str, Any], body: bytes) -> Subject:
    """The call that a request to run code is about."""
    code, language = fields.get("code"), fields.get("language", "python")
    if path == "/run_jupyter":
        cells, language = fields.get("cells"), "python"
        code = "\n".join(cell for cell in cells if isinstance(cell, str)) if isinstance(cells, list) else None
    if not isinstance(code, str):
        return Subject(digest_of(body))
    found = MARK.search(code)
    return Subject(
        found.group(1) if found else digest_of(body), True, language if isinstance(language, str) else None, code
    )


class Upload:
    """A long body on its way through: the part that was read, then the rest as it comes."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes] | None) -> None:
        self._first: bytes | None = first
        self._rest = rest
        self.left = False
        """Did the client go away in the middle?"""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, None
        if first is not None:
            return first
        if self._rest is None:
            raise StopAsyncIteration
        try:
            return await anext(self._rest)
        except StopAsyncIteration:
            raise
        except Exception:  # aiohttp has several types for it, not all public
            self.left = True
            raise


def unpacked(answer: Answer) -> Answer:
    """The answer without gzip or deflate, so that what it says can be changed; others are left as they are."""
    encoding = next((value for name, value in answer.headers if name.lower() == "content-encoding"), "")
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return answer
    try:
        body = zlib.decompress(answer.body, wbits=zlib.MAX_WBITS | 32)
    except zlib.error:
        return answer
    headers = [pair for pair in answer.headers if pair[0].lower() != "content-encoding"]
    return replace(answer, headers=headers).with_body(body)


def complaint(what: str, status: int = 502) -> Answer:
    """An answer of the proxy itself."""
    return Answer.json({"detail": f"sfusion proxy: {what}"}, status=status)
