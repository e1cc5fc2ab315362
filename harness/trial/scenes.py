"""The fixed plan: which programs, faults and schedules every client meets. A seed changes
canaries, nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sfusion_tools.sandbox.program import COMPILED

from ..lab.facts.canary import long_text, token
from ..lab.facts.read import SHORTEST_CUT, read_text
from ..lab.facts.truth import ProgramTruth
from .client import TrialAsk
from .plan import TEST, SandboxEvent, Scene, TrialCall, TrialPlan
from .record import Record

DEFAULT_TIMEOUT, COMPILE_TIMEOUT, MEMORY_MB, LIMIT = 8.0, 13.0, 777, 3
LONGEST = 150_000
"""Characters of the longest output."""
_DATE_AHEAD = 5.0
"""Real seconds, of which the start of another process takes some."""
CONCURRENT = frozenset({"concurrent"})


def make_plan(seed: int = 0, scale: float = 1.0) -> TrialPlan:
    """Return the plan; every duration is multiplied by ``scale``."""
    make = _Maker(seed, scale)
    settings = {
        "headers": {
            "Authorization": f"Bearer {token(seed, 'secret')}",
            "X-Trial": token(seed, "header"),
        },
        "rate_limit": LIMIT,
        "default_timeout": DEFAULT_TIMEOUT * scale,
        "compile_timeout": COMPILE_TIMEOUT * scale,
        "memory_limit_mb": MEMORY_MB,
    }
    scenes: tuple[Scene | Callable[[Record], Scene | None], ...] = (
        make.programs(),
        make.bounds,
        make.failures(),
        make.dates(),
        make.down(),
        make.limit(),
        make.backing_off(),
        make.together(),
        make.instances(),
        make.cancelled(),
        make.patience(),
        make.sandboxes(),
        make.clock(),
        make.idle(),
        make.tests(),
    )
    return TrialPlan(seed, scenes, settings, scale)


class _Scene:
    """A scene in the making: each call gets a mark, and its program a truth."""

    def __init__(self, name: str, seed: int, scale: float) -> None:
        self.name, self.seed, self.scale = name, seed, scale
        self.calls: list[TrialCall] = []
        self.programs: dict[str, Sequence[ProgramTruth]] = {}
        self.faults: list[Mapping[str, Any]] = []

    def word(self, *keys: object) -> str:
        return token(self.seed, self.name, len(self.calls), *keys)

    def out(self, seconds: float = 0.0) -> ProgramTruth:
        """Return a program that prints a line of its own."""
        return ProgramTruth(f"{self.word('out')}\n", seconds=seconds * self.scale)

    def rich(self, name: str) -> str:
        """Return several lines of which every blank matters, the last without its end."""
        a, b, c = (self.word(name, part) for part in "abc")
        rule, misleading = "- · " * 16, "[INFO] SandboxError TimeLimitExceeded C:\\new\\x41 &lt;"
        letters = "é e\u0301 漢字\u2028🙂"
        return (
            f"  {a}\n\n    {letters} {b}  \n{rule}\n{rule}\n{misleading} -17 "
            f"0.123456789 1e-9\n\tend {c}"
        )

    def add(
        self,
        end: str,
        *truths: ProgramTruth,
        at: float = 0.0,
        in_turn: bool = True,
        needs: Sequence[str] = (),
        what: Any = None,
        phase: str | None = None,
        first_attempts: int | None = None,
        cancel_after: float | None = None,
        cancel_steps: int = 0,
        mark: str | None = None,
        **ask: Any,
    ) -> str:
        """Add a call that must come to this end, with a program that does this, and perhaps a
        fault."""
        call = f"{self.name}-{len(self.calls)}"
        if mark is None:
            mark = call
            self.programs[mark] = truths or (ProgramTruth(),)
        if what is not None:
            rule = {
                "name": mark,
                "call": mark,
                "what": what,
                "phase": phase,
                "first_attempts": first_attempts,
            }
            self.faults.append({key: value for key, value in rule.items() if value is not None})
        language = ask.get("language", "python")
        if "arguments" not in ask:
            ask = {
                "code": code_of(mark, language),
                "truth": self.programs[mark][0].stdout.strip(),
                **ask,
            }
        if "timeout" in ask:
            ask["timeout"] *= self.scale
        wanted = {
            *needs,
            *(key for key in ("stdin", "files", "timeout", "arguments", "tests") if ask.get(key)),
        }
        wanted |= {"language"} if language != "python" else set()
        wanted |= {"arguments"} if "arguments" in ask else set()
        after = None if cancel_after is None else cancel_after * self.scale
        self.calls.append(
            TrialCall(
                TrialAsk(call, **ask),
                end,
                at * self.scale,
                in_turn,
                frozenset(wanted),
                after,
                cancel_steps,
            )
        )
        return call

    def scene(self, **more: Any) -> Scene:
        return Scene(self.name, tuple(self.calls), self.programs, tuple(self.faults), **more)


def code_of(mark: str, language: str = "python") -> str:
    """Return a program whose every byte matters; what it does is declared by its mark."""
    comment = "//" if language in COMPILED else "#"
    return (
        f"{comment} sfusion:call={mark}\n"
        f"text = \"é e\u0301 漢字 🙂 'quoted' \\n \\\\ %s {{}}\"\t\n\n"
        f"if text:  \n    \n    print(text)\n"
        f"{comment} the end of {mark}\n"
    )


def _contradictory(code: int | None, printed: str) -> dict[str, Any]:
    """Return an answer that says of a program that it succeeded, and also that it did not."""
    ran = {
        "status": "Finished",
        "execution_time": 0.1,
        "return_code": code,
        "stdout": f"{printed}\n",
        "stderr": "",
    }
    answer = {"status": "Success", "message": "", "compile_result": None, "run_result": ran}
    return {**answer, "executor_pod_name": None, "files": {}}


class _Maker:
    def __init__(self, seed: int, scale: float) -> None:
        self.seed, self.scale = seed, scale

    def begin(self, name: str) -> _Scene:
        return _Scene(name, self.seed, self.scale)

    def seconds(self, value: float) -> float:
        return value * self.scale

    def whole(self, value: float) -> float:
        """Return seconds for a Retry-After, which has no fractions."""
        return float(math.ceil(value * self.scale))

    def programs(self) -> Scene:
        """Every way in which a program can end, with everything that a request can carry."""
        s = self.begin("programs")
        for _ in range(2):
            s.add("ok", ProgramTruth(s.rich("out")))
            s.add("ok_empty", ProgramTruth())
            s.add("ok", s.out())
            s.add("program_error", ProgramTruth(f"{s.rich('out')}\n", f"oops:\n{s.rich('err')}", 2))
            s.add("ok", ProgramTruth(s.word("out"), f"warning: {s.rich('err')}\n"))
            s.add("program_error", ProgramTruth("", f"error {s.word('err')}\n", 3))
            s.add("program_error", ProgramTruth(f"{s.word('out')}\n", "", 137))
            s.add("program_error", ProgramTruth("", "", 3))
            s.add("program_error", ProgramTruth("", "", -9))
            s.add("program_error", ProgramTruth("", f"fatal {s.word('err')}", 1))
            s.add("ok", ProgramTruth("", f"note: {s.word('err')}\n"))
            s.add("timeout", ProgramTruth(s.rich("out"), ending="stopped"))
            s.add("timeout", ProgramTruth("", ending="stopped"), timeout=3.0)
            s.add(
                "compile_error",
                ProgramTruth("", f"a.cpp:\n{s.rich('err')}\n", ending="not_compiled"),
                language="cpp",
            )
            s.add(
                "compiled",
                ProgramTruth(s.word("out"), warnings=f"unused {s.word('w')}\n"),
                language="cpp",
            )
            s.add("compiler_timeout", ProgramTruth(ending="compiler_stopped"), language="cpp")
        s.add(
            "compile_error",
            ProgramTruth(f"a.go: {s.word('out')}\n", ending="not_compiled"),
            language="go",
        )
        warned = f"unused {s.word('w')}\n"
        s.add(
            "program_error",
            ProgramTruth(s.rich("out"), s.rich("err"), 3, warnings=warned),
            language="cpp",
        )
        s.add("timeout", ProgramTruth(s.rich("out"), ending="stopped"), language="cpp")
        s.add("ok", s.out(), stdin=f"é {s.word('in')}\n\n two\n")
        s.add("ok", s.out(), files={"a/b.txt": "é\n".encode(), "c.bin": bytes(range(256))})
        s.add("ok", ProgramTruth(f"{s.word('out')}\n", seconds=self.seconds(2.0)), timeout=5.5)
        s.add("ok", s.out(45.0), timeout=60.0)
        s.add(
            "ok",
            ProgramTruth(s.rich("out")),
            what={"drip": {"bytes": 17, "every": self.seconds(0.03)}},
        )
        s.add("ok", s.out(), language="go")
        s.add("wrong", s.out(), truth=s.word("another"))
        s.add("wrong", s.out(), truth=s.word("another"))
        s.add("program_error", ProgramTruth(right := s.word("right"), "", 2), truth=right)
        s.add("timeout", ProgramTruth(right := s.word("right"), ending="stopped"), truth=right)
        s.add("program_error", ProgramTruth(s.word("out"), "", 2), truth=s.word("another"))
        twice = s.add(
            "ok", ProgramTruth(f"{s.word('first')}\n"), ProgramTruth(f"{s.word('second')}\n")
        )
        s.add("ok", mark=twice, truth="")
        long = long_text(LONGEST, self.seed, "long")
        s.add("ok", ProgramTruth(long))
        s.add(
            "program_error", ProgramTruth("", long_text(LONGEST // 2, self.seed, "long error"), 3)
        )
        for arguments in ({}, {"code": 7}, {"code": None}, {"kode": "print()"}, ["print()"]):
            s.add("bad_arguments", arguments=arguments)
        s.add("program_error", ProgramTruth("", "", 9))  # not what signal 9 is
        for _ in range(2):
            s.add("ok", s.out())
        s.add("ok", s.out(), stdin=f"  {s.word('in')}\n last")
        fenced = (
            code_of(f"programs-{len(s.calls)}")
            + 'text = """\n```python\nprint(1)\r\n```\n"""\n# `end`'
        )
        s.add("ok", s.out(), code=fenced, needs=("code",))
        s.add("any", s.out(), language="R")  # a client may refuse it, but "r" is another word
        return s.scene()

    def bounds(self, record: Record) -> Scene | None:
        """Outputs at and around the size at which this client cuts, which the scene before has
        shown."""
        long = long_text(LONGEST, self.seed, "long")
        kept = {
            read_text(call.told.text, ProgramTruth(long)).kept
            for call in record.scenes["programs"].calls
            if call.told is not None and len(call.ask.truth) == LONGEST
        } - {0}
        s = self.begin("bounds")
        for size in kept:
            near = {size + step for step in (-1, 0, 1, 2, 30, 38, 39, 40, 41, 42, 80, 1000, size)}
            for length in sorted(one for one in near if SHORTEST_CUT < one < LONGEST):
                s.add("ok", ProgramTruth(long_text(length, self.seed, "bound", length)))
        return s.scene() if kept else None

    def failures(self) -> Scene:
        """Every way in which a sandbox fails, for good and for a moment."""
        s = self.begin("failures")
        seconds = self.seconds

        def again() -> tuple[ProgramTruth, ProgramTruth]:
            return s.out(), ProgramTruth(f"{s.word('again')}\n")

        for plain in (True, False):
            # The second time the sandbox writes a word of its own, which is not to be taken for
            # output.
            said = [{} if plain else {"body": s.word("said", number)} for number in range(4)]
            s.add("not_run", s.out(), what={"status": 503, **said[0]})
            s.add("may_have_run", s.out(), what={"status": 504, **said[1]}, phase="after")
            s.add("throttled", s.out(), what={"status": 429, **said[2]})
            s.add("may_have_run", s.out(), what="reset", phase="after")
            s.add(
                "sandbox_failed",
                s.out(),
                what="sandbox_error" if plain else {"sandbox_error": s.word("said")},
            )
            s.add("may_have_run", s.out(), what={"truncate": 0.5})
            s.add("sandbox_failed", s.out(), what={"status": 500, **said[3]})
        s.add("sandbox_failed", s.out(), what={"malformed": "json"})
        s.add("sandbox_failed", s.out(), what={"status": 200, "body": "<html>busy</html>"})
        s.add("sandbox_failed", s.out(), what={"status": 404})
        s.add(
            "sandbox_failed",
            s.out(),
            what={"status": 202, "body": '{"status": "Success", "run_result": {}}'},
        )
        s.add("may_have_run", s.out(), what={"status": 502}, phase="after")
        s.add("may_have_run", s.out(), what="close", phase="after")
        s.add("may_have_run", s.out(), what="hang", phase="after")
        s.add("throttled", s.out(), what={"status": 429, "retry_after": self.whole(2.0)})
        for asked in (5.0, 60.0):
            s.add(
                "either",
                *again(),
                what={"status": 429, "retry_after": self.whole(asked)},
                first_attempts=1,
            )
        s.add(
            "either",
            *again(),
            what={"status": 503, "retry_after": self.whole(5.0)},
            first_attempts=2,
        )
        s.add("either", *again(), what={"status": 503}, first_attempts=1)
        s.add("either", *again(), what={"status": 504}, phase="after", first_attempts=1)
        s.add("either", *again(), what="reset", phase="after", first_attempts=1)
        s.add("either", *again(), what={"truncate": 0.5}, first_attempts=1)
        s.add("either", s.out(), what={"content_type": "text/html"})
        for code in (1, None):
            s.add(
                "any", s.out(), what={"status": 200, "body": _contradictory(code, s.word("said"))}
            )
        later = 2500.0  # a client may have set the sandbox aside for a while
        s.add("ok", s.out(), what={"output": {"what": "null", "stream": "stderr"}}, at=later)
        s.add("ok_empty", ProgramTruth(), at=later)
        s.add("ok", s.out(), at=later)
        s.add(
            "may_have_run", s.out(), what="reset", phase="after", at=later
        )  # with a good answer before it
        s.add("throttled", s.out(), what={"status": 429, "retry_at": -3600.0})
        return s.scene(horizon=seconds(4000.0))

    def dates(self) -> Scene:
        """Retry-After as a date in the near future. A scene of its own: clocks that nothing
        replaces still fit."""
        s = self.begin("dates")
        ahead = max(self.seconds(6.0), _DATE_AHEAD)
        for status in (429, 503):
            s.add(
                "either",
                s.out(),
                what={"status": status, "retry_at": ahead},
                first_attempts=1,
                in_turn=False,
            )
        return s.scene()

    def down(self) -> Scene:
        """Nothing listens, then the sandbox comes back."""
        s = self.begin("down")
        for _ in range(2):
            s.add("not_run", s.out(), at=0.1)
        s.add("ok", s.out(), at=400.0)
        crash, restart = SandboxEvent(0.0, "crash"), SandboxEvent(self.seconds(399.0), "restart")
        return s.scene(events=(crash, restart), horizon=self.seconds(1000.0))

    def limit(self) -> Scene:
        """More calls than the limit admits, in a known order, with programs of different
        lengths."""
        s = self.begin("limit")
        for number in range(15):
            slow = {"drip": {"bytes": 60, "every": self.seconds(0.5)}} if number % 5 == 1 else None
            s.add(
                "ok",
                s.out((7.5, 6.0, 7.0, 5.0)[number % 4]),
                at=0.1 * number,
                in_turn=False,
                what=slow,
            )
        s.add("ok", s.out(), at=100.0, in_turn=False)
        return s.scene(needs=CONCURRENT | {"rate_limit"})

    def backing_off(self) -> Scene:
        """While calls wait for their next attempt, others are made; after refusals and failures
        every permit is there.

        Not all permits are refused: a client may leave the sandbox alone, but then it leaves it
        alone with all calls.
        """
        s = self.begin("backing_off")
        for begin, refused in (
            (0.0, {"status": 429, "retry_after": self.whole(6.0)}),
            (8.0, {"status": 429}),
        ):
            for number in range(LIMIT + 4):
                first = number < LIMIT - 1
                what: dict[str, Any] = {"what": refused, "first_attempts": 1} if first else {}
                s.add(
                    "either" if first else "ok",
                    s.out(1.0),
                    at=begin + 0.1 * number,
                    in_turn=False,
                    **what,
                )
        for number in range(LIMIT):
            s.add(
                "may_have_run",
                s.out(),
                what="reset",
                phase="after",
                at=13.0 + 0.1 * number,
                in_turn=False,
            )
        for _ in range(2 * LIMIT + 2):
            s.add("ok", s.out(1.0), at=15.0, in_turn=False)
        return s.scene(needs=CONCURRENT | {"rate_limit"})

    def together(self) -> Scene:
        """Calls at the same moment, some of which end together, in any order; some fail on their
        way."""
        s = self.begin("together")
        for number in range(16):
            seconds = self.seconds((0.0, 1.0, 0.0, 0.5)[number % 4])
            truth = ProgramTruth(
                s.word("out"),
                s.word("err") if number % 3 == 0 else "",
                number % 2 * 3,
                seconds=seconds,
            )
            s.add("program_error" if number % 2 else "ok", truth, in_turn=False)
        return s.scene(needs=CONCURRENT, shuffled=True)

    def instances(self) -> Scene:
        """Trajectories whose calls alternate, are lost at last, scored later, or released while
        one is in flight."""
        s = self.begin("instances")
        final = ProgramTruth(f"{s.word('final')}\n")
        s.add("ok", s.out(), instance="one", last=False, truth=final.stdout)
        s.add("ok", s.out(), instance="two", last=False, truth=s.word("another"))
        s.add("not_run", s.out(), instance="three", what={"status": 503})
        s.add("ok", final, instance="one", last=True)
        s.add("wrong", s.out(), instance="two", last=True, truth=s.word("another"))
        s.add("ok", s.out(), instance="four", last=False)
        s.add("wrong", s.out(), instance="five", last=False, truth=s.word("another"))
        for instance in ("four", "five"):
            s.add("ok", instance=instance, executes=False)
        s.add("ok", s.out(), instance="six", last=False)
        s.add("not_run", s.out(), instance="six", what={"status": 503})
        s.add("ok", s.out(), instance="eight", last=False)
        s.add("program_error", ProgramTruth("", s.word("err"), 2), instance="eight")
        truth = s.word("truth")
        s.add("wrong", ProgramTruth(f"1{truth}1\n"), truth=truth)
        s.add("any", s.out(2.0), instance="seven", last=False, at=300.0, in_turn=False)
        s.add("any", instance="seven", executes=False, at=301.0, in_turn=False)
        return s.scene(needs=frozenset({"instances"}))

    def cancelled(self) -> Scene:
        """A call is cancelled at each of its steps, in the queue and in a pause; then every
        permit must be there."""
        s = self.begin("cancelled")
        for after, steps in itertools.product((0.0, 0.5), range(18)):
            s.add("cancelled", s.out(0.5), cancel_after=after, cancel_steps=steps)
        s.add("cancelled", s.out(0.5), cancel_after=0.25)
        s.add("cancelled", s.out(0.5), what={"status": 503}, cancel_after=0.3)
        for number in range(LIMIT + 2):  # the last two of these wait for a permit
            after = 0.3 if number < LIMIT else 0.1
            s.add(
                "cancelled", s.out(0.5), at=300.0 + 0.01 * number, in_turn=False, cancel_after=after
            )
        for number in range(2 * LIMIT + 1):
            s.add("ok", s.out(0.5), at=320.0 + 0.01 * number, in_turn=False)
        return s.scene(needs=CONCURRENT | {"cancel"}, horizon=self.seconds(1000.0))

    def patience(self) -> Scene:
        """A program that uses its time is waited for; a sandbox that never answers is not."""
        s = self.begin("patience")
        near = self.seconds(0.95)
        s.add("ok", ProgramTruth(s.word("out"), seconds=near * DEFAULT_TIMEOUT))
        slow = ProgramTruth(
            s.word("out"), seconds=near * DEFAULT_TIMEOUT, compile_seconds=near * COMPILE_TIMEOUT
        )
        s.add("ok", slow, language="cpp", needs=("compile_timeout",))
        s.add("ok", s.out(14.0), timeout=15.0)
        for number in range(3):
            s.add("may_have_run", s.out(), what="hang", in_turn=not number)
        late = s.add(
            "either",
            s.out(),
            what={"status": 503, "retry_after": self.whole(20.0)},
            first_attempts=1,
        )
        s.faults.append({"name": f"{late} again", "call": late, "what": "hang", "phase": "after"})
        s.add("either", s.out(), what={"drip": {"bytes": 1, "every": self.seconds(1.0)}})
        s.add("not_run", s.out(), what={"status": 503, "retry_after": self.whole(500.0)})
        return s.scene(settings={"deadline": self.seconds(30.0)}, horizon=self.seconds(1500.0))

    def sandboxes(self) -> Scene:
        """Two sandboxes, of which the first is down for a while."""
        s = self.begin("sandboxes")
        for number in range(50):
            truth = s.out(1.5)
            s.add(
                "ok" if not 4 <= number < 30 else "either",
                truth,
                at=1.0 * number + (100 if number >= 30 else 0),
                in_turn=False,
            )
        events = (
            SandboxEvent(self.seconds(5.2), "crash"),
            SandboxEvent(self.seconds(65.2), "restart"),
        )
        return s.scene(needs=CONCURRENT | {"urls"}, sandboxes=2, events=events)

    def clock(self) -> Scene:
        """The wall clock of the machine jumps by an hour, forwards and backwards, while calls
        run and wait."""
        s = self.begin("clock")
        for number in range(LIMIT + 2):
            s.add("ok", s.out(3.0), at=0.1 * number, in_turn=False)
        s.add("ok", s.out(1.0), at=20.0, in_turn=False)
        events = [
            SandboxEvent(self.seconds(at), "clock_jump", seconds=by)
            for at, by in ((1, 3600), (4.5, -7200), (20.5, -3600))
        ]
        return s.scene(needs=CONCURRENT, events=tuple(events))

    def idle(self) -> Scene:
        """Pauses after which a server has closed its idle connections; no limit is configured."""
        s = self.begin("idle")
        for number in range(4):
            s.add("ok", s.out(), at=(0.0, 4.9, 10.0, 25.0)[number], in_turn=False)
        return s.scene(settings={"rate_limit": None})

    def tests(self) -> Scene:
        """Solutions that pass all, some or none of four tests, and sandboxes that lose some of the
        answers.

        Each is a word of four letters: + passes, - prints another thing, ~ the right one and more,
        ! exits with 1 after the right output, @ is stopped after it by its time limit; at a digit a
        sandbox fails.
        """
        s = self.begin("tests")
        asked = self.whole(5.0)
        losses: list[dict[str, Any]] = [
            {"what": "sandbox_error"},
            {"what": "hang", "phase": "after"},
            {"what": "reset", "phase": "after"},
            {"what": {"status": 502}, "phase": "after"},
            {"what": {"malformed": "json"}},
            {"what": {"output": {"what": "null", "stream": "stdout"}}},
            {"what": {"status": 429}},
            {"what": {"status": 429, "retry_after": asked}, "first_attempts": 1},
            {"what": {"status": 503, "retry_after": asked}, "first_attempts": 2},
        ]
        solutions = (
            "++++ +++- ++-- ---- +++0 ++00 0000 ++++ -+++ ++!+ ++@+ +~++ ~~~~ 1+++ "
            "+2++ ++3+ +++4 5+++ +6++ ++7+ 8+++"
        )
        for solution in solutions.split():
            words = [
                (f"{s.word('in', number)}\n", f"{s.word('out', number)}\n") for number in range(4)
            ]
            call = s.add(f"tests {solution}", needs=("tests",), tests=tuple(words))
            for number, (how, (_, expected)) in enumerate(zip(solution, words, strict=True)):
                mark, wrong = f"{call}{TEST}{number}", f"{s.word('wrong', number)}\n"
                printed = {"-": wrong, "~": f"{wrong}{expected}{wrong}"}.get(how, expected)
                ending: Any = "stopped" if how == "@" else "exited"
                s.programs[mark] = (ProgramTruth(printed, exit=int(how == "!"), ending=ending),)
                if how.isdigit():
                    s.faults.append({"name": mark, "call": mark, **losses[int(how)]})
        return s.scene(needs=frozenset({"tests"}))
