"""Where the token of a server comes from: a file or the environment, never the command line, which others can read."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sfusion.harness.errors import BadOption

if TYPE_CHECKING:
    from sfusion.fakes.sandbox import FakeSandbox

VARIABLE = "SFUSION_TOKEN"
_LONGEST = 1000
_PR_SET_DUMPABLE = 4


def read_token(typed: str | None, file: Path | None, *, required: bool) -> str | None:
    """The token of ``--token-file`` or of the environment, None if there is none. Errors never show it."""
    if typed is not None:
        raise BadOption(
            "--token on the command line can be read by other users and by the programs that the server runs; "
            f"set {VARIABLE}, or use --token-file FILE"
        )
    token = os.environ.pop(VARIABLE, None) or None
    if token is not None and file is not None:
        raise BadOption(f"give the token either in {VARIABLE} or in --token-file, not in both")
    if file is not None:
        token = _from_file(file)
    if token is None:
        if required:
            raise BadOption(f"--require-token needs a token: set {VARIABLE}, or use --token-file FILE")
        return None
    if not (token.isascii() and token.isprintable() and " " not in token and len(token) <= _LONGEST):
        where = VARIABLE if file is None else f"--token-file {file}"
        raise BadOption(f"{where}: a token is one word of up to {_LONGEST} ASCII characters")
    _hide_this_process()
    return token


def _from_file(file: Path) -> str:
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "w") as new:
                new.write(secrets.token_urlsafe(24) + "\n")
            typer.echo(f"a new token was written to {file}", err=True)
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_LONGEST + 2).strip()
    except OSError as error:
        raise BadOption(f"--token-file {file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise BadOption(f"--token-file {file}: a token is one word of ASCII characters") from None
    if not text:
        raise BadOption(f"--token-file {file} is empty")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        typer.echo(f"every user of this machine can read {file}: chmod 600 {file}", err=True)
    return text


def _hide_this_process() -> None:
    """Keep other processes of the same user from reading the environment and the memory of this one."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _reading(file: Path | None) -> str | None:
    """A program that reads the file; None for a pipe, which nobody can read again."""
    return f"open({str(file.absolute())!r}).read(1)" if file is not None and file.is_file() else None


async def refuse_readable(sandbox: FakeSandbox, file: Path | None) -> None:
    """Raise BadOption if the programs that the sandbox runs can read the token: they may run as the server's user."""
    from sfusion.fakes.sandbox.protocol import RunCode

    program = _reading(file)
    if program is None or not sandbox.executor.runs_code:
        return
    answer = await sandbox.executor.run_code(RunCode(code=program, language="python"))
    if answer.run_result is not None and answer.run_result.return_code == 0:
        raise BadOption(
            f"the programs that this server runs can read {file}; give the token in {VARIABLE}, through a pipe "
            "(--token-file <(COMMAND)), or in a file under /tmp if programs have a /tmp of their own"
        )
