"""The servers of the benchmarks, each in its own process: ``python -m benchmarks.servers KIND``.

Each prints its port and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable

from aiohttp import ClientSession, web

ANSWER = {
    "status": "Success",
    "message": "",
    "compile_result": None,
    "run_result": {
        "status": "Finished",
        "execution_time": 0.01,
        "return_code": 0,
        "stdout": "3\n",
        "stderr": "",
    },
    "executor_pod_name": None,
    "files": {},
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _listen(path: str, handler: Handler) -> None:
    app = web.Application()
    app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def _bare(body: str = "") -> None:
    """A handler that answers after the seconds in the query, always with the same bytes; GET counts
    the requests."""
    answer = bytes.fromhex(body) or json.dumps(ANSWER).encode()
    count = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal count
        if request.method == "GET":
            return web.Response(text=str(count))
        count += 1
        await request.read()
        if pause := float(request.query.get("pause", 0)):
            await asyncio.sleep(pause)
        return web.Response(body=answer, content_type="application/json")

    await _listen("/{path:.*}", handle)


async def _pass_through(upstream: str) -> None:
    """What a proxy costs at least in aiohttp: a handler and a client session."""
    async with ClientSession() as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            async with session.request(
                request.method,
                upstream + request.path_qs,
                headers=request.headers,
                data=body,
                allow_redirects=False,
            ) as answer:
                return web.Response(
                    status=answer.status, headers=answer.headers, body=await answer.read()
                )

        await _listen("/{path:.*}", handle)


async def _fake(executor: str = "scripted") -> None:
    from sfusion.fakes.sandbox import FakeSandbox

    async with FakeSandbox(executor=executor) as sandbox:
        print(sandbox.port, flush=True)
        await asyncio.Event().wait()


async def _proxy(upstream: str) -> None:
    from sfusion.fakes.proxy import FaultProxy

    async with FaultProxy(upstream) as proxy:
        print(proxy.port, flush=True)
        await asyncio.Event().wait()


async def _sglang() -> None:
    from sfusion.fakes.sglang import FakeSGLangServer

    async with FakeSGLangServer() as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


async def _httpserver(body: str) -> None:
    """pytest-httpserver with one handler, in threads."""
    from pytest_httpserver import HTTPServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would write a line for every request
    with HTTPServer(host="127.0.0.1", port=0, threaded=True) as server:
        server.expect_request("/run_code").respond_with_data(
            bytes.fromhex(body), content_type="application/json"
        )
        print(server.port, flush=True)
        await asyncio.Event().wait()


_KINDS: dict[str, Callable[..., Awaitable[None]]] = {
    "bare": _bare,
    "pass-through": _pass_through,
    "fake": _fake,
    "proxy": _proxy,
    "sglang": _sglang,
    "httpserver": _httpserver,
}


def main(kind: str, *arguments: str) -> None:
    async def serve() -> None:
        await _KINDS[kind](*arguments)

    asyncio.run(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
