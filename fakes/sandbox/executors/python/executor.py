"""The executor that runs programs."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from ...protocol import (
    AnswerStatus,
    CommandResult,
    Profile,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
)
from .command import CommandRunner, Confinement, Spawner, logger
from .files import (
    WorkDirectory,
    hidden_directories,
    make_room,
    needed_directories,
    private_directories,
)
from .guard.spec import Abilities, GuardOptions, ResourceBounds, UserKind
from .guard.trees import remove_tree
from .languages import LANGUAGES, Language, refused_by_language, words, written_code
from .notebook import NoKernelError, run_notebook

FETCH_LIMIT = 64 * 2**20
"""Maximum bytes of fetched files in one answer; the real server has no limit and runs out of
memory."""
MOST_REMOVALS = 32
"""Directories of answered requests that may wait to be removed; a new request waits until there are
fewer."""
_CPP_LIBRARIES = (
    "for name in crypto ssl; do "
    '[ "$(g++ -print-file-name=lib$name.so)" = "lib$name.so" ] || echo "-l$name"; done; '
    "echo -lpthread"
)


_SYSTEM_PATH = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/homebrew/bin",
)


def default_path() -> str:
    """Return where to look for programs: next to this Python, then in the system directories.

    The server's own PATH is not used: programs in a developer's home directory would make machines
    answer differently.
    """
    return os.pathsep.join((os.path.dirname(sys.executable), *_SYSTEM_PATH))


class PythonExecutor:
    """Runs programs on this machine, confined as tightly as the machine allows."""

    runs_code = True
    name = "python"

    def __init__(
        self,
        *,
        profile: Profile = "2026-07",
        path: str | None = None,
        env: Mapping[str, str] | None = None,
        bounds: ResourceBounds | None = None,
        namespaces: bool | None = None,
        landlock: bool | None = None,
        own_user: bool | None = None,
        control_groups: bool | None = None,
        network: bool = False,
    ) -> None:
        """Start nothing yet.

        `path` is where to look for programs and compilers, by default `default_path()`; `env` is
        added to the otherwise minimal environment of programs. `namespaces`, `landlock`, `own_user`
        (each request runs as a user of its own; needs root) and `control_groups` are used if the
        machine supports them; True requires them, False disables them. With `network`, programs use
        the machine's network and can call the server that runs them.
        """
        self._profile = profile
        self._path = path
        self._env = dict(env or {})
        self._bounds = bounds or ResourceBounds()
        self._wanted = namespaces, landlock, own_user, control_groups
        self._network = network
        self._base: str | None = None
        self._lock: int | None = None
        self._spawner: Spawner | None = None
        self._runner: CommandRunner | None = None
        self._confinement: Confinement | None = None
        self._cpp_flags: str | None = None
        self._users: Iterator[int] = iter(())
        self._deciding = asyncio.Lock()
        self._needed: list[str] = []
        self._removals: set[Future[None]] = set()
        # Of its own: what programs left behind must not delay the files of other requests.
        self._removers = ThreadPoolExecutor(4, "remove")
        self._warned = False

    async def confinement(self) -> Confinement:
        """Return how programs are confined on this machine."""
        able = await self._start().abilities()
        async with self._deciding:
            if self._confinement is None:
                self._confinement = await self._decide(able)
            return self._confinement

    async def _decide(self, able: Abilities) -> Confinement:
        _agreed("process namespaces", self._wanted[0], able.namespaces)
        _agreed("Landlock", self._wanted[1], able.landlock > 0)
        own_user = _agreed("a user of its own", self._wanted[2], able.users is not None)
        _agreed("a control group", self._wanted[3], able.control_groups)
        confinement = Confinement(able, root=os.geteuid() == 0)
        if not able.landlock and not able.namespaces and not able.bubblewrap:
            logger.warning(
                "programs can write wherever this user can: this machine offers no Landlock"
            )
        if not own_user or able.users is None:
            return confinement
        first, count = able.users
        # Servers that run at the same time hardly ever use the same ones.
        self._users = itertools.islice(
            itertools.cycle(range(first, first + count)), secrets.randbelow(count), None
        )
        command = " && ".join(f"[ -r {shlex.quote(path)} ]" for path in self._expected())
        kinds: tuple[UserKind, ...] = (
            ("root-of-own", "own") if able.root_of_own and able.namespaces else ("own",)
        )
        for kind in kinds:
            # The user that hides most of the machine, but nothing that programs are meant to find.
            confined = replace(confinement, user_kind=kind)
            async with self._work_directory(confined) as work:
                runner = CommandRunner(self._start(), confined, stdin_race=False)
                if (await runner.run(command, work, 10.0)).return_code == 0:
                    return confined
        return replace(confinement, user_kind="own-reading")

    def _expected(self) -> list[str]:
        """Return what programs are meant to find, of what there is."""
        search_path = self._path or default_path()
        named = [
            path for text in (search_path, *self._env.values()) for path in text.split(os.pathsep)
        ]
        found = [path for path in named if os.path.isabs(path) and os.path.exists(path)]
        return [*found, os.__file__, *filter(None, [shutil.which("python", path=search_path)])]

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        try:
            return await self._run_code(request)
        except Exception as exc:
            message = f"exception on running code {request.code}: {self._shown(exc)} None"
            return RunCodeAnswer("SandboxError", message)

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
        try:
            runner = await self._ready()
            async with self._work_directory(runner.confinement) as work:
                work.refuse_escapes(request.fetch_files)
                return await run_notebook(request, runner, work, FETCH_LIMIT)
        except Exception as exc:
            if isinstance(exc, NoKernelError) and not self._warned:
                self._warned = True
                logger.warning(str(exc))
            shown = "\n".join(request.cells)[:100]
            return RunJupyterAnswer(
                "SandboxError", f"exception on running jupyter {shown}: {self._shown(exc)} None"
            )

    def _shown(self, error: Exception) -> str:
        """An error with paths as programs know them, and none of the server's own."""
        return (
            re.sub(rf"{re.escape(self._base)}(/run-[^/']*)?", "", str(error))
            if self._base
            else str(error)
        )

    async def settle(self) -> None:
        """Wait until the directories of answered requests are removed."""
        await asyncio.gather(*map(asyncio.wrap_future, list(self._removals)))

    async def aclose(self) -> None:
        """Stop all running programs."""
        if self._runner is not None:
            await self._runner.stop()
        if self._spawner is not None:
            await self._spawner.aclose()
        self._spawner = self._runner = self._confinement = None
        await self.settle()
        if self._base is not None and self._lock is not None:
            await asyncio.to_thread(remove_tree, self._base)
            os.close(self._lock)
            self._base = self._lock = None

    async def _run_code(self, request: RunCode) -> RunCodeAnswer:
        language = LANGUAGES[request.language]
        if refused := refused_by_language(request):
            return _answer(refused, None, {})
        runner = await self._ready()
        async with self._work_directory(runner.confinement, language) as work:
            if language.gives_files:
                work.refuse_escapes(request.fetch_files)
            names = words(request) | {
                "cwd": work.cwd,
                "cpp_flags": await self._libraries(request, runner, work),
            }
            if language.prepare is not None:
                await runner.run(language.prepare.format(**names), work, request.compile_timeout)
            write = partial(_write_files, request, language, work, names)
            names["source"] = await asyncio.to_thread(write) if request.files else write()
            work.hand_over()
            memory = request.memory_limit_MB if self._profile != "2025-06" else -1
            compiled: CommandResult | None = None
            ran: CommandResult | None = None
            if language.compile is not None:
                command = language.compile.format(**names)
                compiled = await runner.run(
                    command, work, request.compile_timeout, memory_limit_mb=memory
                )
            if compiled is None or (compiled.status == "Finished" and compiled.return_code == 0):
                command = language.run.format(**names)
                program = _python(work.env["PATH"]) if request.language == "python" else ""
                ran = await runner.run(
                    command,
                    work,
                    request.run_timeout,
                    stdin=request.stdin,
                    memory_limit_mb=memory,
                    program=program,
                )
            fetched: dict[str, str] = {}
            if language.gives_files and request.fetch_files:
                fetched = await asyncio.to_thread(work.fetch, request.fetch_files, FETCH_LIMIT)
            return _answer(compiled, ran, fetched)

    async def _ready(self) -> CommandRunner:
        confinement = await self.confinement()
        if self._runner is None:
            self._runner = CommandRunner(
                self._start(), confinement, stdin_race=self._profile == "2025-06"
            )
        return self._runner

    def _start(self) -> Spawner:
        if self._spawner is None:
            room, lock = self._room()
            namespaces, landlock, _, groups = (wanted is not False for wanted in self._wanted)
            bubblewrap = shutil.which("bwrap", path=os.defpath) if self._wanted[0] is None else None
            hidden = hidden_directories(network=self._network)
            path = self._path or default_path()
            self._needed = needed_directories(path, self._env, [*private_directories(), *hidden])
            options = GuardOptions(
                room, lock, self._bounds, namespaces, landlock, groups, hidden, self._needed
            )
            self._spawner = Spawner(
                replace(options, network=self._network, bubblewrap=bubblewrap or "")
            )
        return self._spawner

    def _room(self) -> tuple[str, int]:
        if self._base is None or self._lock is None or not os.path.isdir(self._base):
            # A guard that failed may have removed it.
            self._base, self._lock = make_room()
            if self._path is None:
                self._path = default_path()
                if shutil.which("python", path=self._path) is None:
                    self._path = _named_python(self._base) + os.pathsep + self._path
        return self._base, self._lock

    @asynccontextmanager
    async def _work_directory(
        self, confinement: Confinement, language: Language | None = None
    ) -> AsyncIterator[WorkDirectory]:
        """Make one, with a minimal environment, without the server's tokens, keys and proxies.

        The answer does not wait for its removal: the kernel delays that until the namespaces have
        ended.
        """
        while len(removals := list(self._removals)) >= MOST_REMOVALS:
            await asyncio.wait(
                map(asyncio.wrap_future, removals), return_when=asyncio.FIRST_COMPLETED
            )
        private = private_directories() if confinement.namespaces else []
        user = next(self._users) if confinement.own_user else None
        work = WorkDirectory(self._room()[0], private, self._needed, user)
        work.env = {
            "HOME": work.home,
            **({} if work.mounts else {"TMPDIR": work.home}),
            "LANG": "C.UTF-8",
            "SHLVL": "2",  # as recorded: the real server runs in a nested shell
            "PATH": self._path or default_path(),
            **(language.env if language else {}),
            **self._env,
        }
        try:
            yield work
        finally:
            # In a thread, because a program may have made a hundred thousand files.
            removal = self._removers.submit(work.remove)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def _libraries(self, request: RunCode, runner: CommandRunner, work: WorkDirectory) -> str:
        """Find out once which libraries for C++ programs are installed, of those that the real
        server uses."""
        if request.language != "cpp":
            return ""
        if self._cpp_flags is None:
            found = await runner.run(_CPP_LIBRARIES, work, 10.0)
            self._cpp_flags = " ".join((found.stdout or "").split())
        return self._cpp_flags


def _named_python(room: str) -> str:
    """Make a directory in which this Python is called `python`; some systems have no such name."""
    folder = Path(room, "bin")
    folder.mkdir()
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(folder)


@cache
def _python(search_path: str) -> str:
    return shutil.which("python", path=search_path) or ""


def _agreed(what: str, wanted: bool | None, able: bool) -> bool:
    if wanted and not able:
        raise RuntimeError(
            f"{what} is not available on this machine, but was set to True for this executor"
        )
    return able if wanted is None else wanted


def _write_files(
    request: RunCode, language: Language, work: WorkDirectory, names: Mapping[str, str]
) -> str:
    """Write the files of the language and the request into the work directory; return the path of
    the program."""
    for name, text in language.extras.items():
        Path(work.folder, name).write_text(text, encoding="utf-8")
    if language.takes_files:
        work.restore(request.files)
    if language.node_modules:
        os.symlink(
            os.path.join(work.home, "node_modules"), os.path.join(work.folder, "node_modules")
        )
    if language.suffix is None and language.source is None:
        return ""
    source = language.source.format(**names) if language.source is not None else None
    return work.write_source(written_code(request), suffix=language.suffix, name=source)


def _answer(
    compiled: CommandResult | None, ran: CommandResult | None, files: dict[str, str]
) -> RunCodeAnswer:
    results = [result for result in (compiled, ran) if result is not None]
    for result in results:
        if result.status == "Error":
            return RunCodeAnswer("SandboxError", result.stderr or "", compiled, ran, None, files)
    fine = all(result.status == "Finished" and result.return_code == 0 for result in results)
    status: AnswerStatus = "Success" if fine else "Failed"
    return RunCodeAnswer(status, "", compiled, ran, None, files)
