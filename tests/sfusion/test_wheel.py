"""What an installed sfusion is: two import names, a light core, and a good guest in other people's
repositories."""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
from pathlib import Path
from runpy import run_path

import pytest

from tests import ROOT
from tests.sfusion.installing import Environment, build, core_requirements

pytestmark = pytest.mark.xdist_group("wheel")

QUIET = """\
scenario: quiet
about: Two callers, nothing fails.
load: {calls: 6, concurrency: 2}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""
THEIR_TESTS = """\
import fakes.engine
import harness.engine


def test_harness_and_fakes_are_theirs(theirs):
    assert (harness.engine.START, fakes.engine.START, theirs) == ("vroom", "vroom", "their fixture")


def test_our_fixtures_work(fake_sandbox, sandbox, fake_sglang, run_scenario, virtual_loop):
    import urllib.request

    assert urllib.request.urlopen(fake_sandbox.url + "/v1/ping").read() == b'"pong"'
    assert urllib.request.urlopen(fake_sglang.url + "/health").status == 200
    (result,) = run_scenario("scenarios/quiet.yaml")
    assert result.ok
"""


LAYOUTS = {
    "packages": ("", ["__init__.py"], ""),
    "folders without __init__": ("", [], "[pytest]\npythonpath = .\n"),
    "src": ("src/", ["__init__.py"], "[pytest]\npythonpath = src\n"),
}


@pytest.fixture
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Another project's repository, with packages called harness and fakes and a conftest of its
    own."""
    source, inits, ini = LAYOUTS[request.param]
    files = {f"{source}{package}/{init}": "" for package in ("harness", "fakes") for init in inits}
    files |= {
        f"{source}{package}/engine.py": "START = 'vroom'\n" for package in ("harness", "fakes")
    }
    files |= {
        "pytest.ini": ini or "[pytest]\n",
        "conftest.py": (
            "import pytest\n\n\n@pytest.fixture\ndef theirs():\n    return 'their fixture'\n"
        ),
        "test_theirs.py": THEIR_TESTS,
        "scenarios/quiet.yaml": QUIET,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


ALL, THEIR_NAMES = (
    ("test_theirs.py", "scenarios/quiet.yaml"),
    ("test_theirs.py::test_harness_and_fakes_are_theirs",),
)


@pytest.mark.parametrize(
    ("repository", "installed", "command", "passed"),
    [
        ("packages", "core", ("pytest", *ALL), 3),
        ("packages", "editable", ("pytest", *ALL), 3),
        ("folders without __init__", "core", ("python", "-m", "pytest", *THEIR_NAMES), 1),
        ("src", "core", ("pytest", *THEIR_NAMES), 1),
    ],
    ids=["packages", "packages-editable", "folders without __init__", "src"],
    indirect=["repository"],
)
def test_a_repository_with_its_own_harness_and_fakes_keeps_them(
    request: pytest.FixtureRequest,
    installed: str,
    repository: Path,
    command: tuple[str, ...],
    passed: int,
) -> None:
    environment: Environment = request.getfixturevalue(installed)
    done = environment.run(*command, "-p", "no:cacheprovider", cwd=repository)
    assert f"{passed} passed" in done.stdout


def test_an_editable_install_puts_only_our_names_on_the_path(
    editable: Environment, tmp_path: Path
) -> None:
    code = (
        "from importlib.util import find_spec\n"
        "names = ('harness', 'fakes', 'scenarios', 'tests', 'conftest', 'docker', "
        "'sfusion', 'sfusion_tools')\n"
        "print([name for name in names if find_spec(name)])"
    )
    assert editable.python(code, cwd=tmp_path) == "['sfusion', 'sfusion_tools']"
    assert editable.run("sfusion", "run", "single-node", cwd=tmp_path).returncode == 0


def test_only_our_own_names_are_installed(core: Environment, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {
            "sfusion",
            "sfusion_tools",
            "sfusion-" + wheel.name.split("-")[1] + ".dist-info",
        }
    for name in ("harness", "fakes", "scenarios", "tests", "docs", "benchmarks"):
        assert not (core.packages / name).exists()


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    tops = {
        "harness": "sfusion/harness",
        "fakes": "sfusion/fakes",
        "scenarios": "sfusion/scenarios",
    }
    wanted = {
        str(Path(inside) / path.relative_to(ROOT / top))
        for top, inside in {**tops, "sfusion_tools": "sfusion_tools"}.items()
        for path in (ROOT / top if (ROOT / top).exists() else ROOT / inside).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == wanted | {"sfusion/__init__.py", "sfusion/__main__.py", "sfusion/py.typed"}


def test_a_wheel_built_from_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    needed = {
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "conftest.py",
        "constraints.txt",
        "docs",
        "lowest.txt",
        "tests",
        "tox.ini",
    }
    assert needed <= {path.name for path in source.iterdir()}
    again = build("wheel", tmp_path / "again", source)
    assert again.read_bytes() == wheel.read_bytes()


def test_a_bare_checkout_runs_its_tests_without_being_installed(
    wheel: Path, tmp_path: Path
) -> None:
    ignored = shutil.ignore_patterns(
        ".git", ".tox", ".venv", "__pycache__", ".*_cache", ".hypothesis"
    )
    checkout = Path(shutil.copytree(ROOT, tmp_path / "checkout", symlinks=True, ignore=ignored))
    bare = Environment(
        tmp_path / "venv", [*core_requirements(wheel), "pytest", "pytest-asyncio", "pytest-timeout"]
    )
    done = bare.run(
        "pytest",
        "--override-ini=addopts=",
        "tests/harness/plugin/test_fake_sglang.py",
        cwd=checkout,
    )
    assert " passed" in done.stdout


def test_python_m_sfusion_runs_the_same_command(core: Environment, tmp_path: Path) -> None:
    command = core.run("sfusion", "--version", cwd=tmp_path).stdout
    assert command.startswith("sfusion ")
    assert core.run("python", "-m", "sfusion", "--version", cwd=tmp_path).stdout == command


def test_objects_are_pickled_under_the_installed_name(core: Environment, tmp_path: Path) -> None:
    code = (
        "import pickle; from sfusion import FakeSandbox; from sfusion.harness.errors "
        "import ScenarioError\n"
        "print(pickle.loads(pickle.dumps(ScenarioError)).__module__, "
        "FakeSandbox.__module__.partition('.')[0])"
    )
    assert core.python(code, cwd=tmp_path) == "sfusion.harness.errors sfusion"


def test_the_page_of_the_package_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    links = r"\]\((?!https?:|#)([^)\s]+)\)"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(links, text)) > 25
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        shown = archive.read(name).decode()
    assert re.findall(links, shown) == []
    assert "sfusion run mine.yaml" in shown
    address = "https://example.com/sfusion"
    linked = run_path(str(ROOT / "docs/package_page.py"))["page"](text, address, "1.2")
    assert re.findall(links, linked) == []
    assert f"({address}/blob/v1.2/docs/ci.md)" in linked
    assert f"({address}/raw/v1.2/docs/images/real-training-story.svg)" in linked


def test_no_snippet_names_a_tag() -> None:
    """There is none before the release that the workflow makes."""
    pages = [ROOT / "README.md", ROOT / "README.zh-CN.md", *(ROOT / "docs").glob("*.md")]
    assert [
        path.name
        for path in pages
        if re.search(r"(@|rev: )v\d+\.\d", path.read_text(encoding="utf-8"))
    ] == []
