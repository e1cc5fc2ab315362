"""A run that holds a container until something ends it: ``python -m tests.docker.holder IMAGE [HOW]``.

It prints the container's name when that is ready, then waits, or ends by itself as HOW says.
"""

from __future__ import annotations

import signal
import sys
import threading

from harness.targets import DockerTarget, open_targets

# A shell that starts something in the background has Ctrl-C ignored there; this is a run in the foreground.
signal.signal(signal.SIGINT, signal.default_int_handler)

opened = open_targets([DockerTarget(sys.argv[1])])
how = sys.argv[2] if len(sys.argv) > 2 else "waits"
if how == "forgets":
    print(opened.__enter__()[0].container_name, flush=True)  # type: ignore[attr-defined] # it is a container
    sys.exit(3)
with opened as (sandbox,):
    print(sandbox.container_name, flush=True)  # type: ignore[attr-defined] # it is a container
    if how == "raises":
        raise RuntimeError("something else went wrong")
    if how == "waits":
        threading.Event().wait()
