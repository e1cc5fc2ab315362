"""Right and wrong clients that a stranger wrote, who had read the documentation alone."""

from __future__ import annotations

import gc
from enum import Enum
from pathlib import Path

import pytest

from sfusion import run_scenario
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.shapes.as_tool import tools_of
from sfusion.harness.lab.shapes.results import returned_from
from sfusion.harness.trial.result import TrialWorld
from sfusion.harness.trial.trial import judge
from tests.again import again

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

STRICT = """
import unicodedata, re
import aiohttp

async def run(base_url, code, language="python", stdin=None, run_timeout=10.0):
    body = {"code": code, "language": language, "stdin": stdin, "run_timeout": run_timeout}
    timeout = aiohttp.ClientTimeout(total=run_timeout + 20)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async with session.post(f"{base_url}/run_code", json=body, raise_for_status=True) as answer:
            data = await answer.json()
    if answer.status != 200 or data["status"] == "SandboxError":
        raise RuntimeError("the sandbox failed")
    compiled, ran = data["compile_result"], data["run_result"]
    stuck = compiled is not None and compiled["return_code"] != 0
    part = compiled if stuck else ran
    if part["stdout"] is None or part["stderr"] is None:
        raise RuntimeError("output is lost")
    return {
        "out": part["stdout"], "err": part["stderr"], "passed": part["return_code"] == 0,
        "timed_out": part["status"] == "TimeLimitExceeded", "compiled": not stuck,
    }
"""
"""It refuses answers without a stream or of another type, and tells every end by flags."""

NEVER_CLOSED = (
    "    async with aiohttp.ClientSession(timeout=timeout) as session:\n",
    "    session = aiohttp.ClientSession(timeout=timeout)\n    if True:\n",
)


def _broken(folder: Path, source: str) -> set[str]:
    (folder / "strict.py").write_text(source, encoding="utf-8")
    return {
        one.promise
        for one in judge(f"{folder / 'strict.py'}:run").verdicts
        if one.state == "broken"
    }


def test_a_strict_client_that_tells_ends_by_flags_is_not_accused(tmp_path: Path) -> None:
    assert _broken(tmp_path, STRICT) == set()


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ('"code": code', '"code": unicodedata.normalize("NFC", code)', "sent_as_asked"),
        (
            '"code": code',
            '"code": (re.findall(r"```python(.*?)```", code, re.S) or [code])[0]',
            "sent_as_asked",
        ),
        ('"stdin": stdin', '"stdin": stdin and stdin.rstrip() + "\\n"', "sent_as_asked"),
        ('"language": language', '"language": language.lower()', "sent_as_asked"),
        (*NEVER_CLOSED, "nothing_left_behind"),
        ('"out": part["stdout"]', '"out": "" if stuck else part["stdout"]', "text_is_truthful"),
    ],
)
def test_its_mistakes_are_seen(right: str, wrong: str, check: str, tmp_path: Path) -> None:
    assert check in _broken(tmp_path, STRICT.replace(right, wrong))
    gc.collect()  # the sessions that it left complain here, not in whichever test comes next


def test_an_unreadable_date_of_retry_after_is_met(tmp_path: Path) -> None:
    tool = """
from tests.reference_tool import GoodTool

class Tool(GoodTool):
    def read(self, status, headers, body):
        int(headers.get("Retry-After", "0").partition(".")[0])
        return super().read(status, headers, body)
"""
    (tmp_path / "dated.py").write_text(tool, encoding="utf-8")
    found = judge(f"{tmp_path / 'dated.py'}:Tool").verdicts
    assert {one.promise for one in found if one.state == "broken"} == {"outcomes"}


def test_several_addresses_in_a_config_are_played_with(tmp_path: Path) -> None:
    (tmp_path / "first_only.py").write_text(
        """
from tests.reference_tool import GoodTool

class Tool(GoodTool):
    def choose(self, shared, failed):
        return self.urls[0]
""",
        encoding="utf-8",
    )
    config = (
        "tools: [{class_name: first_only.Tool, config: {sandbox_fusion_url: [http://a.invalid]}}]\n"
    )
    (tmp_path / "tools.yaml").write_text(config, encoding="utf-8")
    found = judge(str(tmp_path / "tools.yaml")).verdicts
    assert {one.promise for one in found if one.state == "broken"} == {"sandboxes_used"}


def test_a_class_keeps_its_time_limit_whatever_a_call_asked_for(tmp_path: Path) -> None:
    """The limit of its constructor is not given with a call again."""
    runner = (
        STRICT.replace("async def run(base_url, code", "async def ask(base_url, code")
        + """

class Runner:
    def __init__(self, base_url, default_timeout):
        self.url, self.limit = base_url, default_timeout

    async def run(self, code, language="python", stdin=None, run_timeout=None):
        return await ask(self.url, code, language, stdin, run_timeout or self.limit)
"""
    )
    sticky = runner.replace(
        "        return await",
        "        self.limit = run_timeout or self.limit\n        return await",
    )
    for name, source, broken in (("kept", runner, set()), ("sticky", sticky, {"sent_as_asked"})):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        found = judge(f"{tmp_path / name}.py:Runner").verdicts
        assert {one.promise for one in found if one.state == "broken"} == broken


def test_a_status_beside_the_text_counts_and_the_number_of_an_enum_does_not() -> None:
    class End(Enum):
        DONE = 2

    assert returned_from({"text": "out", "status": "late"}).text == "text:\nout\nstatus:\nlate"
    assert returned_from({"text": "out", "attempts": 2}).text == "out"
    assert returned_from({"end": End.DONE}).text == "end:\nDONE"


def test_flags_are_no_durations() -> None:
    assert returned_from({"timed_out": True, "time": 3}).text == "timed_out: True"


def test_a_status_that_a_program_prints_is_not_its_own(tmp_path: Path) -> None:
    late = 'part["status"] == "TimeLimitExceeded"'
    assert "ends_told_apart" in _broken(
        tmp_path, STRICT.replace(late, '"TimeLimitExceeded" in str(data)')
    )


PATIENT = """
import asyncio, time
from datetime import datetime
from email.utils import parsedate_to_datetime
import aiohttp

def seconds(asked):
    return parsedate_to_datetime(asked).timestamp() - time.time()

async def run(base_url, code):
    body = {"code": code, "language": "python"}
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.post(f"{base_url}/run_code", json=body) as answer:
                if answer.status == 200:
                    return (await answer.json())["run_result"]["stdout"]
            await asyncio.sleep(max(0.0, seconds(answer.headers["Retry-After"])))
"""


@pytest.mark.parametrize("world", ["sim", "wall"])
@pytest.mark.parametrize(
    ("reading", "broken"),
    [
        ("parsedate_to_datetime(asked).timestamp() - time.time()", set()),
        ("1.0  # not a number", {"retry_after_honoured"}),
        (
            'datetime.strptime(asked[:-4], "%a, %d %b %Y %H:%M:%S").timestamp() - time.time()',
            {"retry_after_honoured"},
        ),
    ],
    ids=["right", "ignored", "as local time"],
)
def test_retry_after_may_be_a_date(
    reading: str, broken: set[str], world: TrialWorld, tmp_path: Path
) -> None:
    right = "parsedate_to_datetime(asked).timestamp() - time.time()"
    (tmp_path / "patient.py").write_text(PATIENT.replace(right, reading), encoding="utf-8")
    expected = "broken" if broken else "held"

    def played() -> str:
        found = judge(f"{tmp_path / 'patient.py'}:run", scenes="dates", world=world).verdicts
        assert {one.promise for one in found if one.state == "broken"} <= broken
        (state,) = {one.state for one in found if one.promise == "retry_after_honoured"}
        return state

    # A date is near, and a machine that stands still for a second may leave nothing to judge.
    assert again(played, until=lambda state: state == expected) == expected


CARRIES = """
import base64
import aiohttp

class Base:
    def __init__(self, base_url, headers=None):
        self.url, self.headers = base_url, headers

    def encoded(self, data):
        return base64.b64encode(data).decode()

    def code_of(self, part):
        return part["return_code"]

class Runner(Base):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    async def run(self, code, language="python", files=None):
        sent = {name: self.encoded(data) for name, data in (files or {}).items()}
        body = {"code": code, "language": language, "files": sent}
        url = f"{self.url}/run_code"
        async with aiohttp.ClientSession(headers=self.headers) as session:
            async with session.post(url, json=body, raise_for_status=True) as answer:
                data = await answer.json(content_type=None)
        part = data["run_result"] or data["compile_result"]
        end = "ran" if data["run_result"] else "compiled"
        text = part["stdout"] + "|" + part["stderr"]
        code = f"code {self.code_of(part)}"
        return {"text": text, "end": end, "status": part["status"], "code": code}
"""
"""It takes files as bytes, passes the words of the server on, and its constructor takes whatever
its base takes."""


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("", "", ""),
        ("base64.b64encode", "base64.urlsafe_b64encode", "sent_as_asked"),
        ("base64.b64encode(data).decode()", 'data.decode("utf-8", "replace")', "sent_as_asked"),
        ('return part["return_code"]', 'return abs(part["return_code"] or 0)', "exit_code_told"),
        (
            'part["stdout"] + "|"',
            'part["stdout"].replace("\\\\n", "\\n") + "|"',
            "text_is_truthful",
        ),
        ('"status": part["status"]', '"status": "Success"', "outcomes"),
    ],
)
def test_files_as_bytes_signals_backslashes_and_words_of_the_server(
    right: str, wrong: str, check: str, tmp_path: Path
) -> None:
    (tmp_path / "carries.py").write_text(
        CARRIES.replace(right, wrong) if right else CARRIES, encoding="utf-8"
    )
    found = judge(f"{tmp_path / 'carries.py'}:Runner", scenes="programs").verdicts
    assert {one.promise for one in found if one.state == "broken"} == ({check} if check else set())


def test_tests_are_given_as_the_function_takes_them_and_a_part_of_the_output_is_not_all_of_it(
    tmp_path: Path,
) -> None:
    lenient = """
import requests

def compute_score(url, solution, ground_truth):
    passed = 0
    for given, wanted in zip(ground_truth["inputs"], ground_truth["outputs"]):
        body = {"code": solution, "language": "python", "stdin": given}
        answer = requests.post(f"{url}/run_code", json=body, timeout=20).json()
        passed += wanted.strip() in answer["run_result"]["stdout"]
    return passed
"""
    (tmp_path / "lenient.py").write_text(lenient, encoding="utf-8")
    file = tmp_path / "lenient.py"
    expected = {"excused", "mistaken", "unearned"}

    def played() -> set[str]:
        found = judge(f"{file}:compute_score", scenes="tests or comparisons").verdicts
        kinds = {one.how.kind for one in found if one.state == "broken"}
        assert kinds <= expected
        return kinds

    # Calls during which the machine stood still are not judged.
    assert again(played, until=lambda kinds: kinds == expected) == expected


def test_a_constructor_that_raises_is_named(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(
        "class Runner:\n    def __init__(self):\n        1 / 0\n    def run(self, code): ...\n"
    )
    with pytest.raises(BadOption, match=r"Runner\(\) raised ZeroDivisionError"):
        judge(f"{tmp_path / 'fails.py'}:Runner")


KEEPS = """
import aiohttp

kept = []

async def run(base_url, code):
    if "sfusion:call=c0001" in code:
        kept.append(code)
        code = kept[0]
    body = {"code": code, "language": "python"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{base_url}/run_code", json=body) as answer:
            return str((await answer.json())["run_result"])
"""
"""Its first call in every scenario sends the code of the first call in the first one."""


def test_code_of_another_scenario_is_not_taken_for_code_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text(KEEPS, encoding="utf-8")
    found = judge(f"{tmp_path / 'keeps.py'}:run", scenes="idle or together", world="sim").verdicts
    states = {verdict.promise: verdict.state for verdict in found}
    assert states["sent_as_asked"] == "broken"


EXITS = """
import sys
import aiohttp

async def run(base_url, code):
    body = {"code": code, "language": "python"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{base_url}/run_code", json=body) as answer:
            if answer.status != 200:
                sys.exit(0)
            return str((await answer.json())["run_result"])
"""


def test_a_client_that_ends_the_process_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS, encoding="utf-8")
    found = judge(f"{tmp_path / 'exits.py'}:run", scenes="failures", world="sim").verdicts
    raised = [verdict for verdict in found if verdict.promise == "tool_never_raises"]
    assert {verdict.state for verdict in raised} == {"broken"}
    assert "raised SystemExit: 0" in raised[0].sentence


def test_a_module_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    with pytest.raises(BadOption, match="failed with SystemExit: 0"):
        judge(f"{tmp_path / 'ends.py'}:run")


def test_a_run_without_a_call_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS, encoding="utf-8")
    scenario = tmp_path / "needs-stdin.yaml"
    scenario.write_text(
        "scenario: needs-stdin\nabout: One call.\nload: {each: [{end: ok, stdin: x}]}\n",
        encoding="utf-8",
    )
    tools, _ = tools_of(f"{tmp_path / 'exits.py'}:run")
    (result,) = run_scenario(scenario, check=False, tools=tools)
    assert {verdict.state for verdict in result.verdicts} <= {"unknown"}
    assert not result.ok
