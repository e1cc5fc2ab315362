"""``sfusion run``: run scenarios and report which promises held.

Exit code 0 if every promise held, 1 if one was broken or unknown, 2 if the input is wrong, 3 if
something external is missing or fails (Ray, Docker, the sandbox, the disk), 4 for a bug in sfusion.

Example: sfusion run throttled-gateway my-scenario.yaml --out runs --html report.html
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, get_args

from sfusion_tools.errors import near
from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline import options as shared
from ...commandline.declaring import command, option
from ...commandline.exits import say
from ...commandline.json_answer import text_stream
from ...core.journal import PAGE, Journal
from ...core.verdict import Verdict
from ...errors import BadOption
from ...real.targets import FakeTarget, RealSandbox, Target, open_targets, read_target
from ...reports import Reports, RunReport, RunReporter, render_run
from ...reports.files import github_annotations, in_github_actions
from ..runs import RunResult, Task, adapt_tasks, read_tasks, run_all, select_tasks
from ..runs.directory import VERDICT, written_run
from ..runs.faces import episode_client, read_face
from ..runs.reporting import report_of_result
from ..runs.runner import finish_all
from ..runs.tasks import admit_tasks, read_tools
from ..scenarios import scenario_files
from ..scenarios.model import Scenario, World
from ..scenarios.parts import read_schedule
from ..spreading import Workers, open_workers

_RAY = "World ray"
_LOOPBACK = "127.0.0.1"
_WORLDS: tuple[World, ...] = get_args(World)


@dataclass(frozen=True)
class RunOptions:
    """The options of the command."""

    paths: shared.Paths = None
    keyword: shared.Keyword = ""
    seed: Annotated[int | None, option("Seed to use instead of the one in each file.", min=0)] = (
        None
    )
    schedule: shared.Schedule = None
    twice: Annotated[bool, option("Run everything twice and compare the journals.")] = False
    tools: shared.Tools = None
    env: shared.AddressVariable = None
    attribute: shared.AddressAttribute = None
    face: shared.Service = None
    trust: shared.Trust = False
    verbose: Annotated[
        bool,
        option(
            "Print every run, not only those that did not hold, with the implied promises that "
            "held.",
            names="-v",
        ),
    ] = False
    world: Annotated[
        str | None,
        option(
            "sim: virtual time, the default. "
            "wall: one process in real time, for tools with threads or blocking calls. "
            "ray: a real cluster; the default with a real sandbox if Ray is installed, else wall.",
            "sim|wall|ray",
            shared.WHERE,
        ),
    ] = None
    sandbox: shared.Sandboxes = None
    jobs: shared.Jobs = 0
    on: shared.On = "here"
    ray_address: shared.RayAddress = None
    out: shared.Out = None
    html: shared.Html = None
    junit: Annotated[Path | None, option("Write JUnit XML.", panel=shared.WRITTEN)] = None
    summary: shared.Summary = None
    json: shared.Json = None
    listen: Annotated[
        str,
        option(
            "Address of this machine that the other machines of the cluster can reach.",
            "ADDRESS",
            _RAY,
        ),
    ] = _LOOPBACK
    start_timeout: Annotated[
        float | None,
        option(
            "Time that the processes and tools of a run may take to start (default 90).",
            "SECONDS",
            _RAY,
        ),
    ] = None

    def world_for(self, *, real: bool, not_sim: str = "") -> World:
        """Return the world; raise BadOption if the options do not fit it.

        ``real``: the sandboxes are not fakes. ``not_sim``: why virtual time cannot play the tools.
        """
        world = self._named_world() or _default_world(real=real, not_sim=not_sim)
        if world == "sim" and not_sim:
            raise BadOption(
                f"--world sim cannot play {self.tools}: {not_sim}; leave it out for --world wall"
            )
        if real and world == "sim":
            raise BadOption(
                "--world sim: a real sandbox needs real time; leave it out, or give --world wall "
                "or --world ray"
            )
        if self.start_timeout is not None and not 0 < self.start_timeout < inf:
            raise BadOption(
                f"--start-timeout {self.start_timeout:g}: give a number of seconds above 0"
            )
        if world != "ray":
            self._check_without_ray()
        if world != "sim":
            self._check_without_sim(world)
        return world

    def _named_world(self) -> World | None:
        """Return the world that ``--world`` names."""
        if not self.world:
            return None
        for world in _WORLDS:
            if world == self.world:
                return world
        raise BadOption(f"--world {self.world}: no such world; {near(self.world, _WORLDS)}")

    def _check_without_ray(self) -> None:
        """Refuse options that only world ray understands."""
        if self.listen != _LOOPBACK or self.start_timeout is not None:
            raise BadOption("--listen and --start-timeout need --world ray")
        if self.ray_address is not None and self.on == "here":
            raise BadOption("--ray-address names a Ray cluster; add --world ray or --on ray")

    def _check_without_sim(self, world: World) -> None:
        """Refuse options that only world sim understands."""
        if self.twice:
            raise BadOption("--twice compares journals byte by byte, which works only in world sim")
        if self.schedule is not None:
            raise BadOption(
                f"--schedule needs --world sim: in world {world} the machines decide the order"
            )
        if self.on != "here":
            raise BadOption(
                f"--on spreads the runs of world sim; with --world {world} leave it out"
            )


def _default_world(*, real: bool, not_sim: str) -> World:
    """Return the world that is used if none is named: for real sandboxes a cluster where Ray is
    installed."""
    if real and importlib.util.find_spec("ray") is not None:
        return "ray"
    return "wall" if real or not_sim else "sim"


@command
def run(options: RunOptions) -> int:
    targets = _real_targets(options.sandbox or [])
    tools, not_sim = read_tools(options.tools, env=options.env, attribute=options.attribute)
    if options.world == "sim" and _plays_in_sim_if_asked(tools):
        not_sim = ""
    world = options.world_for(real=bool(targets), not_sim=not_sim)
    reports = Reports(options.out, options.html, options.junit, options.summary, options.json)
    tasks, notes = _tasks(options, world, tools, real=bool(targets))
    if not_sim and options.world is None:
        notes.append(f"Played in world {world}: {not_sim}")
    reports.check()

    began = time.time()
    runs: list[RunReport] = []
    codes: set[int] = set()
    with (
        _player(options, world, tasks, targets) as player,
        _workers(options, world, len(tasks)) as workers,
        RunReporter(text_stream(reports.json), len(tasks), verbose=options.verbose) as shown,
    ):
        try:
            for ended in _ended(options, tasks, reports, player, workers):
                shown.run_ended(ended.report)
                if options.verbose:
                    _show_implied(shown, ended)
                runs.append(ended.report)
                codes.add(ended.exit_code)
        except KeyboardInterrupt:
            done = len(runs) if reports.out is None else _written_since(began, tasks, reports.out)
            raise KeyboardInterrupt(_kept(done, len(tasks), reports)) from None
        shown.finish(runs, "".join(f" {sentence}." for sentence in notes))

    reports.write(runs)
    if in_github_actions():
        text_stream(reports.json).write(github_annotations(runs))
    return 1 if 1 in codes else max(codes)


def _plays_in_sim_if_asked(tools: list[dict[str, Any]] | None) -> bool:
    """May virtual time play the given target although it does not by default?"""
    client = episode_client(tools)
    return client is not None and client.sim_if_asked


def _real_targets(sandboxes: Sequence[str]) -> list[Target]:
    """Return the real sandboxes; they cannot be combined with fakes."""
    targets: list[Target] = []
    for sandbox in sandboxes:
        target = read_target(sandbox)
        if not isinstance(target, FakeTarget):
            targets.append(target)
    if targets and len(targets) < len(sandboxes):
        raise BadOption("--sandbox: fake cannot be combined with real sandboxes")
    return targets


def _workers(options: RunOptions, world: World, tasks: int) -> AbstractContextManager[Workers]:
    """Open the processes that run the tasks; world ray has one cluster that plays them all."""
    if world == "ray":
        return open_workers(1, options.on, None)
    jobs = min(options.jobs or os.cpu_count() or 1, tasks)
    return open_workers(jobs, options.on, options.ray_address)


@dataclass(frozen=True)
class _EndedRun:
    """A run that was written, as the command shows it."""

    report: RunReport
    implied: Sequence[Verdict]
    exit_code: int


def _ended(
    options: RunOptions,
    tasks: Sequence[Task],
    reports: Reports,
    player: Callable[[Scenario], Journal] | None,
    workers: Workers,
) -> Iterator[_EndedRun]:
    """Run the tasks, and write each run where it was played.

    The machines of a Ray cluster have other disks: what they play is written here.
    """
    keep = partial(
        _kept_run,
        out=reports.out,
        whole=len(tasks) == 1,  # whose page is that of --html
        outcomes=reports.json is not None,
    )
    if options.on == "here":
        return finish_all(tasks, keep, workers=workers, twice=options.twice, player=player)
    return map(keep, run_all(tasks, twice=options.twice, player=player, workers=workers))


def _kept_run(result: RunResult, *, out: Path | None, whole: bool, outcomes: bool) -> _EndedRun:
    """Write a run, if there is a place for it, and keep of it what the command shows."""
    report = report_of_result(result, None if out is None else out / result.task.folder)
    if out is not None:
        page = render_run(report)  # takes longer than all the rest: others may write meanwhile
        with written_run(result, out) as folder:
            write_file(folder / PAGE, page)
    if not whole:
        report = report.without_events(outcomes=outcomes)
    return _EndedRun(report, result.implied, result.exit_code)


def _show_implied(shown: RunReporter, ended: _EndedRun) -> None:
    """Print the promises that held without being written in the scenario."""
    held = [verdict.promise for verdict in ended.implied if verdict.held]
    if held:
        shown.print(f"  also held: {', '.join(held)}", "dim")


def _tasks(
    options: RunOptions, world: World, given: list[dict[str, Any]] | None, *, real: bool
) -> tuple[list[Task], list[str]]:
    """Return what to run, and sentences about what is left out."""
    tasks = read_tasks(scenario_files(options.paths or []), world, trust=options.trust)
    face = read_face(options.face)
    if face is not None and episode_client(given) is None:
        raise BadOption("--face says which service a client of episodes speaks to; add --tools")
    tasks, skipped = select_tasks(tasks, keyword=options.keyword, real=real, tools=given, face=face)
    schedule = None if options.schedule is None else read_schedule(options.schedule)
    tasks = adapt_tasks(tasks, seed=options.seed, tools=given, schedule=schedule, face=face)
    admit_tasks(tasks, options.tools)

    notes = [f"{counted(count, 'cell')} skipped ({why})" for why, count in skipped.items()]
    if not tasks:
        why_none = "; ".join(notes) or f"-k {options.keyword!r} matches none"
        raise BadOption(f"no scenario to run: {why_none}")
    return tasks, notes


@contextmanager
def _player(
    options: RunOptions, world: World, tasks: Sequence[Task], targets: Sequence[Target]
) -> Iterator[Callable[[Scenario], Journal] | None]:
    """Open a cluster and the real sandboxes, and yield the function that plays scenarios there.

    Without either it yields None. Afterwards our own cluster is shut down and a given one is left
    as it was.
    """
    if world != "ray" and not targets:
        yield None
        return

    instances = max(task.scenario.sandbox.instances for task in tasks)
    opening: AbstractContextManager[Sequence[RealSandbox]] = nullcontext(())
    if targets:
        opening = open_targets(targets, at_least=instances, say=say)
    if world != "ray":
        with opening as real:
            yield partial(_play_on_wall, real, targets)
        return

    from ..worlds.ray_cluster import open_cluster

    with opening as real, closing(open_cluster(options.ray_address)) as cluster:
        cluster.check(task.scenario for task in tasks)
        from ..worlds import ray  # imports the package, which may be missing

        def play(scenario: Scenario) -> Journal:
            journal = ray.run(
                scenario,
                cluster=cluster,
                listen=options.listen,
                real=_used(real, scenario, targets),
                start_timeout=options.start_timeout or ray.START_SECONDS,
            )
            if targets:
                journal.header["sandboxes"] = [str(target) for target in targets]
            return journal

        yield play


def _used(
    real: Sequence[RealSandbox], scenario: Scenario, targets: Sequence[Target]
) -> Sequence[RealSandbox]:
    """Return the sandboxes of a scenario: others may need more instances than there are targets,
    so more may be open."""
    return real[: max(scenario.sandbox.instances, len(targets))]


def _play_on_wall(
    real: Sequence[RealSandbox], targets: Sequence[Target], scenario: Scenario
) -> Journal:
    """Play a scenario with real sandboxes in this process."""
    from ..worlds import wall

    journal = wall.run(scenario, real=_used(real, scenario, targets))
    journal.header["sandboxes"] = [str(target) for target in targets]
    return journal


def _written_since(began: float, tasks: Sequence[Task], out: Path) -> int:
    """Count the runs that were written, among them those whose turn to be shown has not come."""
    found = 0
    for task in tasks:
        with suppress(FileNotFoundError):
            found += (out / task.folder / VERDICT).stat().st_mtime >= began
    return found


def _kept(done: int, wanted: int, reports: Reports) -> str:
    """Say what an interruption left."""
    text = f"{done} of {counted(wanted, 'run')} ended"
    if reports.out is not None:
        text += f", and what they wrote is in {reports.out}"
    files = reports.wanted()
    if files:
        text += f"; {files} not written"
    return text
