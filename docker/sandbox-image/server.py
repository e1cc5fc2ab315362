"""The server of the test image: our sandbox with the ``python`` executor, listening like the real
image.

It listens on 127.0.0.1 of the container and port 8080, unless HOST or _BYTEFAAS_RUNTIME_PORT is
set. Clients need no token, so publish its port to loopback only.
"""

from __future__ import annotations

import asyncio
import os
import signal

from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.fake import SandboxApp
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.models import read_model
from sfusion.fakes.wire import WireServer
from sfusion.fakes.wire.access import Access


async def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    host, port = (
        os.environ.get("HOST", "127.0.0.1"),
        int(os.environ.get("_BYTEFAAS_RUNTIME_PORT", "8080")),
    )
    executor = PythonExecutor(profile="2026-07")
    # The page that the probes imitate; others are refused.
    access = Access(host, allow_origins=["http://browser.test"])
    server = WireServer(
        SandboxApp(executor, Gate(read_model(None))), host=host, port=port, access=access
    )
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    await server.start()
    print(f"listening on {host}:{port}", flush=True)
    await interrupted.wait()
    await server.stop(grace=1.0)
    await executor.aclose()


if __name__ == "__main__":
    asyncio.run(main())
