"""The errors of the harness.

HarnessError
├── BadOption                   an option of a command makes no sense, alone or with others
├── JournalError                a file is not a journal that this version can read
├── LogError                    a log of production cannot be read
├── ScenarioError               a scenario file cannot be read; one line for each problem
├── Untrusted                   a file names code or classes to run, and --trust was not given
├── WorldError                  a run cannot go on
│   ├── NothingLeft             every task waits and no timer is set: a deadlock
│   ├── NoProgress              the run is always busy and time never advances
│   ├── MissingWorld            something the world needs is not there (Ray, a sandbox); exit code 3
│   └── WorkerLost              the process of a piece of work died repeatedly; exit code 3
├── TargetError                 a real sandbox cannot be used
│   ├── BadTarget (ValueError)  the target or one of its options makes no sense
│   └── MissingTarget           engine, image or address is missing or does not work; exit code 3
├── ProbeError                  probing a server failed
│   ├── BadProbes (ValueError)  a probe file or a recording is wrong
│   └── Unreachable             no answer, or not that of a sandbox; exit code 3
├── DoctorError                 a check of the doctor did not finish; these never reach the user
│   ├── NotExamined             the check could not be made; becomes a line of the report
│   └── Vanished                the sandbox stopped answering; becomes a finding
├── NotContained                the machine lacks the level that --require names; exit code 3
├── CannotWrite                 a file cannot be written, such as on a full disk; exit code 3
├── NoDump                      there is no rollout dump at the path
└── BadFilter                   a filter of the viewer is malformed
AssertionError
├── PromisesBroken              not every promise held; of run_scenario and the pytest plugin
└── ClientBroken                a trial found a client broken; of the fixture sandbox_trial

Commands print the message and exit with the error's ``exit_code``: 2 (the input is wrong) unless
noted above. Errors of the system (OSError) exit with 3; any other exception is a defect of sfusion
and exits with 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class HarnessError(Exception):
    """Base of every error of the harness.

    The message tells the user what was found and what to do.
    """

    exit_code: ClassVar[int] = 2


class _Problems(HarnessError):
    """An error made of several problems, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class ScenarioError(_Problems):
    """Raised when a scenario cannot be read; every problem names its file and line."""


class Untrusted(_Problems):
    """Raised before anything runs that only an untrusted file names; one line per place."""


class BadOption(HarnessError):
    """Raised by a command when its options make no sense together; the message names them."""


class JournalError(HarnessError):
    """Raised when a file is not a journal, or one of another version."""


class LogError(HarnessError):
    """Raised for a log of production that cannot be read; the message begins with file and line."""


class WorldError(HarnessError):
    """Base of what a world raises when a run cannot go on."""


class NothingLeft(WorldError):
    """Raised by the virtual loop when every task waits and no timer is set."""


class NoProgress(WorldError):
    """Raised by the virtual loop when callbacks keep it busy without time ever advancing."""


class MissingWorld(WorldError):
    """Raised when a world is not available on this machine."""

    exit_code = 3


class WorkerLost(WorldError):
    """Raised when every process that was given a piece of work died."""

    exit_code = 3


class TargetError(HarnessError):
    """Base of the errors about real sandboxes."""


class BadTarget(TargetError, ValueError):
    """Raised when a target, or one of its options, makes no sense."""


class MissingTarget(TargetError):
    """Raised when a target is clear but what it needs is missing or does not work."""

    exit_code = 3


class ProbeError(HarnessError):
    """Base of the errors about probes."""


class BadProbes(_Problems, ProbeError, ValueError):
    """Raised when probes or recordings cannot be read; one line per problem, with file and line."""


class Unreachable(ProbeError):
    """Raised when a server does not give a complete set of answers."""

    exit_code = 3


class DoctorError(HarnessError):
    """Base of the doctor's errors."""


class NotExamined(DoctorError):
    """Raised by a check that cannot be made; the message says why."""


class Vanished(DoctorError):
    """Raised when the sandbox stops answering in the middle of a check; the message says how."""


class NotContained(HarnessError):
    """Raised at the start of a server whose programs would not be contained though they must be."""

    exit_code = 3


class CannotWrite(HarnessError):
    """Raised when a file of a command cannot be written; the message names it."""

    exit_code = 3


class NoDump(HarnessError):
    """Raised when a path holds no rollout dump."""


class BadFilter(HarnessError):
    """Raised when a filter of the viewer is malformed; the message says where."""


class PromisesBroken(AssertionError):
    """Raised when a promise of a scenario did not hold. The message lists them; ``result`` is
    the RunResult."""

    def __init__(self, result: Any) -> None:
        self.result = result
        task = result.task
        lines = [
            f"{task.name}: not every promise held (world {task.world}, seed {task.scenario.seed})"
        ]
        for verdict in result.verdicts:
            if verdict.failed:
                lines.append(f"  {verdict.state}: {verdict.promise}: {verdict.sentence}")
        lines += [f"  {text}" for text in (result.error, result.difference) if text]
        super().__init__("\n".join(lines))


class ClientBroken(AssertionError):
    """Raised when a trial found something broken. The message is its table; ``result`` is the
    TrialResult."""

    def __init__(self, result: Any) -> None:
        self.result = result
        super().__init__(f"{result.name} is broken\n{result.table()}")


DEFECT = 4
"""The exit code of an exception that sfusion did not expect."""


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that an error stands for; never 0 nor 1, which are about promises."""
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    return 3 if isinstance(error, OSError) else DEFECT
