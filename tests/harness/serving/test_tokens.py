"""The token of a server comes from the environment or a file, and no output, process list or
program shows it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.executors.scripted import ScriptedExecutor
from sfusion.harness.cli import app
from sfusion.harness.errors import BadOption
from sfusion.harness.serving.server_options import refuse_readable
from tests.fakes.wire.raw import PATIENCE, get, one, run_code

TOKEN = "t0k-secret"
LIBC = ctypes.CDLL(None)
_PR_CAPBSET_DROP = 24
COMMANDS = [["serve", "sandbox"], ["serve", "sglang"], ["proxy", "http://127.0.0.1:1"]]


def without_capabilities() -> None:
    """Be an ordinary user, also if that is root: capabilities let it read everything, and hide it
    from others."""
    for capability in range(64):
        LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


@asynccontextmanager
async def serving(
    *arguments: str, token: str | None = None
) -> AsyncIterator[tuple[int, int, list[str]]]:
    """Run a command; yields its port, its process id and a list that holds all of its output at the
    end."""
    environ = {**os.environ, **({"SFUSION_TOKEN": token} if token is not None else {})}
    output: list[str] = []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sfusion", *arguments, "--port", "0", "--access-log"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ,
        preexec_fn=without_capabilities,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while not output or "admin: " not in output[-1]:
                line = (await process.stdout.readline()).decode()
                assert line, output
                output.append(line)
        found = re.search(r" on http://127\.0\.0\.1:(\d+)", "".join(output))
        assert found
        yield int(found[1]), process.pid, output
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            output.append((await process.communicate())[0].decode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


SEARCH = """
import glob
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if b"t0k-" + b"secret" in open(path, "rb").read():
            print("found it in", path)
    except OSError:
        pass
"""


async def shown_of(pid: int, name: str) -> tuple[str, str]:
    """What another process of the same user reads of a file in /proc, and its error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-Ic", f"print(open('/proc/{pid}/{name}', 'rb').read())"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=without_capabilities,
    )
    out, errors = await process.communicate()
    return out.decode(), errors.decode()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_a_token_of_the_environment_opens_the_admin_routes_and_no_program_finds_it() -> None:
    async with serving("serve", "sandbox", "--executor", "python", token=TOKEN) as (
        port,
        pid,
        output,
    ):
        assert (await one(port, get("/__sfusion/state"))).status == 401
        assert (await one(port, get("/__sfusion/state", TOKEN))).status == 200
        answer = (await one(port, run_code(SEARCH))).json
        assert answer["run_result"]["stdout"] == "", answer
        # Without namespaces, programs see the server among the processes of its user.
        shown, _ = await shown_of(pid, "cmdline")
        assert ("sandbox" in shown, TOKEN in shown) == (True, False)
        for name in ("environ", "mem"):
            assert "PermissionError" in (await shown_of(pid, name))[1]
    assert "with the token" in "".join(output)
    assert TOKEN not in "".join(output)


async def test_a_token_file_is_made_for_this_user_only_and_guards_all_requests_if_asked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    async with serving("serve", "sandbox", "--token-file", str(file), "--require-token") as (
        port,
        _,
        output,
    ):
        token = file.read_text().strip()
        assert (len(token) >= 32, file.stat().st_mode & 0o777) == (True, 0o600)
        assert (await one(port, run_code())).status == 401
        assert (
            await one(
                port,
                run_code().replace(b"host:", f"authorization: Bearer {token}\r\nhost:".encode()),
            )
        ).status == 200
        assert (await one(port, get("/v1/ping"))).status == 200
    assert token not in "".join(output)


@pytest.fixture
def open_file() -> Iterator[Path]:
    """A token file that every user can read.

    Not below tmp_path: any other run of pytest, and some tests start one, closes that folder's
    parent to other users.
    """
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "token")
        file.write_text(TOKEN)
        file.chmod(0o644)
        yield file


async def test_a_token_file_that_programs_can_read_is_refused(open_file: Path) -> None:
    async with FakeSandbox(executor=PythonExecutor(namespaces=False)) as sandbox:
        with pytest.raises(
            BadOption, match="the programs that this server runs can read"
        ) as caught:
            await refuse_readable(sandbox.executor, open_file)
        assert TOKEN not in str(caught.value)
        await refuse_readable(sandbox.executor, Path("/dev/null"))


async def test_a_token_file_is_refused_if_no_program_could_try_to_read_it(open_file: Path) -> None:
    """As on a machine so busy that the program runs out of time."""

    class Busy(ScriptedExecutor):
        runs_code = True

    async def stopped(_: float, __: float) -> None:
        return None

    busy = Busy(default={"seconds": 60}, work=stopped)
    with pytest.raises(BadOption, match=r"could not be tried.*TimeLimitExceeded"):
        await refuse_readable(busy, open_file)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
@pytest.mark.parametrize(
    ("options", "environ", "sentence"),
    [
        (["--token", TOKEN], {}, "--token on the command line can be read by other users"),
        (["--require-token"], {}, "--require-token needs a token"),
        (["--require-token"], {"SFUSION_TOKEN": ""}, "--require-token needs a token"),
        (["--token-file", "/dev/null"], {}, "--token-file /dev/null is empty"),
        (["--token-file", "/nowhere/token"], {}, "cannot be read"),
        (["--token-file", "/dev/null"], {"SFUSION_TOKEN": TOKEN}, "not in both"),
        ([], {"SFUSION_TOKEN": f"{TOKEN} x"}, "a token is one word"),
    ],
)
def test_wrong_tokens_are_refused_in_one_line_that_does_not_show_them(
    command: list[str], options: list[str], environ: dict[str, str], sentence: str
) -> None:
    done = CliRunner().invoke(app, [*command, *options], env=environ)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "secret" not in done.output
