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
from typing import NamedTuple

from ....errors import NoProgramRuns
from ...protocol import (
    NO_MEMORY_LIMIT,
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
    hidden_files,
    make_room,
    needed_directories,
    private_directories,
    root_entries,
)
from .guard.spec import Abilities, GuardOptions, ResourceBounds, UserKind
from .guard.trees import remove_tree
from .languages import LANGUAGES, Language, refused_by_language, words, written_code
from .notebook import NoKernelError, run_notebook

FETCH_LIMIT = 64 * 2**20
"""Maximum bytes of fetched files in one answer.

Chosen: the real server has no limit and runs out of memory.
"""
MOST_REMOVALS = 32
"""Directories of answered requests that may wait to be removed (chosen).

A new request waits until there are fewer.
"""
_REMOVERS = 4
"""Threads that remove directories (chosen)."""
_TRIAL_SECONDS = 10.0
"""Time limit of commands that find something out about this machine (chosen)."""
_EMPTY_PROGRAM = "python -S -c ''"
_FIRST_PROGRAM_SECONDS = 60.0
"""Time limit of the first program (chosen: a busy machine takes a few seconds to start Python)."""
_SHOWN_CELLS = 100
"""Characters of a notebook that the real server shows in its message."""
_CPP_LIBRARIES = (
    "for name in crypto ssl; do "
    '[ "$(g++ -print-file-name=lib$name.so)" = "lib$name.so" ] || echo "-l$name"; done; '
    "echo -lpthread"
)
"""Prints the flags for those libraries of the real server that are installed."""
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
    return without_climbing(os.pathsep.join((os.path.dirname(sys.executable), *_SYSTEM_PATH)))


def without_climbing(search_path: str) -> str:
    """Resolve the directories with `..`: one on the way may be hidden from programs."""
    return os.pathsep.join(
        os.path.realpath(path) if os.pardir in path.split(os.sep) else path
        for path in search_path.split(os.pathsep)
    )


class _Wanted(NamedTuple):
    """Which layers to use: True requires one, False disables it, None takes what there is."""

    namespaces: bool | None
    landlock: bool | None
    own_user: bool | None
    control_groups: bool | None


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
        self._path = path if path is None else without_climbing(path)
        self._finds_python = path is None
        """A path that was given may lack it on purpose."""
        self._env = dict(env or {})
        self._bounds = bounds or ResourceBounds()
        self._wanted = _Wanted(namespaces, landlock, own_user, control_groups)
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
        self._removers = ThreadPoolExecutor(_REMOVERS, "remove")
        self._warned = False

    async def confinement(self) -> Confinement:
        """Return how programs are confined on this machine."""
        able = await self._start().abilities()
        async with self._deciding:
            if self._confinement is None:
                confinement = await self._decide(able)
                if self._finds_python:
                    await self._try_program(confinement)
                self._confinement = confinement
            return self._confinement

    async def _decide(self, able: Abilities) -> Confinement:
        """Choose the layers; raise RuntimeError if one is required that is not available."""
        wanted = self._wanted
        _agreed("process namespaces", wanted.namespaces, able.namespaces)
        _agreed("Landlock", wanted.landlock, able.landlock > 0)
        own_user = _agreed("a user of its own", wanted.own_user, able.users is not None)
        _agreed("a control group", wanted.control_groups, able.control_groups)

        confinement = Confinement(able, root=os.geteuid() == 0)
        if not able.landlock and not able.namespaces and not able.bubblewrap:
            logger.warning(
                "programs can write wherever this user can: this machine offers no Landlock"
            )
        if not own_user or able.users is None:
            return confinement

        first, count = able.users
        # Servers that run at the same time hardly ever use the same ones.
        users = itertools.cycle(range(first, first + count))
        self._users = itertools.islice(users, secrets.randbelow(count), None)
        return await self._with_user(confinement)

    async def _with_user(self, confinement: Confinement) -> Confinement:
        """Choose the user that hides most of the machine, but nothing that programs should find."""
        able = confinement.able
        kinds: list[UserKind] = ["own"]
        if able.root_of_own and able.namespaces:
            kinds.insert(0, "root-of-own")
        finds_all = " && ".join(f"[ -r {shlex.quote(path)} ]" for path in self._expected())
        for kind in kinds:
            confined = replace(confinement, user_kind=kind)
            async with self._work_directory(confined) as work:
                runner = CommandRunner(self._start(), confined, stdin_race=False)
                tried = await runner.run(finds_all, work, _TRIAL_SECONDS)
                if tried.return_code == 0:
                    return confined
        return replace(confinement, user_kind="own-reading")

    async def _try_program(self, confinement: Confinement) -> None:
        """Raise NoProgramRuns unless a Python program that does nothing ends well."""
        async with self._work_directory(confinement) as work:
            runner = CommandRunner(self._start(), confinement, stdin_race=False)
            tried = await runner.run(_EMPTY_PROGRAM, work, _FIRST_PROGRAM_SECONDS)
        if not _went_well(tried):
            how = tried.status if tried.return_code is None else f"exit code {tried.return_code}"
            raise NoProgramRuns(
                f"the python executor cannot run programs here: `{_EMPTY_PROGRAM}` ended with "
                f"{how}: {(tried.stderr or '').strip()}; PATH is {work.env['PATH']}; install "
                "sfusion with a Python that programs may read, or choose the programs with "
                "PythonExecutor(path=...)"
            )

    def _expected(self) -> list[str]:
        """Return what programs are meant to find, of what there is."""
        search_path = self._path or default_path()
        expected = []
        for text in (search_path, *self._env.values()):
            for path in text.split(os.pathsep):
                if os.path.isabs(path) and os.path.exists(path):
                    expected.append(path)
        expected.append(os.__file__)
        python = shutil.which("python", path=search_path)
        if python is not None:
            expected.append(python)
        return expected

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
            shown = "\n".join(request.cells)[:_SHOWN_CELLS]
            message = f"exception on running jupyter {shown}: {self._shown(exc)} None"
            return RunJupyterAnswer("SandboxError", message)

    def _shown(self, error: Exception) -> str:
        """An error with paths as programs know them, and none of the server's own."""
        if not self._base:
            return str(error)
        return re.sub(rf"{re.escape(self._base)}(/run-[^/']*)?", "", str(error))

    async def settle(self) -> None:
        """Wait until the directories of answered requests are removed."""
        await asyncio.gather(*map(asyncio.wrap_future, list(self._removals)))

    async def aclose(self) -> None:
        """Stop all running programs."""
        if self._runner is not None:
            await self._runner.stop()
        if self._spawner is not None:
            await self._spawner.aclose()
        self._spawner = None
        self._runner = None
        self._confinement = None
        await self.settle()
        if self._base is not None and self._lock is not None:
            await asyncio.to_thread(remove_tree, self._base)
            os.close(self._lock)
            self._base = None
            self._lock = None

    async def _run_code(self, request: RunCode) -> RunCodeAnswer:
        language = LANGUAGES[request.language]
        refused = refused_by_language(request)
        if refused is not None:
            return _answer(refused, None, {})

        runner = await self._ready()
        async with self._work_directory(runner.confinement, language) as work:
            if language.gives_files:
                work.refuse_escapes(request.fetch_files)
            names = await self._prepare(request, language, runner, work)
            compiled, ran = await self._compile_and_run(request, runner, work, names)
            fetched: dict[str, str] = {}
            if language.gives_files and request.fetch_files:
                fetched = await asyncio.to_thread(work.fetch, request.fetch_files, FETCH_LIMIT)
            return _answer(compiled, ran, fetched)

    async def _prepare(
        self,
        request: RunCode,
        language: Language,
        runner: CommandRunner,
        work: WorkDirectory,
    ) -> dict[str, str]:
        """Write what a program needs; return the placeholders for its command lines."""
        names = words(request)
        names["cwd"] = work.cwd
        names["cpp_flags"] = await self._libraries(request, runner, work)
        if language.prepare is not None:
            await runner.run(language.prepare.format(**names), work, request.compile_timeout)
        write = partial(_write_files, request, language, work, names)
        names["source"] = await asyncio.to_thread(write) if request.files else write()
        work.hand_over()
        return names

    async def _compile_and_run(
        self,
        request: RunCode,
        runner: CommandRunner,
        work: WorkDirectory,
        names: Mapping[str, str],
    ) -> tuple[CommandResult | None, CommandResult | None]:
        """Compile a program, if its language is compiled, and run it, if that went well."""
        language = LANGUAGES[request.language]
        memory = request.memory_limit_MB if self._profile != "2025-06" else NO_MEMORY_LIMIT
        compiled: CommandResult | None = None
        if language.compile is not None:
            command = language.compile.format(**names)
            compiled = await runner.run(
                command, work, request.compile_timeout, memory_limit_mb=memory
            )
            if not _went_well(compiled):
                return compiled, None

        ran = await runner.run(
            language.run.format(**names),
            work,
            request.run_timeout,
            stdin=request.stdin,
            memory_limit_mb=memory,
            program=_python(work.env["PATH"]) if request.language == "python" else "",
        )
        return compiled, ran

    async def _ready(self) -> CommandRunner:
        confinement = await self.confinement()
        if self._runner is None:
            race = self._profile == "2025-06"
            self._runner = CommandRunner(self._start(), confinement, stdin_race=race)
        return self._runner

    def _start(self) -> Spawner:
        if self._spawner is None:
            self._spawner = Spawner(self._guard_options())
        return self._spawner

    def _guard_options(self) -> GuardOptions:
        wanted = self._wanted
        room, lock = self._room()
        bubblewrap = None
        if wanted.namespaces is None:
            bubblewrap = shutil.which("bwrap", path=os.defpath)
        hidden = hidden_directories(network=self._network) + hidden_files(self._env)
        path = self._path or default_path()
        self._needed = needed_directories(path, self._env, [*private_directories(), *hidden])
        return GuardOptions(
            room=room,
            lock=lock,
            bounds=self._bounds,
            namespaces=wanted.namespaces is not False,
            landlock=wanted.landlock is not False,
            control_groups=wanted.control_groups is not False,
            hidden=hidden,
            needed=self._needed,
            known=root_entries(),
            network=self._network,
            bubblewrap=bubblewrap or "",
        )

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
        room, _lock = self._room()
        work = WorkDirectory(room, private, self._needed, user)
        work.env = self._environment(work, language)
        try:
            yield work
        finally:
            # In a thread, because a program may have made a hundred thousand files.
            removal = self._removers.submit(work.remove)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    def _environment(self, work: WorkDirectory, language: Language | None) -> dict[str, str]:
        env = {"HOME": work.home}
        if not work.mounts:
            env["TMPDIR"] = work.home
        env["LANG"] = "C.UTF-8"
        env["SHLVL"] = "2"  # as recorded: the real server runs in a nested shell
        env["PATH"] = self._path or default_path()
        if language is not None:
            env |= language.env
        return env | self._env

    async def _libraries(self, request: RunCode, runner: CommandRunner, work: WorkDirectory) -> str:
        """Find out once which libraries for C++ programs are installed.

        Of those that the real server uses.
        """
        if request.language != "cpp":
            return ""
        if self._cpp_flags is None:
            found = await runner.run(_CPP_LIBRARIES, work, _TRIAL_SECONDS)
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
    """Is a layer used? Raise RuntimeError if it is required and not available."""
    if wanted and not able:
        raise RuntimeError(
            f"{what} is not available on this machine, but was set to True for this executor"
        )
    return able if wanted is None else wanted


def _write_files(
    request: RunCode, language: Language, work: WorkDirectory, names: Mapping[str, str]
) -> str:
    """Write the files of the language and the request into the work directory.

    Return the path of the program.
    """
    for name, text in language.extras.items():
        Path(work.folder, name).write_text(text, encoding="utf-8")
    if language.takes_files:
        work.restore(request.files)
    if language.node_modules:
        installed = os.path.join(work.home, "node_modules")
        os.symlink(installed, os.path.join(work.folder, "node_modules"))
    if language.suffix is None and language.source is None:
        return ""
    source = language.source.format(**names) if language.source is not None else None
    return work.write_source(written_code(request), suffix=language.suffix, name=source)


def _answer(
    compiled: CommandResult | None, ran: CommandResult | None, files: dict[str, str]
) -> RunCodeAnswer:
    results = [result for result in (compiled, ran) if result is not None]
    status: AnswerStatus = "Success" if all(map(_went_well, results)) else "Failed"
    answer = RunCodeAnswer(status, compile_result=compiled, run_result=ran, files=files)
    for result in results:
        if result.status == "Error":
            answer.status = "SandboxError"
            answer.message = result.stderr or ""
            break
    return answer


def _went_well(result: CommandResult) -> bool:
    return result.status == "Finished" and result.return_code == 0
