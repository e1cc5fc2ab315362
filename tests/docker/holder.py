"""A run that holds a container: ``python -m tests.docker.holder IMAGE HOW``.

It prints the container's name when it is ready. ``HOW`` is ``waits`` (for ever), ``ends``,
``raises``, or ``forgets`` (exits without closing anything).
"""

from __future__ import annotations

import signal
import sys
import threading

from sfusion.harness.real.targets import DockerTarget, open_targets

# Shells ignore Ctrl-C in background processes; this stands for a run in the foreground.
signal.signal(signal.SIGINT, signal.default_int_handler)

READY, NEVER = threading.Event(), threading.Event()


def hold(how: str) -> None:
    with open_targets([DockerTarget(sys.argv[1])]) as (sandbox,):
        print(sandbox.container_name, flush=True)  # type: ignore[attr-defined] # it is a container
        READY.set()
        if how == "raises":
            raise RuntimeError("something else went wrong")
        if how == "waits":
            NEVER.wait()


if sys.argv[2] == "forgets":
    # The block is never left: a daemon thread just stops when the process ends.
    threading.Thread(target=hold, args=["waits"], daemon=True).start()
    READY.wait()
    sys.exit(3)
hold(sys.argv[2])
