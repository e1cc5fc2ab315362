"""The fixture ``sandbox``: the same test with the fake and with a real sandbox."""

from __future__ import annotations

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.harness.plugin.conftest import Run

pytest_plugins = ["pytester"]

SUITE = """
import json
import urllib.error
import urllib.request

import pytest


def ask(url):
    body = json.dumps({"code": "print(6 * 7)  # sfusion:call=a", "language": "python"}).encode()
    request = urllib.request.Request(url + "/run_code", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)["run_result"]["stdout"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None


def test_it_really_runs_code(sandbox):
    assert ask(sandbox.url) == (200, "42\\n")
    assert sandbox.ledger.arrived == 1


@pytest.mark.sandbox_faults([{"first": 1, "what": {"status": 503}}])
def test_the_marker_sets_faults(sandbox):
    assert [ask(sandbox.url)[0], ask(sandbox.url)[0]] == [503, 200]


def test_faults_can_be_set_in_the_test(sandbox):
    sandbox.set_faults([{"what": {"status": 429}}])
    assert ask(sandbox.url)[0] == 429
    sandbox.clear_faults()
    assert ask(sandbox.url)[0] == 200
"""


def test_sandbox_fixture_is_the_fake_by_default(pytester: pytest.Pytester, run_pytest: Run) -> None:
    pytester.makepyfile(SUITE)
    run_pytest().assert_outcomes(passed=3)


def test_sandbox_fixture_proxies_the_configured_address(
    pytester: pytest.Pytester, run_pytest: Run
) -> None:
    pytester.makepyfile(SUITE)
    with FakeSandbox(executor="python") as real:
        run_pytest("--sfusion-sandbox", real.url).assert_outcomes(passed=3)
        assert real.ledger.executions("a") == 3, "what the proxy let through"
        real.forget()
        pytester.makeini(f"[pytest]\nsfusion_sandbox = {real.url}/run_code\n")
        run_pytest().assert_outcomes(passed=3)
        assert real.ledger.executions("a") == 3


@pytest.mark.parametrize("fixture", ["sandbox", "fake_sandbox"])
def test_a_marker_without_rules_says_what_it_wants(
    pytester: pytest.Pytester, run_pytest: Run, fixture: str
) -> None:
    pytester.makepyfile(
        f"import pytest\n@pytest.mark.sandbox_faults()\ndef test_it({fixture}): ...\n"
    )
    done = run_pytest()
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(
        ["*sandbox_faults takes one argument, a list of fault rules: sandbox_faults(*"]
    )


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (
            "http://127.0.0.1:1",
            "--sfusion-sandbox: nothing answers at http://127.0.0.1:1: connection refused",
        ),
        ("dokcer", "--sfusion-sandbox: 'dokcer' is not a sandbox; did you mean 'docker'?"),
    ],
)
def test_a_sandbox_that_cannot_be_used_fails_with_the_reason(
    pytester: pytest.Pytester, run_pytest: Run, typed: str, reason: str
) -> None:
    pytester.makepyfile(SUITE)
    done = run_pytest("--sfusion-sandbox", typed)
    done.assert_outcomes(errors=3)
    done.stdout.fnmatch_lines([f"*{reason}*".replace("[", "[[]")])
    done.stdout.no_fnmatch_line("*Traceback*")
