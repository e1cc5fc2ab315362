"""Commands that start warm.

``warm("sfusion")``, ``warm("pytest")`` and ``warm("python")`` do what the real commands do, in a
real process, but that is forked from an interpreter which has imported the product already:
importing takes longer than most commands. Tests of installing, starting, importing, hash seeds and
sudden death use the real commands.

``warm_ray_worker()`` does the same for the workers of a Ray cluster, from an interpreter that has
imported Ray too.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests import ROOT

_LAUNCHER = (ROOT / "tests/warm/launcher.py").read_text(encoding="utf-8")
_ENVIRON = dict(os.environ)
"""As the session began: the first test to ask for a warm command may have set variables of its
own."""


@cache
def _folder(checkout: Path) -> Path:
    return _start({"sfusion": ["sfusion"], "pytest": ["pytest"], "python": []}, checkout, _ENVIRON)


def _start(
    launchers: dict[str, list[str]], checkout: Path, environ: dict[str, str], *more: str
) -> Path:
    """Start an interpreter that has imported the product and ``more``, and is forked; it ends with
    this process.

    Return the folder with its launchers, each of which puts its own first words before those of the
    command.
    """
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, first in launchers.items():
        launcher = folder / name
        head = f"#!{sys.executable} -IS\nPYTHON = {sys.executable!r}\nFIRST = {first}\n"
        launcher.write_text(head + _LAUNCHER, encoding="utf-8")
        launcher.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(100)
        number = listener.fileno()
        command = [sys.executable, "-P", str(checkout / "tests/warm/zygote.py"), str(number), *more]
        process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, pass_fds=[number])
    atexit.register(process.communicate)
    return folder


def warm(name: str = "", checkout: Path = ROOT) -> Path:
    """Return the launcher of a command, ``sfusion``, ``pytest`` or ``python``, or the folder
    with all."""
    return _folder(checkout) / name


def warm_ray_worker() -> Path:
    """Return what Ray can run in place of its ``default_worker.py``, with the variables that are
    set now."""
    import ray

    script = Path(ray.__file__).parent / "_private" / "workers" / "default_worker.py"
    # Not the modules with our actors: to define one, Ray draws random numbers, which all forks
    # would draw again.
    folder = _start(
        {"ray-worker": [str(script)]}, ROOT, dict(os.environ), "ray", "ray._private.async_compat"
    )
    return folder / "ray-worker"
