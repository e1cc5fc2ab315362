"""The fast transport: aiohttp's connections and parser, without its ClientSession.

Proxies and TLS are aiohttp's too. Requests to a sandbox differ in their body alone, and preparing
each of them anew takes longer than all the rest. This needs names of aiohttp that are not public,
so it is used only with the versions that it was tested with.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from functools import lru_cache, partial

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError

from sfusion_tools.sandbox.answer import Response
from sfusion_tools.sandbox.endpoints import Address
from sfusion_tools.sandbox.public_transport import PublicTransport, read_body, route, unsent

TESTED = ((3, 14, 1), (3, 14, 5))
"""The first and the last version of aiohttp that all tests have passed with."""


def untested() -> str:
    """Return what is wrong with the version of aiohttp, "" if nothing."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", aiohttp.__version__)
    if found is not None and TESTED[0] <= tuple(map(int, found.groups())) <= TESTED[1]:
        return ""
    first, last = (".".join(map(str, version)) for version in TESTED)
    return (
        f"the fast transport was tested with aiohttp {first} to {last}, and this is "
        f"{aiohttp.__version__}"
    )


def missing() -> str:
    """Return which name or parameter this aiohttp lacks, "" if none."""
    try:
        for function, arguments, names in (
            (aiohttp.ClientRequest, ("POST", None), ("headers", "loop", "proxy", "proxy_headers")),
            (aiohttp.TCPConnector.connect, (None, None, [], None), ()),
            (ResponseHandler.set_response_params, (None,), ("read_until_eof",)),
            (ResponseHandler.read, (None,), ()),
        ):
            inspect.signature(function).bind(*arguments, **dict.fromkeys(names))
    except (AttributeError, TypeError) as error:
        return f"aiohttp {aiohttp.__version__} is not what the fast transport expects: {error}"
    return ""


class FastTransport(PublicTransport):
    """Writes the bytes of a request itself.

    The head is the same for all requests to an address but for the length.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._prepared = lru_cache(maxsize=64)(partial(_prepare, loop))

    async def _exchange(
        self, address: Address, body: bytes, connect: aiohttp.ClientTimeout, most: int
    ) -> Response:
        request, head = self._prepared(address)
        try:
            connection = await self._connector.connect(request, [], connect)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        protocol = connection.protocol
        transport = protocol.transport
        status = 0
        whole = False
        try:
            protocol.set_response_params(read_until_eof=True)
            if transport is not None and not transport.is_closing():
                transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            elif len(protocol) == 0:
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            message, payload = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, payload = await protocol.read()
            status = message.code
            text, whole = await read_body(payload, status, message.headers, most)
        except HttpProcessingError as error:
            raise aiohttp.ClientResponseError(
                request.request_info,
                (),
                status=error.code,
                message=error.message,
                headers=error.headers,
            ) from error
        finally:
            of_failed = len(body) if status != 200 else 0
            waiting = transport is not None and unsent(transport, of_failed)
            if whole and not waiting:
                connection.release()
            else:
                if waiting and not self._loop.is_closed():
                    transport.abort()
                connection.close()
        return Response(status, message.headers, text, whole)


def _prepare(
    loop: asyncio.AbstractEventLoop, address: Address
) -> tuple[aiohttp.ClientRequest, bytes]:
    """Return what aiohttp's connector wants to know, and the head of each request.

    The head goes up to the length of the body.
    """
    target, headers, proxy, tunnel = route(address)
    request = aiohttp.ClientRequest(
        "POST", target, headers=headers, loop=loop, proxy=proxy, proxy_headers=tunnel
    )
    path = (
        str(request.url)
        if proxy is not None and target.scheme == "http"
        else request.url.raw_path_qs
    )
    lines = [
        f"{name}: {value}"
        for name, value in request.headers.items()
        if name.lower() != "content-length"
    ]
    return request, "\r\n".join([f"POST {path} HTTP/1.1", *lines, "Content-Length: "]).encode()
