"""Commands that start warm.

``warm("sfusion")``, ``warm("pytest")`` and ``warm("python")`` do what the real commands do, in a real process, but that
is forked from an interpreter which has imported the product already: importing takes longer than most commands. Tests
of installing, starting, importing, hash seeds and sudden death use the real commands.
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
"""As the session began: the first test to ask for a warm command may have set variables of its own."""


@cache
def _folder(checkout: Path) -> Path:
    """Start the interpreter that is forked; it ends with this process. Return the folder with its launchers."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("sfusion", "pytest", "python"):
        launcher = folder / name
        launcher.write_text(f"#!{sys.executable} -IS\nPYTHON = {sys.executable!r}\n{_LAUNCHER}", encoding="utf-8")
        launcher.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(100)
        number = listener.fileno()
        command = [sys.executable, "-P", str(checkout / "tests/warm/zygote.py"), str(number)]
        process = subprocess.Popen(command, env=_ENVIRON, stdin=subprocess.PIPE, pass_fds=[number])
    atexit.register(process.communicate)
    return folder


def warm(name: str = "", checkout: Path = ROOT) -> Path:
    """Return the launcher of a command, ``sfusion``, ``pytest`` or ``python``, or the folder with all."""
    return _folder(checkout) / name
