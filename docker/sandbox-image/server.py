"""The server inside the test image: our sandbox with the ``python`` executor, listening as the real image does.

It listens on 127.0.0.1 of the container unless HOST says otherwise, on port 8080 unless _BYTEFAAS_RUNTIME_PORT does.
Nothing is asked of clients (no token): who starts the container publishes its port to loopback only.
"""

from __future__ import annotations

import asyncio
import os
import signal

from sfusion.fakes.sandbox.app import SandboxApp
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.models import read_model
from sfusion.fakes.wire import WireServer


async def main() -> None:
    """Serve until told to stop."""
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("_BYTEFAAS_RUNTIME_PORT", "8080"))
    executor = PythonExecutor(profile="2026-07")
    server = WireServer(SandboxApp(executor, Gate(read_model(None))), host=host, port=port)
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    await server.start()
    print(f"listening on {host}:{port}", flush=True)
    await over.wait()
    await server.stop(grace=1.0)
    await executor.aclose()


asyncio.run(main())
