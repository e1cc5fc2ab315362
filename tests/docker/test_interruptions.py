"""Ctrl-C and SIGTERM while a container starts, and while it is used."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warm import warm

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]


def interrupt(command: list[str], *, at: str, number: signal.Signals) -> tuple[int, str]:
    """Run a command, send the signal after it prints a line with ``at``; return exit code and the
    rest of stderr."""
    with subprocess.Popen(
        [warm("sfusion"), *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            while at not in (line := process.stderr.readline()):
                assert line, "the command ended too early"
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, errors


@pytest.fixture(scope="module")
def never_answers(make_image: Callable[..., str]) -> str:
    return make_image("never-answers", ["sleep", "1000"])


@pytest.mark.parametrize(
    ("command", "number", "message"),
    [
        (["doctor"], signal.SIGINT, "interrupted\n"),
        (["doctor"], signal.SIGTERM, "interrupted: SIGTERM\n"),
        (["drift"], signal.SIGTERM, "interrupted: SIGTERM\n"),
        (
            ["drift", "--record", "answers.jsonl"],
            signal.SIGTERM,
            "interrupted; nothing was written\n",
        ),
    ],
)
def test_an_interruption_while_a_container_starts_is_reported(
    never_answers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    number: signal.Signals,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert interrupt([*command, f"docker:{never_answers}"], at=" started (", number=number) == (
        130,
        message,
    )
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_examination_of_a_container_prints_no_traceback(sandbox_image: str) -> None:
    command = ["doctor", f"docker:{sandbox_image}", "--json", "-"]  # the text goes to stderr
    code, errors = interrupt(command, at="languages", number=signal.SIGTERM)
    assert (code, errors.splitlines()[-1]) == (130, "interrupted")
    assert "Traceback" not in errors
