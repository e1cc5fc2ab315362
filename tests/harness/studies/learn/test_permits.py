"""The client's own limit is named where requests waited for it."""

from __future__ import annotations

from dataclasses import replace

from sfusion.harness.studies.learn.learned import learn
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call
from tests.harness.studies.made_calls import attempt_at


def limited(limit: int, count: int, late: float) -> list[Call]:
    """Twice as many callers as permits, so each call waits as long as it runs; ends are noticed
    ``late``."""
    calls = []
    for n in range(count):
        began = 1e9 + n // limit * 0.2 + n % limit * 0.01
        attempt = attempt_at(0.2, 0.2 + late, "http://sandbox", 200, "ok", waited=0.2)
        calls.append(replace(call(n, began - 0.2, 0.4 + late), attempts=[attempt]))
    return calls


def test_a_client_that_waits_for_its_own_permits_is_the_cause() -> None:
    learned = learn(limited(4, 400, 0.00001))
    assert learned.client["rate_limit"][0] == 4
    assert learned.headline == "rate_limit"
    says = (
        "limited by the client's own rate_limit 4: 50% of the time is waits for a "
        "permit; or by a server that is"
    )
    assert learned.causes[0].says.startswith(
        says
    )  # with always the same load, this log does not tell
    assert learned.causes[0].evidence.startswith(
        "400 of 400 requests waited for a permit, 0.2 s each"
    )


def test_requests_that_wait_because_many_fail_are_not_the_main_cause() -> None:
    calls = limited(4, 400, 0.0)
    for n in range(0, 400, 3):
        failed = replace(calls[n].attempts[0], status=502, outcome=Outcome.SANDBOX_ERROR)
        calls[n] = replace(calls[n], outcome=Outcome.SANDBOX_ERROR, attempts=[failed])
    assert [one.kind for one in learn(calls).causes] == ["status_502", "rate_limit"]
