"""The pytest plugin: scenario files as tests, fixtures for the fakes, for virtual time and for scenarios.

It does nothing until it is asked: YAML files are looked at only where the command line or the ini option
``sfusion_scenarios`` names them, and everything heavy is imported by the fixture that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import asyncio

    from sfusion.fakes.proxy import FaultProxy
    from sfusion.fakes.sandbox import FakeSandbox
    from sfusion.fakes.sglang import FakeSGLangServer
    from sfusion.harness.runs import RunResult
    from sfusion.harness.targets import RealSandbox

_SCENARIO = re.compile(rb"^scenario[ \t]*:", re.MULTILINE)
_MORE_OF_IT = re.compile(rb"^(promises|extends)[ \t]*:", re.MULTILINE)
_NAMED = pytest.StashKey[list[Path]]()
_SENT = "sfusion_named"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where scenarios are, and where their runs go."""
    parser.addini(
        "sfusion_scenarios", "files or folders of scenarios that plain `pytest` runs too", "paths", default=[]
    )
    group = parser.getgroup("sfusion", "scenarios of sfusion")
    group.addoption("--sfusion-out", metavar="DIR", help="write journal, verdicts and page of every scenario there")
    group.addoption(
        "--sfusion-sandbox",
        metavar="fake|URL|docker[:IMAGE]",
        help="what stands behind the fixture `sandbox` (ini: sfusion_sandbox; default fake)",
    )
    parser.addini("sfusion_sandbox", "what stands behind the fixture `sandbox`: fake, URL, docker or docker:IMAGE")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and remember which paths were named."""
    config.addinivalue_line("markers", "sandbox_faults(rules): the faults of this test's fake_sandbox or sandbox")
    sent: list[str] | None = getattr(config, "workerinput", {}).get(_SENT)
    config.stash[_NAMED] = _named(config) if sent is None else [Path(path) for path in sent]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist what was named: it cannot know whether its arguments came from the command line."""
    node.workerinput[_SENT] = [str(path) for path in node.config.stash[_NAMED]]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take scenario files that were named, and leave every other YAML file alone."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    named = parent.config.stash[_NAMED]
    if file_path not in named and (file_path.name[0] == "_" or not any(path in file_path.parents for path in named)):
        return None  # a leading underscore: only there to be extended
    content = file_path.read_bytes()
    if not (_SCENARIO.search(content) and _MORE_OF_IT.search(content)):
        return None
    from sfusion.harness.pytest_items import ScenarioFile

    taken: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return taken


def _named(config: pytest.Config) -> list[Path]:
    paths: list[Path] = list(config.getini("sfusion_scenarios"))
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        here = config.invocation_params.dir
        paths += [here / argument.partition("::")[0] for argument in config.args]
    return [path.resolve() for path in paths]


@pytest.fixture(scope="session")
def make_fake_sandbox() -> Iterator[Callable[..., FakeSandbox]]:
    """Start fake sandboxes with any options; all are stopped at the end of the session."""
    from contextlib import ExitStack

    from sfusion.fakes.sandbox import FakeSandbox

    with ExitStack() as running:
        yield lambda **options: running.enter_context(FakeSandbox(**options))


@pytest.fixture
def fake_sandbox(request: pytest.FixtureRequest) -> Iterator[FakeSandbox]:
    """A fake Sandbox Fusion of the test's own, answering at ``fake_sandbox.url``.

    Options come by indirect parametrisation: ``@pytest.mark.parametrize("fake_sandbox", [{"model": {"quota": 8}}],
    indirect=True)``; faults by ``@pytest.mark.sandbox_faults([...])``, or in the test with
    ``fake_sandbox.set_faults([...])``.
    """
    from sfusion.fakes.sandbox import FakeSandbox

    options: dict[str, Any] = dict(getattr(request, "param", {}))
    marker = request.node.get_closest_marker("sandbox_faults")
    if marker is not None:
        options["faults"] = marker.args[0]
    with FakeSandbox(**options) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def real_sandbox(request: pytest.FixtureRequest) -> Iterator[RealSandbox | None]:
    """The real sandbox that ``--sfusion-sandbox`` names, for the whole session; None when that is the fake."""
    from sfusion.harness.targets import FakeTarget, TargetError, open_targets, read_target, silent

    terminal: Any = request.config.pluginmanager.getplugin("terminalreporter")  # a worker of xdist has none
    named = request.config.getoption("--sfusion-sandbox") or request.config.getini("sfusion_sandbox") or "fake"
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
    pytest.fail(f"--sfusion-sandbox: {problem}", pytrace=False)  # outside, or pytest tells of every cause too


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, real_sandbox: RealSandbox | None) -> Iterator[FakeSandbox | FaultProxy]:
    """A sandbox that runs what it is sent, at ``sandbox.url``: a fake, or a fault proxy before the real one.

    The same test runs against either, as ``--sfusion-sandbox`` says. Faults as with ``fake_sandbox``; what only a
    server knows (was the code executed?) is None in the ledger of a proxy.
    """
    marker = request.node.get_closest_marker("sandbox_faults")
    faults = marker.args[0] if marker is not None else ()
    if real_sandbox is None:
        from sfusion.fakes.sandbox import FakeSandbox

        opened: FakeSandbox | FaultProxy = FakeSandbox(executor="python", faults=faults)
    else:
        from sfusion.harness.targets.proxying import proxy_in_front_of

        opened = proxy_in_front_of(real_sandbox.url, faults=faults)
    with opened:
        yield opened


@pytest.fixture(scope="session")
def make_fake_sglang() -> Iterator[Callable[..., FakeSGLangServer]]:
    """Start fake sglang servers with any policy and options; all are stopped at the end of the session."""
    from contextlib import ExitStack

    from sfusion.fakes.sglang import FakeSGLangServer

    with ExitStack() as running:
        yield lambda *policy, **options: running.enter_context(FakeSGLangServer(*policy, **options))


@pytest.fixture
def fake_sglang(request: pytest.FixtureRequest) -> Iterator[FakeSGLangServer]:
    """A fake sglang of the test's own, answering at ``fake_sglang.url``; it solves word problems unless told otherwise.

    Options come by indirect parametrisation: ``@pytest.mark.parametrize("fake_sglang", [{"policy": Script(["Hi"])}],
    indirect=True)``.
    """
    from sfusion.fakes.sglang import FakeSGLangServer

    options: dict[str, Any] = getattr(request, "param", {})
    with FakeSGLangServer(**options) as server:
        yield server


@pytest.fixture
def virtual_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop whose time is virtual: nothing sleeps, and ``virtual_loop.run_until_complete(...)`` is exact."""
    import asyncio

    from sfusion.harness.worlds.virtual_time import VirtualTimeLoop

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.get_loop()


@pytest.fixture
def run_scenario() -> Callable[..., list[RunResult]]:
    """Runs a scenario from a file, YAML text or data on virtual time; a promise that does not hold fails the test."""
    from sfusion.harness.runs import run_scenario

    return run_scenario
