"""Work spread over processes: what a process loses when it dies, and that none outlives the
command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.errors import BadOption, WorkerLost
from sfusion.harness.lab.spreading import _Processes, open_workers
from tests import ROOT
from tests.ray.processes import Watched


def square(folder: Path, number: int) -> int:
    """Square a number; the first process that is given a 3, and every process that is given a 7,
    dies."""
    tried = folder / str(number)
    if number == 7 or (number == 3 and not tried.exists()):
        tried.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_what_a_dead_process_was_running_is_handed_out_again(tmp_path: Path) -> None:
    with open_workers(2) as workers:
        assert list(workers.map(partial(square, tmp_path), range(7))) == [0, 1, 4, 9, 16, 25, 36]
        assert (tmp_path / "3").exists()
        with pytest.raises(WorkerLost, match="the process that ran it died 4 times: 7"):
            list(workers.map(partial(square, tmp_path), [7]))


def meet(pipe: Path, number: int) -> int:
    """Return the number; 0 only after 20 has begun."""
    if number in (0, 20):
        pipe.open("r" if number == 0 else "w").close()
    return number


def test_a_slow_item_does_not_keep_the_other_process_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open_workers(2) as workers:
        assert list(workers.map(partial(meet, tmp_path / "pipe"), range(21))) == list(range(21))


def begin(file: Path, number: int) -> int:
    """Note that the item began, and return it."""
    with file.open("a") as opened:
        opened.write(f"{number}\n")
    return number


def test_the_longest_begin_first_and_results_keep_their_order(tmp_path: Path) -> None:
    began = tmp_path / "began"
    with _Processes(1) as workers:
        found = list(workers.map(partial(begin, began), [2, 9, 4, 9, 7], effort=float))
    assert found == [2, 9, 4, 9, 7]
    assert began.read_text().split() == ["9", "9", "7", "4", "2"]


def half_a_result(pipe: Path, number: int) -> bytes:
    """Stop in the middle of sending the result."""

    def send_half(connection: Any, data: Any, **_: Any) -> None:
        os.write(connection.fileno(), data[: len(data) // 2])
        pipe.open("w").close()
        signal.pause()

    Connection._send = send_half  # type: ignore[attr-defined]
    return bytes(number)


def test_an_interrupt_does_not_wait_for_the_rest_of_a_result(tmp_path: Path) -> None:
    """A process that is ended while it sends a result leaves half of it, and it was waited for
    without end."""
    os.mkfifo(tmp_path / "pipe")

    def items() -> Iterator[int]:
        yield 1000
        (tmp_path / "pipe").open("r").close()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_workers(2) as workers:
        list(workers.map(partial(half_a_result, tmp_path / "pipe"), items()))


def killed_in_the_middle(folder: Path, number: int) -> bytes:
    """Return a long result; the first process that is given a 3 is killed after half of it."""

    def send_half(connection: Any, data: Any, **_: Any) -> None:
        os.write(connection.fileno(), data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    if number == 3 and not (folder / "3").exists():
        (folder / "3").touch()
        Connection._send = send_half  # type: ignore[attr-defined]
    return bytes(1000 + number)


def test_half_a_result_of_a_killed_process_is_not_waited_for(tmp_path: Path) -> None:
    """With one pipe for all processes, the others kept it open, and the command waited for the rest
    without end."""
    with open_workers(2) as workers:
        found = workers.map(partial(killed_in_the_middle, tmp_path), range(7))
        assert list(map(len, found)) == [1000 + number for number in range(7)]


BLOCKING = """
import signal, sys, threading
from sfusion.harness.lab.spreading import _Processes, open_workers

if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        threading.Thread(target=sys.stdin.read, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with open_workers(2) as workers:
        assert list(workers.map(abs, [-1])) == [1]
    assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
"""


@pytest.mark.parametrize("threads", [0, 1])
def test_signals_that_the_caller_has_blocked_stay_blocked(threads: int, tmp_path: Path) -> None:
    """A process with threads starts its workers, and whatever that needs, in another way."""
    script = tmp_path / "blocking.py"
    script.write_text(BLOCKING)
    process = subprocess.Popen([sys.executable, str(script), str(threads)], stdin=subprocess.PIPE)
    with process:
        assert process.wait() == 0


def test_an_address_without_a_cluster_and_an_unknown_place_are_refused() -> None:
    with pytest.raises(BadOption, match="add --on ray"), open_workers(address="127.0.0.1:6379"):
        pass
    with (
        pytest.raises(BadOption, match="--on k8s: no such place; use here or ray"),
        open_workers(on="k8s"),
    ):
        pass


def stay(pipe: str) -> None:
    """Report the process, then never return."""
    with open(pipe, "w") as file:
        file.write(f"{os.getpid()}\n")
    signal.pause()


SPREAD = """
import sys
from sfusion.harness.lab.spreading import _Processes, open_workers
from tests.harness.lab.test_spreading import stay
if __name__ == "__main__":
    with open_workers(2) as workers:
        list(workers.map(stay, sys.argv[1:]))
"""


def test_processes_end_with_a_killed_command(tmp_path: Path) -> None:
    pipes = [str(tmp_path / name) for name in ("one", "two")]
    for pipe in pipes:
        os.mkfifo(pipe)
    script = tmp_path / "spread.py"
    script.write_text(SPREAD)
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    command = subprocess.Popen(
        [sys.executable, str(script), *pipes], env={**os.environ, "PYTHONPATH": path}
    )
    pids = [int(Path(pipe).read_text()) for pipe in pipes]
    started = Watched(pids)
    command.kill()
    command.wait()
    assert started.still_alive(60) == []


@pytest.mark.parametrize(
    ("before", "forked"), [("", True), ("threading.Thread(target=done.wait).start()", False)]
)
def test_processes_are_forked_only_from_a_process_with_one_thread(
    before: str, forked: bool
) -> None:
    """A fork has everything imported; with threads it could inherit a lock that nobody releases."""
    program = (
        "import signal, sys, threading\n"
        "from sfusion.harness.lab.spreading import open_workers\n"
        "done = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "sys.modules['made_here'] = sys\n"
        f"{before}\n"
        'asked = [\'"made_here" in __import__("sys").modules\', '
        "'__import__(\"signal\").getsignal(15) == 0']\n"
        "with open_workers(2) as workers: print(list(workers.map(eval, asked)))\n"
        "done.set()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == str([forked, True])
