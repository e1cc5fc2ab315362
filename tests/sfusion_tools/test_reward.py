"""Judging a generation: a result per case, infrastructure is never a wrong answer, one deadline
for the sample."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import ConfigError, ScoringError
from sfusion_tools.limiter import LimiterSettings, local_limiter
from sfusion_tools.outcome import Outcome
from sfusion_tools.output_sizes import PIPE_BYTES
from sfusion_tools.reward import (
    COMPILE_ERROR,
    INFRASTRUCTURE,
    RUNTIME_ERROR,
    TIMEOUT,
    Scoring,
    mark_of,
    score,
    score_sync,
)
from sfusion_tools.sandbox import CallResult, Program, SandboxClient
from tests.sfusion_tools.sandbox.helpers import client, in_virtual_time, until

DOUBLE = "```python\nprint(int(input()) * 2)\n```"


class Answers:
    """Replaces the client; has a result for every stdin."""

    def __init__(self, endings: dict[str, CallResult]) -> None:
        self.endings = endings
        self.programs: list[Program] = []

    async def run(self, program: Program) -> CallResult:
        self.programs.append(program)
        return self.endings[program.stdin or ""]


def ended(outcome: Outcome, stdout: str = "") -> CallResult:
    return CallResult("c", outcome, "", stdout)


@pytest.fixture(scope="module")
def python():
    """A fake that executes Python."""
    with FakeSandbox(executor="python") as sandbox:
        yield sandbox


@pytest.fixture
def runner(python: FakeSandbox) -> SandboxClient:
    return client(python.url)


async def results(generation: str, runner: SandboxClient, **in_outs: Any) -> list[Any]:
    return (await score(generation, in_outs, runner, memory_limit_mb=-1)).results


async def test_case_result_is_true_if_the_output_matches(runner):
    assert await results(DOUBLE, runner, inputs=["2", "3\n", 4], outputs=["4", "7", 8]) == [
        True,
        False,
        True,
    ]


async def test_failing_programs_get_their_codes(runner):
    program = (
        "import sys\nn = int(input())\nif n == 1: raise ValueError('bad')\nif n == "
        "2: sys.exit(3)\nprint(n)"
    )
    cases = {"inputs": ["0", "1", "2", "3", "4"], "outputs": ["0", "1", "2", "3", "5"]}
    assert await results(program, runner, **cases) == [
        True,
        RUNTIME_ERROR,
        RUNTIME_ERROR,
        True,
        False,
    ]
    endless = await score(
        "while True: pass", {"inputs": [""], "outputs": [""]}, runner, timeout=0.5
    )
    assert endless.results == [TIMEOUT]


async def test_no_case_affects_the_result_of_another():
    """In verl, one compile error overwrote all later results. True and False are never 1 and 0."""
    runner = Answers(
        {
            "0": ended(Outcome.OK, "right"),
            "1": ended(Outcome.COMPILE_ERROR),
            "2": ended(Outcome.PROGRAM_ERROR),
            "3": ended(Outcome.OK, "right"),
            "4": ended(Outcome.PROGRAM_TIMEOUT, "right"),
            "5": ended(Outcome.OK, "wrong"),
        }
    )
    scoring = await score("…", {"inputs": list("012345"), "outputs": ["right"] * 6}, runner)
    assert scoring.results == [True, COMPILE_ERROR, RUNTIME_ERROR, True, TIMEOUT, False]
    assert [type(result) for result in scoring.results] == [bool, int, int, bool, int, bool]
    assert scoring.score == pytest.approx(2 / 6)
    assert not scoring.passed


async def test_a_program_that_raises_never_passes(runner):
    """verl#7853: a solution that raises earned 1.0, also with an empty expected output."""
    assert await results("raise SystemExit(1)", runner, inputs=[""], outputs=[""]) == [
        RUNTIME_ERROR
    ]
    assert await results("print(3)\nraise ValueError", runner, inputs=[""], outputs=["3"]) == [
        RUNTIME_ERROR
    ]
    assert await results(
        "def f(): raise ValueError", runner, fn_name="f", inputs=[[]], outputs=[""]
    ) == [RUNTIME_ERROR]
    assert await results("def (", runner, inputs=[""], outputs=[""]) == [RUNTIME_ERROR]


async def test_trailing_blanks_are_ignored(runner):
    assert await results("print('1 2  \\n3 \\n\\n')", runner, inputs=[""], outputs=["1 2\n3"]) == [
        True
    ]
    assert await results("print('1 2\\n\\n3')", runner, inputs=[""], outputs=["1 2\n3"]) == [False]
    assert await results("print(' 1')", runner, inputs=[""], outputs=["1"]) == [False]


async def test_lines_may_be_given_as_a_list(runner):
    echo = "import sys\nprint(sys.stdin.read())"
    assert await results(echo, runner, inputs=[["1", "2"]], outputs=[["1", "2"]]) == [True]


async def test_functions_are_called_with_their_arguments(runner):
    """verl#2199: arguments were wrapped twice."""
    add = "```python\ndef add(a, b=0):\n    print('noise')\n    return a + b\n```"
    cases = {"inputs": [[1, 2], [1237], "3\n4", [[1], [2]]], "outputs": [3, 1237, "7", [1, 2]]}
    assert await results(add, runner, fn_name="add", **cases) == [True, True, True, True]


LEETCODE = """```python
class Solution:
    def f(self, a: List[int], k: Optional[int] = None) -> int:
        heap = heapify(a) or a
        counts = Counter(a), defaultdict(int), collections.deque(), heapq.nlargest(1, a)
        numbers = math.inf, pow(2, 3, 5)
        place = bisect_left(sorted(heap), 2)
        return place + int(sqrt(0)) + max(accumulate(a)) + reduce(operator.add, a)
```"""


async def test_solutions_find_the_names_that_leetcode_imports(runner):
    """verl's wrapper imports them; without, `List` is a NameError and the right solution scores
    0."""
    assert await results(LEETCODE, runner, fn_name="f", inputs=[[[3, 1, 2]]], outputs=[13]) == [
        True
    ]
    own = "def gcd(a, b):\n    return math.gcd(a, b) + 1"
    assert await results(own, runner, fn_name="gcd", inputs=[[4, 6]], outputs=[3]) == [True]
    missing = "def solve(a, b):\n    return gcd(a, b)"
    assert await results(missing, runner, fn_name="gcd", inputs=[[4, 6]], outputs=[2]) == [
        RUNTIME_ERROR
    ]


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "right"),
    [
        ("0.30000000000000004", "0.3", 0, False),
        ("0.30000000000000004", "0.3", 1e-6, True),
        ("1 x 3.0000001\n2", "1 x 3\n2", 1e-6, True),
        ("1 x 3.1\n2", "1 x 3\n2", 1e-6, False),
        ("1 y 3", "1 x 3", 1e-6, False),
        ("1 2", "1", 1e-6, False),
    ],
)
async def test_numbers_may_differ_by_the_tolerance(found, expected, tolerance, right):
    answers = Answers({"": ended(Outcome.OK, found)})
    scoring = await score(
        "…", {"inputs": [""], "outputs": [expected]}, answers, tolerance=tolerance
    )
    assert scoring.results == [right]


async def test_results_of_functions_may_differ_by_the_tolerance(runner):
    cases = {"fn_name": "f", "inputs": [[]], "outputs": [[{"a": 0.3}, "x", True, 10**400]]}
    close, wrong = (
        f"def f(): return [{{'a': .1 + .2}}, 'x', {last}, 10**400]" for last in ("True", "1")
    )
    scored = [
        await score(code, cases, runner, memory_limit_mb=-1, tolerance=1e-9)
        for code in (close, wrong)
    ]
    assert [one.results for one in scored] == [[True], [False]]
    assert (await score(close, cases, runner, memory_limit_mb=-1)).results == [False]


async def test_a_method_of_a_solution_is_called(runner):
    code = "class Solution:\n    def f(self, x):\n        return x + 1\n"
    assert await results(code, runner, fn_name="f", inputs=[[1]], outputs=[2]) == [True]
    beside = "class Solution: pass\ndef f(x): return x + 1\n"
    assert await results(beside, runner, fn_name="f", inputs=[[1]], outputs=[2]) == [True]


async def test_an_expected_text_matches_as_text_and_as_json(runner):
    assert await results(
        "def f(): return '1'", runner, fn_name="f", inputs=[[]], outputs=["1"]
    ) == [True]
    assert await results("def f(): return 1", runner, fn_name="f", inputs=[[]], outputs=["1"]) == [
        True
    ]
    assert await results(
        "def f(): return 'a b'", runner, fn_name="f", inputs=[[]], outputs=["a b"]
    ) == [True]


NAN = float("nan")


@pytest.mark.parametrize(
    ("returned", "expected", "right"),
    [
        ("(1, 2)", (1, 2), True),
        ("[(1, 2)]", [(1, 2)], True),
        ("{1: 'a'}", {1: "a"}, True),
        ("[float('nan')]", [NAN], True),
        ("float('nan')", "NaN", True),
        ("float('nan')", 1, False),
        ("float('inf')", float("inf"), True),
        ("1.0", 1, True),
        ("[True]", [1], False),
        ("1", True, False),
        ("True", "true", True),
        ("10 ** 30", 10**30, True),
    ],
)
async def test_results_are_compared_as_json(runner, returned, expected, right):
    code = f"def f(): return {returned}"
    assert await results(code, runner, fn_name="f", inputs=[[]], outputs=[expected]) == [right]


async def test_a_byte_order_mark_is_left_out(runner):
    code = "\ufeffdef f(): return 1"
    for text in (code, f"```python\n{code}\n```", f"\ufeff```python\n{code[1:]}\n```"):
        assert await results(text, runner, fn_name="f", inputs=[[]], outputs=[1]) == [True]


async def test_a_program_that_exits_before_the_function_is_called_fails(runner):
    assert await results(
        "import os; os._exit(0)", runner, fn_name="f", inputs=[[]], outputs=[""]
    ) == [False]
    assert await results("x = 1", runner, fn_name="f", inputs=[[]], outputs=[1]) == [RUNTIME_ERROR]
    failing = "import sys\ndef f(): return 1\nsys.exit(3)"
    assert await results(failing, runner, fn_name="f", inputs=[[]], outputs=[1]) == [RUNTIME_ERROR]


SOUND = {
    "a main block that reads stdin": (
        "def f(x): return x + 1\nif __name__ == '__main__':\n    print(f(int(input())))"
    ),
    "a main block that exits": (
        "import sys\ndef f(x): return x + 1\nif __name__ == '__main__': sys.exit(3)"
    ),
    "an exit at the end": "import sys\ndef f(x): return x + 1\nsys.exit()",
    "output without a newline": "def f(x):\n    print('half a line', end='')\n    return x + 1",
    "output at exit": (
        "import atexit\natexit.register(print, 'bye', end='')\ndef f(x): return x + 1"
    ),
    "names of ours": "json = sys = out = encode = source = None\ndef f(x): return x + 1",
    "patched modules": "import json, sys\njson.dumps = sys.exit = None\ndef f(x): return x + 1",
    "a closed stdout": "import sys\nsys.stdout.close()\ndef f(x): return x + 1",
    "a closed descriptor": "import os\ndef f(x):\n    os.close(1)\n    return x + 1",
    "a replaced stdout": "import io, sys\nsys.stdout = io.StringIO()\ndef f(x): return x + 1",
    "no stdout": "import sys\nsys.stdout = None\ndef f(x): return x + 1",
    "recursion as deep as in a script": (
        "def g(n): return n and g(n - 1)\ndef f(x): return g(990) + x + 1"
    ),
    "a future import": "from __future__ import annotations\ndef f(x: Nowhere): return x + 1",
    "a pickled class": "import pickle\nclass C: pass\ndef f(x): return bool(pickle.dumps(C())) + x",
    "quotes and braces": "def f(x): return {'''\n\"{}''': x}['''\n\"{}'''] + 1",
}


@pytest.mark.parametrize("code", SOUND.values(), ids=SOUND)
async def test_a_right_function_passes_whatever_is_around_it(runner, code):
    assert await results(code, runner, fn_name="f", inputs=[[1]], outputs=[2]) == [True]


async def test_a_result_that_the_solution_prints_itself_does_not_count(runner):
    spelled = (
        "print('\\x1fsfusion-result\\x1f2', '\\x1fsfusion\\x1f2', sep='\\n')\nimport "
        "os\nos._exit(0)"
    )
    found = (
        "def f(x):\n"
        "    import re\n"
        "    import __main__\n"
        "    mark = re.findall(r'.x1fsfusion .*?.x1f', open(__main__.__file__).read())[-1]\n"
        "    print(mark.replace('\\\\x1f', '\\x1f') + '2')\n"
        "    return 2"
    )
    for code in (spelled, found):
        assert await results(code, runner, fn_name="f", inputs=[[1]], outputs=[2]) == [False]


async def test_tracebacks_quote_the_solution(runner):
    code = "def f(x):\n    raise ValueError(x)  # here"
    scoring = await score(
        code, {"fn_name": "f", "inputs": [[1]], "outputs": [2]}, runner, memory_limit_mb=-1
    )
    (call,) = scoring.calls
    assert call is not None
    assert 'File "solution.py", line 2, in f\n    raise ValueError(x)  # here\n' in call.stderr


async def test_the_prose_after_an_unclosed_fence_is_not_run(runner):
    text = "Here:\n```python\ndef f(x):\n    return x + 1\n\nThis adds one.\n\nDone"
    assert await results(text, runner, fn_name="f", inputs=[[1]], outputs=[2]) == [True]
    text = "```python\nprint(int(input()) * 2)\n\nIt doubles: 2 becomes 4."
    assert await results(text, runner, inputs=["2"], outputs=["4"]) == [True]


async def test_a_lone_surrogate_in_a_generation_is_the_models_fault(runner):
    """The server would answer 500, which would be masked as infrastructure."""
    assert await results("\ud800 = 1", runner, inputs=[""], outputs=[""]) == [RUNTIME_ERROR]


async def test_a_generation_that_does_not_compile_gets_its_code():
    async with FakeSandbox(
        scripts=[{"language": "cpp", "compile_exit": 1, "compile_errors": "error"}]
    ) as sandbox:
        scoring = await score(
            "int main(", {"inputs": [""], "outputs": [""]}, client(sandbox.url), language="cpp"
        )
    assert scoring.results == [COMPILE_ERROR]


@pytest.mark.parametrize(
    "fault",
    [
        {"what": {"status": 500}},
        {"what": {"status": 429}},
        {"what": "reset"},
        {"what": {"sandbox_error": True}},
        {"what": {"truncate": 0.5}},
        {"what": {"malformed": "json"}},
        {"what": {"output": "not_utf8"}},
    ],
)
async def test_an_infrastructure_failure_is_never_a_wrong_answer(fault):
    """NVIDIA-NeMo/Gym#2212: infrastructure scored 0, like a wrong answer."""
    async with FakeSandbox(executor="scripted", faults=[fault]) as sandbox:
        scoring = await score(
            "print(1)", {"inputs": ["", ""], "outputs": ["1", "1"]}, client(sandbox.url)
        )
    assert scoring.results == [INFRASTRUCTURE, INFRASTRUCTURE]
    assert scoring.score is None
    assert not scoring.passed
    assert all(call is not None and call.message for call in scoring.calls)


@pytest.mark.parametrize("outcome", Outcome)
async def test_every_outcome_has_its_code(outcome):
    codes = {
        Outcome.OK: True,
        Outcome.PROGRAM_ERROR: -2,
        Outcome.PROGRAM_TIMEOUT: -3,
        Outcome.COMPILE_ERROR: -4,
    }
    runner = Answers({"": ended(outcome, "1\n")})
    scoring = await score("…", {"inputs": [""], "outputs": ["1"]}, runner)
    assert scoring.results == [codes.get(outcome, -1)]


async def test_one_infrastructure_failure_leaves_the_other_results_unchanged():
    runner = Answers(
        {"a": ended(Outcome.OK, "1"), "b": ended(Outcome.UNREACHABLE), "c": ended(Outcome.OK, "2")}
    )
    scoring = await score("…", {"inputs": ["a", "b", "c"], "outputs": ["1", "1", "1"]}, runner)
    assert scoring.results == [True, INFRASTRUCTURE, False]
    assert (scoring.score, scoring.lost, scoring.bounds) == (None, 1, (1 / 3, 2 / 3))
    assert scoring.passed is False


async def test_a_case_that_fails_once_is_run_again():
    """ByteDance's own SDK retries a SandboxError; without that, one of twelve cases lost the
    whole sample."""
    rules = [{"first": 1, "what": {what: True}} for what in ("sandbox_error", "reset")]
    async with FakeSandbox(executor="python", faults=rules) as sandbox:
        cases = {"inputs": [str(n) for n in range(12)], "outputs": [str(2 * n) for n in range(12)]}
        scoring = await score(DOUBLE, cases, client(sandbox.url), memory_limit_mb=-1)
    assert (scoring.score, scoring.lost, scoring.bounds) == (1.0, 0, (1.0, 1.0))
    assert sum(len(call.attempts) for call in scoring.calls) == 14


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (ended(Outcome.OK, "x" * PIPE_BYTES), INFRASTRUCTURE),
        (ended(Outcome.PROGRAM_TIMEOUT, "x" * PIPE_BYTES), INFRASTRUCTURE),
        (ended(Outcome.OK, "x" * 300_000), True),
        (ended(Outcome.OK, "y"), False),
        (ended(Outcome.OK, "y" * PIPE_BYTES), False),
        (ended(Outcome.PROGRAM_TIMEOUT, "x\nx" * PIPE_BYTES), TIMEOUT),
        (ended(Outcome.PROGRAM_TIMEOUT, "x"), TIMEOUT),
    ],
)
async def test_an_answer_too_long_for_the_sandbox_is_not_scored(ending, code):
    """SandboxFusion#62: the sandbox silently cuts a large output, or blocks the program that
    prints it."""
    scoring = await score("…", {"inputs": [""], "outputs": ["x" * 300_000]}, Answers({"": ending}))
    assert scoring.results == [code]


LINES = "".join(f"{n}\n" for n in range(60_000))
NUMBERS = list(range(60_000))
RETURNED = f"\n{mark_of('…')}{json.dumps(NUMBERS)}\n"


@pytest.mark.parametrize(
    ("fn_name", "stdout", "code"),
    [
        (None, LINES[:PIPE_BYTES], INFRASTRUCTURE),
        (None, LINES[: PIPE_BYTES - 1], INFRASTRUCTURE),
        (None, LINES.replace("\n", " \r\n")[:PIPE_BYTES], INFRASTRUCTURE),
        (None, " " * 140_000, False),
        (None, "0\n1\n2" + " " * 140_000, False),
        (None, "\n" * 140_000, False),
        (None, LINES[:130_000] + "1\n" + " " * 10_000, False),
        ("f", RETURNED[:PIPE_BYTES], INFRASTRUCTURE),
        ("f", "noise\n" + RETURNED[:PIPE_BYTES], INFRASTRUCTURE),
        ("f", "z" * 140_000, False),
        ("f", "z" * 140_000 + RETURNED[:30], False),
        ("f", RETURNED.replace(" 7,", " 8,")[:PIPE_BYTES], False),
        ("f", "z" * 140_000 + f"\n{mark_of('…')}[0]\n", False),
    ],
    ids=range(13),
)
async def test_only_a_beginning_of_a_long_answer_is_not_scored(fn_name, stdout, code):
    wanted, given = (LINES, "") if fn_name is None else (NUMBERS, [])
    for outcome in (Outcome.OK, Outcome.PROGRAM_TIMEOUT):
        runner = Answers({"" if fn_name is None else "[]": ended(outcome, stdout)})
        scoring = await score(
            "…", {"fn_name": fn_name, "inputs": [given], "outputs": [wanted]}, runner
        )
        assert scoring.results == [code if outcome is Outcome.OK or code else TIMEOUT]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.PROGRAM_TIMEOUT])
async def test_endless_output_is_the_programs_fault(outcome):
    scoring = await score(
        "…", {"inputs": [""], "outputs": ["3"]}, Answers({"": ended(outcome, "x" * PIPE_BYTES)})
    )
    assert scoring.results == [False if outcome is Outcome.OK else TIMEOUT]


async def test_a_deeply_nested_answer_does_not_raise():
    mark = mark_of("…")
    runner = Answers(
        {
            "[1]": ended(Outcome.OK, f"{mark}{'[' * 100_000}\n"),
            "[2]": ended(Outcome.OK, f"{mark}2\n"),
        }
    )
    scoring = await score("…", {"fn_name": "f", "inputs": [[1], [2]], "outputs": [1, 2]}, runner)
    assert scoring.results == [False, True]


async def test_the_settings_reach_the_sandbox():
    runner = Answers({"1\n2": ended(Outcome.OK)})
    await score(
        DOUBLE, {"inputs": ["1\n2"], "outputs": [""]}, runner, timeout=3.0, memory_limit_mb=99
    )
    (program,) = runner.programs
    assert (program.code, program.language) == ("print(int(input()) * 2)\n", "python")
    assert (program.timeout, program.memory_limit_mb, program.stdin) == (3.0, 99, "1\n2")


async def test_at_most_concurrency_cases_run_at_once():
    async with FakeSandbox(executor="scripted") as sandbox:
        cases = {"inputs": [str(n) for n in range(20)], "outputs": [""] * 20}
        code = "…  # sfusion:call=c seconds=0.02"
        scoring = await score(code, cases, client(sandbox.url), concurrency=4)
        assert sandbox.ledger.peak_in_flight == 4
    assert scoring.results == [True] * 20


def test_the_deadline_covers_the_whole_sample():
    """verl#288 and verl#6673: one slow sample blocked all others."""

    async def go() -> None:
        clock = asyncio.get_running_loop().time
        limiter = local_limiter(LimiterSettings(rate_limit=8), clock)
        fault = {"code": "1", "after": 3, "what": "hang"}
        async with FakeSandbox(executor="scripted", faults=[fault]) as sandbox:
            runner = client(sandbox.url, limiter=lambda: limiter)
            cases = {"inputs": [str(n) for n in range(10)], "outputs": [""] * 10}
            scoring = await score("1", cases, runner, concurrency=2, deadline=20.0)
        assert clock() == pytest.approx(20.0, abs=1.5)
        assert scoring.results == [True] * 3 + [INFRASTRUCTURE] * 7
        assert [call is None for call in scoring.calls] == [False] * 3 + [True] * 7
        assert scoring.score is None
        assert limiter.held == 0

    in_virtual_time(go)


async def test_cancelling_ends_the_calls():
    limiter = local_limiter(LimiterSettings(rate_limit=8))
    async with FakeSandbox(faults=[{"what": "hang"}]) as sandbox:
        runner = client(sandbox.url, limiter=lambda: limiter)
        task = asyncio.create_task(score("1", {"inputs": [""] * 4, "outputs": [""] * 4}, runner))
        await until(lambda: sandbox.ledger.in_flight == 4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert limiter.held == 0


@pytest.mark.parametrize(
    ("in_outs", "says"),
    [
        ({}, "inputs is missing"),
        ({"inputs": [1]}, "outputs is missing"),
        ({"inputs": "12", "outputs": ["1", "2"]}, "inputs is a str"),
        ({"inputs": ["1", "2"], "outputs": "12"}, "outputs is a str"),
        ({"inputs": [], "outputs": []}, "0 inputs and 0 outputs"),
        ({"inputs": ["1"], "outputs": ["1", "2"]}, "1 input and 2 outputs"),
        ({"inputs": ["1"], "outputs": [None]}, "outputs[0] is null"),
        ({"inputs": ["{"], "outputs": ["1"], "fn_name": "f"}, "not one JSON value per line"),
        ({"inputs": [3], "outputs": ["1"], "fn_name": "f"}, "must be a list of arguments, found 3"),
        (
            {"inputs": [[{3}]], "outputs": ["1"], "fn_name": "f"},
            "inputs[0] is not JSON: Object of type set",
        ),
        (
            {"inputs": [[3]], "outputs": [b"1"], "fn_name": "f"},
            "outputs[0] is not JSON: Object of type bytes",
        ),
        (
            {"inputs": [[3]], "outputs": [10**5000], "fn_name": "f"},
            "outputs[0] is not JSON: Exceeds the limit",
        ),
        (
            {"inputs": [[10**5000]], "outputs": [1], "fn_name": "f"},
            "inputs[0] is not JSON: Exceeds the limit",
        ),
        (
            {"inputs": [[3]], "outputs": [{(1,): 1}], "fn_name": "f"},
            "outputs[0] is not JSON: keys must be",
        ),
        ({"inputs": [b"1"], "outputs": ["1"]}, "inputs[0] is not text but bytes"),
        ({"inputs": ["1"], "outputs": [["1", {2}]]}, "outputs[0] is not text but set"),
        (
            {"inputs": ["1", 10**5000], "outputs": ["1", "2"]},
            "inputs[1] is not text: Exceeds the limit",
        ),
        (None, "cases must be a mapping, found None"),
        (
            {"inputs": [[3]], "outputs": ["1"], "fn_name": "a-b"},
            "fn_name must be the name of a function, found 'a-b'",
        ),
    ],
)
async def test_invalid_cases_are_refused(in_outs, says):
    with pytest.raises(ScoringError) as caught:
        await score("1", in_outs, Answers({}))
    assert says in str(caught.value)


async def test_invalid_settings_are_refused():
    cases = {"inputs": [""], "outputs": [""]}
    for setting, says in [
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1, found 0"),
        ({"concurrency": "a"}, "concurrency must be a whole number of at least 1, found 'a'"),
        ({"concurrency": True}, "concurrency must be a whole number of at least 1, found True"),
        ({"memory_limit_mb": "x"}, "memory_limit_mb must be a whole number, found 'x'"),
        ({"timeout": NAN}, "timeout must be a number of seconds above 0, found nan"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0, found 0"),
        ({"timeout": "a"}, "timeout must be a number of seconds above 0, found 'a'"),
        ({"deadline": NAN}, "deadline must be a number of seconds, found nan"),
        ({"deadline": None}, "deadline must be a number of seconds, found None"),
        ({"language": "pyhton"}, "'pyhton' is not a language of Sandbox Fusion"),
        ({"language": 3}, "3 is not a language of Sandbox Fusion"),
    ]:
        with pytest.raises(ScoringError) as caught:
            await score("1", cases, Answers({}), **setting)
        assert says in str(caught.value)
    with pytest.raises(ScoringError, match="fn_name works for python only, the language is 'cpp'"):
        await score("1", {**cases, "fn_name": "f"}, Answers({}), language="cpp")


def test_the_score_is_the_fraction_of_passed_cases():
    assert Scoring([True, True]).score == 1.0
    assert Scoring([True, True]).passed
    assert Scoring([True, False, -2, -3, -4]).score == pytest.approx(0.2)
    assert Scoring([True, -1]).score is None
    assert [Scoring(cases).passed for cases in ([True], [True, -1], [False, -1], [-1])] == [
        True,
        None,
        False,
        None,
    ]
    assert Scoring([True, -1, -1, -2]).bounds == (0.25, 0.75)
    assert json.dumps(Scoring([True, False, -1]).results) == "[true, false, -1]"


CASES = {"inputs": ["2", "3"], "outputs": ["4", "7"]}


def test_reward_workers_score_without_a_loop(python):
    assert score_sync(DOUBLE, CASES, python.url, memory_limit_mb=-1).results == [True, False]
    with ThreadPoolExecutor(4) as threads:
        scored = [
            threads.submit(score_sync, DOUBLE, CASES, [python.url], memory_limit_mb=-1)
            for _ in range(8)
        ]
        assert [scoring.result().results for scoring in scored] == [[True, False]] * 8


async def test_score_sync_works_in_the_thread_of_a_running_loop(python):
    assert score_sync(DOUBLE, CASES, python.url, memory_limit_mb=-1).results == [True, False]


def test_score_sync_closes_what_it_opens(python):
    def opened() -> tuple[int, int]:
        return len(os.listdir("/dev/fd")), threading.active_count()

    score_sync(DOUBLE, CASES, python.url)
    before = opened()
    for _ in range(5):
        score_sync(DOUBLE, CASES, python.url)
    # The sandbox is in this process: it closes its ends of the connections a moment later, and its
    # pool of threads may grow. What score_sync leaves open grows with every call.
    for _ in range(20):
        if all(now - then < 5 for now, then in zip(opened(), before, strict=True)):
            return
        score_sync("1", {"inputs": [""], "outputs": [""]}, python.url)
    pytest.fail(f"{opened()} files and threads are open, {before} before")


def test_score_sync_takes_the_config_of_a_tool():
    with FakeSandbox(executor="scripted") as sandbox:
        config = {
            "sandbox_fusion_url": sandbox.url,
            "limiter": "local",
            "limiter_name": "scores",
            "rate_limit": 1,
        }
        scoring = score_sync(
            "…  # sfusion:call=c seconds=0.01", {"inputs": ["1"] * 4, "outputs": [""] * 4}, config
        )
        assert scoring.passed
        assert sandbox.ledger.peak_in_flight == 1


def test_score_sync_refuses_what_score_refuses():
    with pytest.raises(ScoringError, match="inputs is missing"):
        score_sync("1", {}, "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="rate_limt"):
        score_sync("1", CASES, {"sandbox_fusion_url": "http://127.0.0.1:1", "rate_limt": 1})
