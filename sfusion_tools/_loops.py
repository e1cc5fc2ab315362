"""Things that live as long as an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable


async def before_loop_ends(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Have ``close`` awaited when the running loop shuts down: advance once and keep the generator.

    ``asyncio.run`` closes every live asynchronous generator, after it cancelled the tasks and before it closes the
    loop; so users of a tool need not know that there is something to close.
    """
    try:
        yield
    finally:
        await close()
