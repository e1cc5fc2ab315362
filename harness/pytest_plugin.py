"""The pytest plugin: scenario files as tests, and fixtures.

The fixtures are for the fakes, virtual time, scenarios and trials of clients. It does nothing by
itself: YAML files are collected only where the command line or the ini option
``sfusion_scenarios`` names them, and heavy imports happen in the fixture that needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import asyncio

    from ..fakes.daytona import FakeDaytona
    from ..fakes.e2b import FakeE2B
    from ..fakes.hosting.service import SandboxService
    from ..fakes.openenv import FakeOpenEnv
    from ..fakes.proxy import FaultProxy
    from ..fakes.sandbox import FakeSandbox
    from ..fakes.sglang import FakeSGLangServer
    from ..fakes.wire.events import EventSink, ServerEvent
    from .core.traffic import Traffic
    from .lab.runs import RunResult
    from .real.targets import RealSandbox
    from .trial.result import TrialResult

_SCENARIO = re.compile(rb"^scenario[ \t]*:", re.MULTILINE)
_MORE_OF_IT = re.compile(rb"^(promises|extends)[ \t]*:", re.MULTILINE)
_LARGEST = 1_000_001
"""One byte more than a scenario may have: its reader then says so."""
_NAMED = pytest.StashKey[list[Path]]()
_SENT = "sfusion_named"
_TRAFFIC: pytest.StashKey[Traffic] = pytest.StashKey()
"""The requests of the sandbox of a test."""
_RUNS_CODE = pytest.StashKey[bool]()
_CALLS_SHOWN = 20
"""Calls that the section of a failed test lists. Chosen: a screen."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "sfusion_scenarios",
        "files or folders of scenarios to run without naming them",
        "paths",
        default=[],
    )
    group = parser.getgroup("sfusion", "sfusion scenarios")
    group.addoption(
        "--sfusion-out",
        metavar="DIR",
        help="write journal, verdicts and report of every scenario there",
    )
    group.addoption(
        "--sfusion-sandbox",
        metavar="fake|URL|docker[:IMAGE]",
        help="sandbox behind the fixture `sandbox` (ini: sfusion_sandbox; default: fake)",
    )
    parser.addini(
        "sfusion_sandbox", "sandbox behind the fixture `sandbox`: fake, URL, docker or docker:IMAGE"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sandbox_faults(rules): faults of the test's fake_sandbox or sandbox"
    )
    sent: list[str] | None = getattr(config, "workerinput", {}).get(_SENT)
    config.stash[_NAMED] = _named(config) if sent is None else [Path(path) for path in sent]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the named paths to xdist workers.

    They cannot tell arguments of the command line from others.
    """
    node.workerinput[_SENT] = [str(path) for path in node.config.stash[_NAMED]]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect scenario files that were named; ignore all other YAML files."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    named = parent.config.stash[_NAMED]
    if file_path not in named and not _is_beneath(file_path, named):
        return None
    with file_path.open("rb") as file:
        content = file.read(_LARGEST)
    if not (_SCENARIO.search(content) and _MORE_OF_IT.search(content)):
        return None
    from .pytest_items import ScenarioFile

    taken: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return taken


def _is_beneath(file: Path, folders: list[Path]) -> bool:
    """Is a file one that naming a folder includes?"""
    if file.name[0] == "_":  # it only serves `extends`
        return False
    if file.with_name("journal.ndjson").exists():  # it is part of a recorded run
        return False
    return any(folder in file.parents for folder in folders)


def _named(config: pytest.Config) -> list[Path]:
    paths: list[Path] = list(config.getini("sfusion_scenarios"))
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        here = config.invocation_params.dir
        paths += [here / argument.partition("::")[0] for argument in config.args]
    return [path.resolve() for path in paths]


@pytest.fixture(scope="session")
def make_fake_sandbox() -> Iterator[Callable[..., FakeSandbox]]:
    """Start fake sandboxes with any options; they are stopped at the end of the session."""
    from contextlib import ExitStack

    from ..fakes.sandbox import FakeSandbox

    with ExitStack() as running:
        yield lambda **options: running.enter_context(FakeSandbox(**options))


@pytest.fixture
def fake_sandbox(request: pytest.FixtureRequest) -> Iterator[FakeSandbox]:
    """A fake Sandbox Fusion for this test, listening at ``fake_sandbox.url``. It runs no code
    unless told to.

    Set options by indirect parametrisation: ``@pytest.mark.parametrize("fake_sandbox", [{"model":
    {"kind": "quota", "in_flight": 8}}], indirect=True)``, and faults with
    ``@pytest.mark.sandbox_faults([...])`` or, in the test, ``fake_sandbox.set_faults([...])``.
    """
    from ..fakes.sandbox import FakeSandbox

    options: dict[str, Any] = dict(getattr(request, "param", {}))
    if request.node.get_closest_marker("sandbox_faults"):
        options["faults"] = _faults(request)
    options["journal"] = _watched(request, options.get("journal"))
    request.node.stash[_RUNS_CODE] = options.get("executor") is not None
    with FakeSandbox(**options) as sandbox:
        yield sandbox
    _forget_sandboxes()


def _watched(request: pytest.FixtureRequest, journal: EventSink | None) -> EventSink:
    """Return a journal that also keeps the requests for the section of a failed test."""
    from .core.traffic import Traffic

    traffic = request.node.stash[_TRAFFIC] = Traffic()

    def note(event: ServerEvent) -> None:
        traffic.note(event)
        if journal is not None:
            journal(event)

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a failed test end with the requests that its sandbox received."""
    report = yield
    if report.when == "call" and report.failed and _TRAFFIC in item.stash:
        report.sections.append(("sfusion: what the sandbox received", _section(item)))
    return report


def _section(item: pytest.Item) -> str:
    traffic = item.stash[_TRAFFIC]
    if not traffic.requests:
        return "no request for work; does the client use the url of the fixture?"
    lines = [traffic.headline, *traffic.call_lines(_CALLS_SHOWN)]
    for verdict in traffic.verdicts():
        if verdict.remedy:
            lines += [f"{verdict.state}: {verdict.sentence}", f"  A right client {verdict.remedy}"]
    ran = any(attempt.brought_a_result for sent in traffic.calls.values() for attempt in sent)
    if ran and not item.stash.get(_RUNS_CODE, True):
        lines.append(_RUNS_NONE)
    return "\n".join(lines)


_RUNS_NONE = (
    "fake_sandbox runs no code: it answers SandboxError, with a message that says so, to a program "
    "without a script. Use the fixture `sandbox`, or executor='python', to run programs."
)


def _faults(request: pytest.FixtureRequest) -> Any:
    marker = request.node.get_closest_marker("sandbox_faults")
    if marker is None:
        return ()
    if len(marker.args) != 1 or marker.kwargs:
        example = 'sandbox_faults([{"first": 1, "what": {"status": 503}}])'
        pytest.fail(
            f"sandbox_faults takes one argument, a list of fault rules: {example}", pytrace=False
        )
    return marker.args[0]


def _forget_sandboxes() -> None:
    # A sandbox of a later test may get the same port, and must not inherit this one's reputation.
    from sfusion_tools.sandbox.fleet import process_fleet

    process_fleet().forget()


@pytest.fixture(scope="session")
def real_sandbox(request: pytest.FixtureRequest) -> Iterator[RealSandbox | None]:
    """The real sandbox named by ``--sfusion-sandbox``, for the whole session; None if that is the
    fake."""
    from .real.targets import FakeTarget, TargetError, open_targets, read_target, silent

    # A worker of xdist has none.
    terminal: Any = request.config.pluginmanager.getplugin("terminalreporter")
    named = (
        request.config.getoption("--sfusion-sandbox")
        or request.config.getini("sfusion_sandbox")
        or "fake"
    )
    try:
        target = read_target(named)
        if isinstance(target, FakeTarget):
            yield None
            return
        with open_targets([target], say=terminal.write_line if terminal else silent) as (sandbox,):
            yield sandbox
        return
    except TargetError as error:
        problem = str(error)
    # Outside of except, or pytest shows all causes too.
    pytest.fail(f"--sfusion-sandbox: {problem}", pytrace=False)


@pytest.fixture
def sandbox(
    request: pytest.FixtureRequest, real_sandbox: RealSandbox | None
) -> Iterator[FakeSandbox | FaultProxy]:
    """A sandbox that really runs code, at ``sandbox.url``: a fake, or a fault proxy in front of a
    real one.

    ``--sfusion-sandbox`` chooses between them. Faults work as for ``fake_sandbox``; what only a
    server knows (was the code executed?) is None in the ledger of a proxy.
    """
    faults = _faults(request)
    journal = _watched(request, None)
    if real_sandbox is None:
        from ..fakes.sandbox import FakeSandbox

        opened: FakeSandbox | FaultProxy = FakeSandbox(
            executor="python", faults=faults, journal=journal
        )
    else:
        from .real.targets.proxying import proxy_in_front_of

        opened = proxy_in_front_of(real_sandbox.url, faults=faults, journal=journal)
    with opened:
        yield opened
    _forget_sandboxes()


@pytest.fixture(scope="session")
def make_fake_sglang() -> Iterator[Callable[..., FakeSGLangServer]]:
    """Start fake sglang servers with any policy and options; they are stopped at the end of the
    session."""
    from contextlib import ExitStack

    from ..fakes.sglang import FakeSGLangServer

    with ExitStack() as running:
        yield lambda *policy, **options: running.enter_context(FakeSGLangServer(*policy, **options))


@pytest.fixture
def fake_sglang(request: pytest.FixtureRequest) -> Iterator[FakeSGLangServer]:
    """A fake sglang for this test, listening at ``fake_sglang.url``; by default it solves word
    problems.

    Set options by indirect parametrisation: ``@pytest.mark.parametrize("fake_sglang", [{"policy":
    ScriptedPolicy(["Hi"])}], indirect=True)``.
    """
    from ..fakes.sglang import FakeSGLangServer

    options: dict[str, Any] = getattr(request, "param", {})
    with FakeSGLangServer(**options) as server:
        yield server


@pytest.fixture
def fake_daytona(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeDaytona]:
    """A fake Daytona for this test, to which Daytona's SDK is pointed by its own variables.

    Set options by indirect parametrisation: ``@pytest.mark.parametrize("fake_daytona", [{"model":
    {"boot": "1s"}}], indirect=True)``.
    """
    from ..fakes.daytona import FakeDaytona

    with FakeDaytona(**getattr(request, "param", {})) as service:
        _point_at(service, monkeypatch)
        yield service


@pytest.fixture
def fake_openenv(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeOpenEnv]:
    """A fake OpenEnv server for this test; give its ``url`` to a client."""
    from ..fakes.openenv import FakeOpenEnv

    with FakeOpenEnv(**getattr(request, "param", {})) as service:
        _point_at(service, monkeypatch)
        yield service


@pytest.fixture
def fake_e2b(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeE2B]:
    """A fake E2B for this test, to which E2B's SDKs are pointed by their own variables."""
    from ..fakes.e2b import FakeE2B

    with FakeE2B(**getattr(request, "param", {})) as service:
        _point_at(service, monkeypatch)
        yield service


def _point_at(service: SandboxService, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def virtual_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in virtual time: sleeping takes no real time, and timers are exact."""
    import asyncio

    from .lab.worlds.virtual_time import VirtualTimeLoop

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.get_loop()


@pytest.fixture
def run_scenario() -> Callable[..., list[RunResult]]:
    """``sfusion.run_scenario``: run a scenario in virtual time; a promise that does not hold fails
    the test."""
    from .lab.runs import run_scenario

    return run_scenario


@pytest.fixture
def sandbox_trial() -> Callable[..., TrialResult]:
    """``sandbox_trial(my_client.run)``: the trial of ``sfusion judge``, with its options; the
    failure is its table."""

    def trial(target: Any = None, **options: Any) -> TrialResult:
        from .errors import ClientBroken
        from .trial.trial import judge

        result = judge(target, **options)
        if not result.ok:
            raise ClientBroken(result)
        return result

    return trial
