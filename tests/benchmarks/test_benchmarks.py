"""Each benchmark does what its name says, seen by the servers that it calls; with tiny sizes."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from benchmarks import _benching
from benchmarks.benchmark import Benchmark, Contest, in_turn
from benchmarks.calls import FLOOR, PUBLIC, Calls
from benchmarks.catalogue import BENCHMARKS
from benchmarks.command import app
from benchmarks.event_logging import WITHOUT, logged_calls
from benchmarks.fake_servers import BARE, PASS_THROUGH, SUBPROCESS, rate_of_closing, scripted_fake
from benchmarks.figures import OURS, Goal
from benchmarks.ground import Ground
from benchmarks.growth import GROWTHS

pytestmark = pytest.mark.xdist_group("benchmarks")


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground(0.001) as opened:
        yield opened


def arrived(url: str, path: str = "/") -> str:
    with urlopen(url + path) as answer:
        return str(answer.read().decode())


def in_fake(ground: Ground) -> int:
    """Requests that the fake sandbox has received."""
    return int(json.loads(arrived(ground.url("fake"), "/__sfusion/ledger?calls=0"))["arrived"])


def benchmark(name: str, ground: Ground) -> dict[str, float]:
    (one,) = (one for one in BENCHMARKS if one.name == name)
    with one.open(ground) as contest:
        figures = dict(contest.measure(1))
    assert all(figure > 0 for figure in figures.values())
    return figures


def test_every_contestant_of_a_call_reaches_the_server(ground: Ground) -> None:
    before = int(arrived(ground.url("bare")))
    with Calls(callers=3, limit=2, calls=5000, ray=False).open(ground) as contest:
        figures = contest.measure(1)
    assert set(figures) == {OURS, FLOOR, PUBLIC}
    assert int(arrived(ground.url("bare"))) - before == 5 + 5 + 5


def test_calls_with_and_without_the_event_log_reach_the_server(ground: Ground) -> None:
    before = int(arrived(ground.url("bare")))
    with logged_calls(ground) as contest:
        assert set(contest.measure(1)) == {OURS, WITHOUT}
    assert int(arrived(ground.url("bare"))) - before == 2 * 500


def test_the_fake_and_its_baseline_answer_the_same_number_of_requests(ground: Ground) -> None:
    with scripted_fake(ground) as contest:
        for number in (1, 2):
            assert {OURS, BARE} <= set(contest.measure(number))
            # Every round measures processes of its own. Each was asked twice, the first time to
            # warm up: once for the length of the answer, and once on each connection.
            assert in_fake(ground) == 2 * (1 + 16)
            body = next(key[1] for key in ground._servers if len(key) > 1 and key[0] == "bare")
            assert int(arrived(ground.url("bare", body))) == 2 * (1 + 16)


def test_a_server_that_closes_each_connection_is_asked_on_new_ones() -> None:
    """As pytest-httpserver does."""
    seen = []

    class Closing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.client_address)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Closing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert rate_of_closing(server.server_address[1], 4, 12) > 0
        server.shutdown()
    assert len(seen) == len(set(seen)) == 12


def test_the_proxy_and_its_baseline_pass_requests_to_the_fake(ground: Ground) -> None:
    before = in_fake(ground)
    assert set(benchmark("proxy", ground)) == {OURS, PASS_THROUGH}
    assert in_fake(ground) - before == 2 * (1 + 2)


def test_python_programs_really_run(ground: Ground) -> None:
    assert set(benchmark("fake-python", ground)) == {OURS, SUBPROCESS}


def test_goals_name_contestants_of_their_benchmark() -> None:
    named = {one.name: {goal.baseline for goal in one.goals} for one in BENCHMARKS}
    assert named["call"] == {FLOOR, "original design", "verl 0.7.1"}
    assert named["matrix"] == {""}
    assert len(named) == len(BENCHMARKS) == 14


@pytest.mark.parametrize("name", ["callers", "waiters", "workers", "nodes", "journal", "text"])
def test_each_curve_measures_a_small_size(ground: Ground, name: str) -> None:
    (growth,) = (one for one in GROWTHS if one.name == name)
    costs = growth.measure(ground, 3)
    assert costs
    # Some machines count processor time in steps of 10 ms.
    assert all(0 <= cost < math.inf for cost in costs.values())


def test_growth_covers_the_sizes_that_users_have() -> None:
    ranges = {one.name: (one.sizes[0], one.sizes[-1]) for one in GROWTHS}
    assert ranges["callers"] == (1, 4096)
    assert ranges["waiters"] == (10, 100_000)
    assert ranges["workers"] == (1, 1000)
    assert ranges["nodes"] == (1, 8)
    assert ranges["real-nodes"] == (1, 4)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.output


def test_a_baseline_that_dies_is_left_out_and_the_table_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = iter(["to warm up", "measured"])

    @contextmanager
    def contest(_: Ground) -> Iterator[Contest]:
        def dies() -> float:
            if next(rounds, None) is None:
                raise RuntimeError("The actor died unexpectedly.\nActor id: 1")
            return 2.0

        yield in_turn({OURS: lambda: 8.0, "bare": lambda: 4.0, "its actor": dies})

    goals = [Goal("its actor", at_least=3), Goal("bare", at_least=2)]
    monkeypatch.setattr(
        _benching, "BENCHMARKS", [Benchmark("dying", "", "per second", goals, contest)]
    )
    code, output = run("--rounds", 3)
    assert code == 0, output
    assert "dying      bare     at least 2: met" in output
    assert "not measured: its actor: failed in round 2: The actor died unexpectedly.\n" in output
    assert "1 goal met." in output


def test_quick_run_prints_a_table_and_judges_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    code, output = run("--quick", "--rounds", 1, "--only", "call-local", "--json", file)
    assert code == 0, output
    assert "Too few rounds to judge the goals" in output
    document = json.loads(file.read_text())
    assert [one["benchmark"] for one in document["benchmarks"]] == ["call-local"]
    ratio, public = document["benchmarks"][0]["ratios"]
    assert public["baseline"] == PUBLIC
    assert (ratio["baseline"], ratio["at_least"]) == (FLOOR, 0.7)


def test_growth_writes_plots_and_json(tmp_path: Path) -> None:
    file = tmp_path / "growth.json"
    options = [
        "--quick",
        "--only",
        "waiters",
        "--sizes",
        "waiters=5,20",
        "--out",
        tmp_path / "plots",
        "--json",
        file,
    ]
    code, output = run("growth", *options)
    assert code == 0, output
    assert "waiters 20:" in output
    (curve,) = json.loads(file.read_text())["curves"]
    assert [(point["size"], point["repetitions"]) for point in curve["points"]] == [(5, 1), (20, 1)]
    assert [one.name for one in (tmp_path / "plots").iterdir()] == ["waiters.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "cal"], "--only cal: no such benchmark; did you mean 'call'"),
        (["growth", "--only", "caller"], "did you mean 'callers'"),
        (["growth", "--sizes", "callers=x"], "expected callers=N,N,..."),
        (["growth", "--sizes", "calls=0"], "numbers of at least 1"),
        (["growth", "--sizes", "cals=1"], "no such curve; did you mean 'calls'"),
    ],
)
def test_wrong_options_are_named_with_exit_code_2(arguments: list[str], message: str) -> None:
    code, output = run(*arguments)
    assert (code, message in output) == (2, True), output


def test_without_ray_its_baselines_are_named_and_benchmarks_that_need_it_left_out(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ground, "no_ray", lambda _: "Ray is not installed")
    with Calls(callers=2, calls=2).open(ground) as contest:
        assert set(contest.measure(1)) == {OURS, FLOOR, PUBLIC}
    assert set(contest.missing) == {"limiter of a Ray cluster", "original design", "verl 0.7.1"}
    code, output = run("--quick", "--only", "permits")
    assert (code, "permits: Ray is not installed" in output) == (3, True), output
