"""The scripted executor: hints and scripts say what programs do, and nothing runs."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import (
    FakeSandbox,
    ProgramScript,
    SandboxSetupError,
    ScriptedExecutor,
    fake,
)
from sfusion.fakes.sandbox.body import check_body
from sfusion.fakes.sandbox.fake import LONGEST_REMEMBERED
from sfusion.fakes.sandbox.protocol import RunCode, RunCodeAnswer, RunJupyter, RunJupyterAnswer
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.output_sizes import PIPE_BYTES
from tests.fakes.wire.raw import one, post, run_code

SCRIPTED = '# sfusion:call=b prints="hi"'


def run(
    code: str, executor: ScriptedExecutor | None = None, **fields: Any
) -> tuple[RunCodeAnswer, float]:
    """The answer, and the seconds it took."""

    async def scene() -> tuple[RunCodeAnswer, float]:
        request = RunCode(**{"code": code, "language": "python", **fields})
        answer = await (executor or ScriptedExecutor()).run_code(request)
        return answer, asyncio.get_running_loop().time()

    return run_virtually(scene())


def test_hint_sets_output_and_duration() -> None:
    answer, took = run(
        'x = 1  # sfusion:call=c17 seconds=200ms prints="ok \\"1\\"\\n" exit=0\nprint(x)'
    )
    assert answer.status == "Success"
    assert answer.run_result is not None
    assert (answer.run_result.stdout, answer.run_result.execution_time, took) == (
        'ok "1"\n',
        0.2,
        0.2,
    )


def test_hints_work_in_the_comments_of_any_language() -> None:
    for code in (
        '// sfusion:call=a prints="x"',
        '/* sfusion:call=a prints="x" */',
        '-- sfusion:call=a prints="x"',
    ):
        answer, _ = run(code, language="cpp")
        assert answer.compile_result is not None
        assert answer.run_result is not None
        assert answer.run_result.stdout == "x"


def test_words_without_an_equals_sign_are_ignored() -> None:
    answer, _ = run("# sfusion:call=a this computes nothing")
    assert answer.status == "Success"


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        ("secnds=1", "unknown hint 'secnds'; did you mean 'seconds'?"),
        ("seconds=soon", "hint seconds=soon: 'soon' is not a duration"),
        ("exit=x", "hint exit=x:"),
        ("reads_stdin=maybe", "must be yes or no"),
        ('prints="{fill:ten}"', "{fill:ten} needs a whole number of characters"),
        ('errors="{fill:999999999}"', "up to 20,000,000"),
    ],
)
def test_mistake_in_a_hint_gives_a_sandbox_error(hint: str, sentence: str) -> None:
    answer, _ = run(f"# sfusion:call=a {hint}")
    assert answer.status == "SandboxError"
    assert sentence in answer.message


def test_program_over_its_time_limit_is_stopped_and_keeps_flushed_output() -> None:
    answer, took = run(
        '# sfusion:call=a seconds=30 early="begun\\n" prints="done\\n"', run_timeout=2.5
    )
    result = answer.run_result
    assert result is not None
    assert (answer.status, result.status, result.return_code) == (
        "Failed",
        "TimeLimitExceeded",
        None,
    )
    assert (result.stdout, took) == ("begun\n", 2.5)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_time_limit_of_zero_is_exceeded_at_once(limit: float) -> None:
    answer, took = run('# sfusion:call=a prints="x"', run_timeout=limit)
    assert answer.run_result is not None
    assert (answer.run_result.status, took) == ("TimeLimitExceeded", 0.0)


@pytest.mark.parametrize(
    ("length", "status", "kept"),
    [
        (PIPE_BYTES, "Finished", PIPE_BYTES),
        (2 * PIPE_BYTES, "Finished", PIPE_BYTES),
        (2 * PIPE_BYTES + 1, "TimeLimitExceeded", PIPE_BYTES),
    ],
)
def test_long_output_is_cut_silently_or_blocks(length: int, status: str, kept: int) -> None:
    executor = ScriptedExecutor([{"prints": "x" * length}])
    answer, _ = run("print", executor)
    assert answer.run_result is not None
    assert (answer.run_result.status, len(answer.run_result.stdout or "")) == (status, kept)


def test_a_short_hint_prints_megabytes_that_get_through_whole() -> None:
    code = (
        '# sfusion:call=a early="a{fill:1000}" prints="{fill:3000000}z" '
        'errors="{fill:500000}" whole=yes'
    )
    result = run(code)[0].run_result
    assert result is not None
    assert (result.status, len(result.stdout or ""), len(result.stderr or "")) == (
        "Finished",
        3_001_002,
        500_000,
    )
    assert (result.stdout or "").startswith("abbb")
    assert (result.stdout or "").endswith("z")


def test_hints_set_exit_code_exception_and_memory_error() -> None:
    assert run("# sfusion:call=a exit=-9")[0].run_result.return_code == -9  # type: ignore[union-attr] # it ran
    raised = run('# sfusion:call=a raises="ValueError: bad"')[0]
    assert raised.run_result is not None
    assert (raised.status, raised.run_result.return_code) == ("Failed", 1)
    assert (raised.run_result.stderr or "").endswith("ValueError: bad\n")
    hungry = "# sfusion:call=a memory=2000"
    assert run(hungry, memory_limit_MB=1024)[0].status == "Failed"
    assert run(hungry)[0].status == "Success"
    published = ScriptedExecutor(profile="2025-06")
    assert run(hungry, published, memory_limit_MB=1024)[0].status == "Success", (
        "that image ignores the limit"
    )


def test_compile_errors_are_in_the_compile_result() -> None:
    code = '// sfusion:call=a compile_exit=1 compile_errors="no such type"'
    answer, _ = run(code, language="cpp")
    assert answer.run_result is None
    assert answer.compile_result is not None
    assert (answer.status, answer.compile_result.stderr) == ("Failed", "no such type")
    late, took = run("// sfusion:call=a compile_seconds=20", language="rust", compile_timeout=3)
    assert late.compile_result is not None
    assert (late.compile_result.status, took) == ("TimeLimitExceeded", 3.0)


def test_first_matching_script_wins_and_hints_override_it() -> None:
    scripts = [
        {"call": "special", "prints": "by call"},
        {"pattern": r"import\s+numpy", "language": "python", "raises": "ImportError: numpy"},
        {"pattern": "print", "prints": "by pattern", "exit": 3},
    ]
    executor = ScriptedExecutor(scripts, default={"prints": "otherwise"})

    def result_of(code: str) -> tuple[str | None, int | None]:
        result = run(code, executor)[0].run_result
        assert result is not None
        return result.stdout, result.return_code

    assert result_of("print() # sfusion:call=special") == ("by call", 0)
    assert result_of("import numpy")[1] == 1
    assert result_of("print()") == ("by pattern", 3)
    assert result_of("print() # sfusion:call=x exit=0") == ("by pattern", 0)
    assert result_of("pass") == ("otherwise", 0)


def test_a_script_for_exact_code_is_found_in_one_step_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[ProgramScript] = []
    fits = ProgramScript.fits
    monkeypatch.setattr(
        ProgramScript, "fits", lambda self, *about: tried.append(self) or fits(self, *about)
    )
    many = [{"exact": f"print({number})", "prints": f"{number}"} for number in range(1000)]
    executor = ScriptedExecutor(
        [{"call": "first", "prints": "by call"}, *many, {"pattern": "print", "prints": "last"}]
    )

    def printed(code: str) -> str | None:
        result = run(code, executor)[0].run_result
        return result.stdout if result is not None else None

    assert printed("print(999)") == "999"
    assert printed("# sfusion:call=x\nprint(7)") == "7"
    assert printed("print(7)  # sfusion:call=first") == "by call"
    assert printed("print(-1)") == "last"
    assert len(tried) < 10


def test_files_are_returned_when_fetched() -> None:
    given = {"in.txt": base64.b64encode(b"hi").decode(), "empty": None}
    executor = ScriptedExecutor([ProgramScript(files={"out.txt": "made"})])
    answer, _ = run("x", executor, files=given, fetch_files=["in.txt", "out.txt", "missing"])
    assert {name: base64.b64decode(text) for name, text in answer.files.items()} == {
        "in.txt": b"hi",
        "out.txt": b"made",
    }
    assert (
        run("x", files={"a": "aGVsbG8"})[0].message
        == "exception on running code x: Incorrect padding None"
    )


UNSCRIPTED = [
    "print(1+1)",
    "# sfusion:call=a\nprint(1+1)",
    "# sfusion:call=a is x = 2?\nprint(1+1)",
    "",
]


@pytest.mark.parametrize("code", UNSCRIPTED)
async def test_a_program_without_a_script_fails_and_is_told_how_to_choose(code: str) -> None:
    async with FakeSandbox(scripts=[{"pattern": "numpy"}]) as sandbox:
        answer = (await one(sandbox.port, run_code(code))).json
        notebook = (
            await one(
                sandbox.port, post("/run_jupyter", json.dumps({"cells": [SCRIPTED, code]}).encode())
            )
        ).json
        scripted = (await one(sandbox.port, run_code(SCRIPTED))).json
    for said in (answer, notebook):
        assert said["status"] == "SandboxError"
        for word in ("--executor python", 'executor="python"', "fixture `sandbox`", "scripted"):
            assert word in said["message"]
    assert (scripted["status"], scripted["run_result"]["stdout"]) == ("Success", "hi")


@pytest.mark.parametrize("code", UNSCRIPTED)
def test_scripted_programs_succeed_silently_if_that_was_asked_for(code: str) -> None:
    answer, _ = run(code)
    assert answer.run_result is not None
    assert (answer.status, answer.run_result.stdout) == ("Success", "")


def test_mistake_in_a_hint_of_a_cell_is_an_error_too() -> None:
    answer, _ = notebook(["# sfusion:call=a secnds=1"])
    assert (answer.status, "unknown hint 'secnds'" in answer.message) == ("SandboxError", True)


def test_sql_passes_validation_but_has_no_runner() -> None:
    assert (
        run("select 1;", language="sql")[0].message
        == "exception on running code select 1;: 'sql' None"
    )


def notebook(cells: list[str], **fields: Any) -> tuple[RunJupyterAnswer, float]:
    """The answer, and the seconds it took."""

    async def scene() -> tuple[RunJupyterAnswer, float]:
        answer = await ScriptedExecutor().run_jupyter(RunJupyter(cells=cells, **fields))
        return answer, asyncio.get_running_loop().time()

    return run_virtually(scene())


def test_cells_are_programs_and_later_cells_run_after_an_error() -> None:
    cells = [
        '# sfusion:call=a raises="ValueError: bad" seconds=1',
        '# sfusion:call=a prints="on\\n" seconds=2',
    ]
    answer, took = notebook(cells)
    assert answer.status == "Success"
    assert [cell.stdout for cell in answer.cells] == ["", "on\n"]
    assert (answer.cells[0].error[0]["ename"], answer.cells[0].error[0]["evalue"]) == (
        "ValueError",
        "bad",
    )
    assert took == 3.0


def test_notebook_over_its_time_limit_loses_its_cells() -> None:
    answer, took = notebook(["# sfusion:call=a seconds=100"], total_timeout=5)
    assert (answer.status, answer.cells, took) == ("Failed", [], 15.0)


async def test_published_image_loses_the_stdin_race_only_with_concurrent_programs() -> None:
    async with FakeSandbox(executor="scripted", profile="2025-06") as sandbox:
        request = run_code("print(1)", stdin="x")
        alone = [(await one(sandbox.port, request)).json["status"] for _ in range(5)]
        together = await asyncio.gather(*(one(sandbox.port, request) for _ in range(20)))
    assert alone == ["Success"] * 5
    lost = [answer.json for answer in together if answer.json["status"] == "SandboxError"]
    assert lost
    assert "the handler is closed | None" in lost[0]["message"]
    async with FakeSandbox(executor="scripted") as sandbox:
        together = await asyncio.gather(*(one(sandbox.port, request) for _ in range(20)))
    assert {answer.json["status"] for answer in together} == {"Success"}


def test_invalid_script_or_executor_is_refused_with_a_clear_error() -> None:
    with pytest.raises(SandboxSetupError, match="did you mean 'scripted'"):
        FakeSandbox(executor="scriptd")
    with pytest.raises(SandboxSetupError, match="a script cannot be used: pattern"):
        FakeSandbox(scripts=[{"pattern": "("}])
    with pytest.raises(SandboxSetupError, match="needs a cassette"):
        FakeSandbox(executor="recorded")
    with pytest.raises(SandboxSetupError, match="unknown profile '2024'; known: 2025-06, 2026-07"):
        FakeSandbox(profile="2024")  # type: ignore[arg-type] # on purpose


@pytest.mark.parametrize(
    ("length", "content_type", "checked"),
    [
        (LONGEST_REMEMBERED, "application/json", 1),
        (LONGEST_REMEMBERED + 1, "application/json", 2),
        (100, "application/json; charset=utf-8", 2),
    ],
    ids=["short", "long", "unusual type"],
)
async def test_only_short_requests_are_remembered(
    length: int, content_type: str, checked: int, monkeypatch: pytest.MonkeyPatch
):
    seen: list[bytes] = []

    def check(body: bytes, *more: Any) -> dict[str, Any]:
        seen.append(body)
        return check_body(body, *more)

    monkeypatch.setattr(fake, "check_body", check)
    body = json.dumps({"code": uuid4().hex, "language": "python"}).encode().ljust(length)
    async with FakeSandbox(executor="scripted") as sandbox:
        for _ in range(2):
            answer = await one(
                sandbox.port, post("/run_code", body, f"content-type: {content_type}\r\n")
            )
            assert answer.status == 200
    assert seen == [body] * checked


async def test_a_request_that_was_seen_before_is_as_it_was_sent():
    """The fake remembers what it has checked; an executor may change what it gets."""

    seen: list[tuple[dict[str, str | None], list[str]]] = []

    class Changing(ScriptedExecutor):
        async def run_code(self, request: RunCode) -> RunCodeAnswer:
            seen.append((dict(request.files), list(request.fetch_files)))
            request.files["more"] = None
            request.fetch_files.append("more")
            return await super().run_code(request)

        async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
            seen.append((dict(request.files), list(request.cells)))
            request.files["more"] = None
            request.cells.append("more")
            return await super().run_jupyter(request)

    async with FakeSandbox(executor=Changing()) as sandbox:
        for _ in range(2):
            await one(sandbox.port, run_code("pass"))
            await one(sandbox.port, post("/run_jupyter", b'{"cells": ["pass"]}'))
        assert sandbox.ledger.started == 4
    assert seen == [({}, []), ({}, ["pass"])] * 2
