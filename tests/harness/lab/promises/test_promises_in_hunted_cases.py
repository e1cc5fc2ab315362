"""Verdicts that a hunt showed to be wrong: what was broken was the promise."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.lab.promises import check_promises
from sfusion.harness.lab.promises.registry import read_promise
from sfusion.harness.lab.runs.tasks import merged_tools
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds import sim
from sfusion_tools.sandbox.retry import RetryPolicy
from tests.proof.mistakes import MISTAKES
from tests.reference_tool import GoodTool, tool_config

LOAD = {"calls": 6, "concurrency": 3, "program": {"seconds": 0.5, "prints": "{call}\n"}}


def states(
    promise: str | dict[str, Any],
    *,
    good: bool = False,
    tool: type[GoodTool] | None = None,
    **keys: Any,
) -> str:
    """Return how a promise is judged; with ``good``, on the right tool of another class, or on this
    one."""
    data = {"scenario": "hunted", "about": "x", "promises": [promise], **keys}
    if "rollouts" not in keys:
        data.setdefault("load", LOAD)
    scenario = Scenario.from_data(data)
    if good or tool is not None:
        scenario = scenario.changed(tools=merged_tools(tool_config(tool or GoodTool), scenario))
    (verdict, *_) = check_promises(sim.run(scenario), [read_promise(promise)])
    return f"{verdict.state}: {verdict.sentence}"


def test_a_limiter_that_is_switched_off_limits_nothing_in_other_tools_too() -> None:
    told = states(
        "in_flight_within_limit",
        good=True,
        tools={"rate_limit": 1, "enable_global_rate_limit": False},
    )
    assert told.startswith("not_applicable")


def test_a_rollout_that_was_lost_states_no_outcomes() -> None:
    turns = [
        {"say": "a", "programs": [{"prints": "4\n"}]},
        {"say": "b", "programs": [{"seconds": 9}]},
    ]
    told = states(
        "outcome_in_extras",
        cluster={"nodes": 2},
        rollouts={"count": 2, "turns": turns},
        events=[{"at": 3, "kill": "n1-w1"}],
    )
    assert told.startswith("held")


@pytest.mark.parametrize("promise", ["cuts_marked", "stderr_shown"])
def test_output_of_an_answer_that_was_too_large_to_be_read_is_not_missed(promise: str) -> None:
    told = states(
        promise,
        tools={"max_response_mb": 0.05},
        load={**LOAD, "program": {"prints": "{fill:100000}\n", "errors": "oh\n"}},
    )
    assert told.startswith("unknown")


def test_output_added_to_an_answer_that_broke_off_is_not_missed() -> None:
    faults = [
        {"first_attempts": 1, "what": {"output": "huge"}},
        {"first_attempts": 1, "what": {"truncate": 0.5}},
    ]
    assert states("cuts_marked", sandbox={"faults": faults}).startswith("unknown")


@pytest.mark.parametrize("status", [404, 429])
def test_an_answer_that_broke_off_binds_nobody(status: int) -> None:
    refused = {"first_attempts": 1, "what": {"status": status, "retry_after": 9, "body": "x" * 400}}
    faults = [refused, {"first_attempts": 1, "what": {"truncate": {"then": "hang"}}}]
    for promise in ("only_transient_retried", "retry_after_honoured"):
        told = states(
            promise,
            good=True,
            tools={"default_timeout": 2, "transport_margin": 1},
            sandbox={"faults": faults},
        )
        assert not told.startswith("broken"), told


def test_a_request_on_its_way_when_its_call_is_cancelled_does_not_count_as_in_flight() -> None:
    load = {**LOAD, "calls": 4, "concurrency": 1, "cancel": {"share": 1.0, "after": 0}}
    assert not states(
        "in_flight_within_limit", good=True, tools={"rate_limit": 1}, load=load
    ).startswith("broken")


def test_calls_of_workers_that_have_no_caller_left_are_excused() -> None:
    load = {**LOAD, "concurrency": 1}
    told = states(
        "every_call_ends_once",
        cluster={"nodes": 3},
        load=load,
        events=[{"at": 0.7, "kill": "n1-w1"}],
    )
    assert told.startswith("held"), told


def test_a_call_whose_worker_dies_before_it_is_made_is_lost() -> None:
    told = states("every_call_ends_once", cluster={"nodes": 3}, events=[{"at": 0, "kill": "n2-w1"}])
    assert told.startswith("held"), told


def test_a_compile_error_has_no_output_that_could_be_garbled() -> None:
    load = {
        **LOAD,
        "program": {"language": "cpp", "compile_exit": 1, "compile_errors": "error: no\n"},
    }
    told = states(
        "infra_never_scored", load=load, sandbox={"faults": [{"what": {"output": "not_utf8"}}]}
    )
    assert not told.startswith("broken"), told


def test_a_trajectory_that_met_an_outage_is_not_scored_by_a_right_tool() -> None:
    turns = [{"say": one, "programs": [{"prints": "4\n"}]} for one in ("a", "b")]
    told = states(
        "infra_never_scored",
        good=True,
        rollouts={"count": 1, "turns": turns},
        sandbox={"faults": [{"call": "r001.t1.1", "what": {"status": 500}}]},
    )
    assert told.startswith("held"), told


def test_a_call_that_was_cancelled_in_the_queue_has_not_missed_its_deadline() -> None:
    told = states(
        "deadline_honoured",
        tools={"rate_limit": 1, "call_deadline": 4.0},
        load={
            "calls": 3,
            "concurrency": 3,
            "program": {"seconds": 3.5},
            "cancel": {"share": 1.0, "after": 6.5},
        },
    )
    assert told.startswith("held"), told


def test_calls_that_have_not_begun_are_not_cancelled() -> None:
    told = states("every_call_ends_once", schedule={"random": 3}, events=[{"at": 0, "cancel": 1.0}])
    assert told.startswith("held"), told


def test_a_refusal_whose_body_drips_is_not_known_when_it_begins() -> None:
    faults = [
        {"first_attempts": 1, "what": {"status": 429, "retry_after": 2}},
        {"every": 1, "what": {"drip": {"bytes": 1, "every": 1.019}}},
    ]
    load = {"calls": 8, "concurrency": 8, "program": {"seconds": 1.007, "prints": "{call}\n"}}
    told = states(
        "retries_spread",
        good=True,
        seed=386661,
        tools={"rate_limit": 4},
        load=load,
        sandbox={"faults": faults},
    )
    assert not told.startswith("broken"), told


def test_a_retry_after_that_its_client_did_not_wait_for_asks_nothing_of_it() -> None:
    told = states(
        "retry_after_honoured",
        tools={"rate_limit": 1, "enable_global_rate_limit": False, "default_timeout": 5.0},
        sandbox={
            "model": {"kind": "queue", "workers": 1},
            "faults": [
                {"first_attempts": 1, "what": {"status": 429, "retry_after": 0.1}},
                {"every": 2, "what": {"drip": {"bytes": 1, "every": 1.019}}},
            ],
        },
        load={"calls": 5, "concurrency": 4},
    )
    assert not told.startswith("broken"), told


def test_a_program_that_never_ends_shows_no_lack_of_recovery() -> None:
    load = {"calls": 2, "concurrency": 2, "program": {"seconds": 3600}}
    events = [{"at": 0.3, "pause": "n1-w1", "seconds": 0.2}]
    assert states(
        {"recovers_within": 1}, load=load, events=events, tools={"max_attempts": 1}
    ).startswith("unknown")


def test_the_connection_of_a_call_that_was_given_up_is_not_used_again() -> None:
    load = {"calls": 7, "concurrency": 2, "program": {"seconds": 0.5}, "cancel": {"after": 1.0}}
    told = states("connections_reused", tools={"rate_limit": 1}, load=load)
    assert not told.startswith("broken"), told


def test_one_idle_connection_could_serve_one_request() -> None:
    program = [{"seconds": 0.503}, {"seconds": 3600}, {"arguments": {"code": ""}}, {"arguments": 7}]
    told = states(
        "connections_reused",
        seed=149386,
        tools={"enable_global_rate_limit": False},
        sandbox={
            "instances": 2,
            "each": {"sandbox-1": {"faults": [{"name": "slow", "what": {"delay": 3.037}}]}},
            "faults": [{"name": "plain", "every": 2, "what": {"malformed": "json"}}],
        },
        load={
            "calls": 32,
            "concurrency": 16,
            "program": program,
            "think": {"choice": [0.0, 1.019]},
            "cancel": {"share": 0.5, "after": 1.019},
        },
        schedule={"priority": 175984, "changes": 4},
    )
    assert not told.startswith("broken"), told


@pytest.mark.parametrize(("restart", "state"), [({}, "unknown"), ({"seconds": 0.5}, "held")])
def test_nothing_recovers_while_the_only_sandbox_is_down(
    restart: dict[str, float], state: str
) -> None:
    events = [
        {"at": 2.003, "pause": "n1-w1", "seconds": 0.2},
        {"at": 0.907, "crash": "sandbox-1", **restart},
    ]
    load = {**LOAD, "calls": 32, "concurrency": 1}
    assert states(
        {"recovers_within": 60}, tools={"max_attempts": 3}, load=load, events=events
    ).startswith(state)


@pytest.mark.parametrize(
    "promise", ["answers_are_own", "text_is_truthful", "no_duplicate_execution"]
)
def test_requests_with_the_same_code_may_arrive_in_another_order_than_their_calls_began(
    promise: str,
) -> None:
    told = states(
        promise,
        tools={"enable_global_rate_limit": False},
        load={
            **LOAD,
            "calls": 12,
            "concurrency": 6,
            "program": {"repeated": True, "prints": "4\n"},
        },
        schedule={"priority": 622486, "changes": 1},
    )
    assert told.startswith("held")


@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_output_that_a_fault_adds_to_any_stream_is_counted_where_it_is_cut(stream: str) -> None:
    told = states(
        "cuts_marked",
        sandbox={"faults": [{"what": {"output": {"what": "huge", "stream": stream}}}]},
    )
    assert told.startswith("held: 6 tool messages cut")


@pytest.mark.parametrize("good", [False, True])
def test_a_program_that_shared_cores_slow_down_to_its_time_limit_is_truly_reported(
    good: bool,
) -> None:
    told = states(
        "text_is_truthful",
        good=good,
        tools={"rate_limit": 6, "default_timeout": 1.0},
        sandbox={"model": {"kind": "unbounded", "cores": 1}},
        load={**LOAD, "concurrency": 6},
    )
    assert told.startswith("held: 6 tool messages")


def test_a_call_that_ended_in_the_moment_in_which_its_worker_died_is_lost() -> None:
    told = states(
        "every_call_ends_once",
        tools={"requests_per_second": 10.0, "requests_burst": 1},
        sandbox={"model": {"kind": "unbounded", "spawn_cost": 0.005}},
        rollouts={
            "count": 6,
            "turns": [{"say": "a", "programs": [{"seconds": 0, "prints": "4\n"}]}, {"say": "b"}],
        },
        events=[{"at": 0.907, "kill": "n1-w1"}],
    )
    assert told == "held: 6 calls, each ended once; 2 lost with their worker"


def test_a_connection_on_which_a_request_was_delayed_was_opened_before_the_request_arrived() -> (
    None
):
    told = states(
        "connections_reused",
        sandbox={"faults": [{"phase": "connect", "what": {"delay": 2.5}}]},
        load={
            **LOAD,
            "calls": 2,
            "concurrency": 2,
            "program": [{"prints": "a"}],
            "think": {"uniform": [0.1, 1]},
        },
    )
    assert told.startswith("unknown")


def test_an_answer_that_was_sent_as_the_client_gave_up_did_not_reach_it() -> None:
    told = states(
        "only_transient_retried",
        tools={"default_timeout": 1.0, "transport_margin": 2.0},
        load={**LOAD, "calls": 1, "program": {"seconds": 1, "timeout": 1, "prints": "a"}},
        sandbox={"faults": [{"first_attempts": 1, "what": {"delay": 2.0}}]},
        schedule={"random": 1},
    )
    assert not told.startswith("broken")


def test_a_retry_after_that_was_sent_when_the_time_of_its_client_was_up_asks_nothing_of_it() -> (
    None
):
    told = states(
        "retry_after_honoured",
        schedule={"random": 1},
        tools={"default_timeout": 2.0, "total_timeout": 60.0},
        sandbox={
            "faults": [
                {"first_attempts": 1, "what": {"delay": 12}},
                {"first_attempts": 2, "what": {"status": 429, "retry_after": 9}},
            ]
        },
        load={"calls": 8, "concurrency": 8},
    )
    assert not told.startswith("broken"), told


def test_a_connection_that_became_idle_after_a_request_had_begun_could_not_serve_it() -> None:
    told = states(
        "connections_reused",
        seed=125535,
        schedule={"priority": 135522, "changes": 1},
        cluster={"nodes": 1, "workers_per_node": 2, "link": {"delay": 0.053}},
        tools={"rate_limit": 3, "enable_global_rate_limit": False, "queue_timeout": 3.0},
        sandbox={"model": {"kind": "queue", "workers": 5}},
        load={
            "calls": 6,
            "concurrency": 6,
            "program": [
                {"seconds": 0.503, "prints": "{call}\n"},
                {"early": "{fill:400}\n", "prints": "{call}\n"},
            ],
            "cancel": {"share": 0.5, "after": {"choice": [0.0, 0.0013]}},
        },
        events=[{"at": 0, "kill": "n1-w2", "seconds": 4}],
    )
    assert not told.startswith("broken"), told


def test_results_sent_when_their_clients_time_was_up_leave_no_idle_connection() -> None:
    told = states(
        "connections_reused",
        seed=198645,
        schedule={"priority": 809884, "changes": 4},
        cluster={"nodes": 1, "workers_per_node": 1},
        tools={"enable_global_rate_limit": False, "call_deadline": 4.0, "compile_timeout": 1.0},
        load={
            "calls": 32,
            "concurrency": 16,
            "program": [
                {"seconds": 2.5},
                {"language": "cpp", "compile_exit": 1, "compile_errors": "error\n"},
            ],
        },
        events=[{"at": 0, "wedge": "sandbox", "seconds": 4}],
    )
    assert not told.startswith("broken"), told


def test_orders_to_wait_are_known_to_the_client_where_the_sandbox_does_not_know_the_call() -> None:
    told = states(
        {"attempts_per_call": 3},
        seed=433022,
        tools={"max_attempts": 3},
        sandbox={"faults": [{"first": 9, "what": {"status": 429, "retry_after": 0.5}}]},
        rollouts={
            "count": 1,
            "format": "deepseekv31",
            "turns": [
                {"say": "a", "programs": [{"prints": "4\n"}], "malformed": "raw_newline"},
                {"say": "b"},
            ],
        },
    )
    assert told.startswith("held"), told


def test_a_connection_whose_answer_was_not_yet_read_when_a_request_began_could_not_serve_it() -> (
    None
):
    told = states(
        "connections_reused",
        seed=804073,
        tools={"rate_limit": 8, "requests_per_second": 2.0, "requests_burst": 4},
        rollouts={
            "count": 5,
            "format": "llama3",
            "turns": [
                {"say": "a", "programs": [{"seconds": 0.5, "prints": "4\n"}]},
                {"say": "It is 4."},
            ],
        },
    )
    assert not told.startswith("broken"), told


def test_a_permit_that_a_stalled_client_gives_back_to_a_new_limiter_ends_its_attempt() -> None:
    """The old limiter may have given it away before it died. Found by `sfusion hunt --seed 10`,
    case 37903."""
    told = states(
        "in_flight_within_limit",
        cluster={"nodes": 2, "workers_per_node": 2},
        tools={
            "rate_limit": 2,
            "requests_per_second": 2.0,
            "requests_burst": 1,
            "permit_lease": 1.0,
        },
        load={"calls": 16, "concurrency": 16, "program": {"seconds": 7, "prints": "{call}\n"}},
        events=[
            {"at": 0.313, "pause": "n1-w1", "seconds": 1.5},
            {"at": 0.907, "kill": "limiter", "seconds": 0.2},
        ],
    )
    assert told.startswith("held"), told


def test_requests_that_waited_for_one_that_was_never_answered_did_not_choose_their_moment() -> None:
    faults = [
        {"name": "full", "first_attempts": 1, "what": {"status": 503}},
        {"name": "hangs", "between": [0.5, 2], "what": "hang"},
        {"name": "breaks", "what": "reset"},
    ]
    load = {"calls": 6, "concurrency": 6, "program": {"prints": "{call}\n"}}
    told = states(
        "retries_spread", good=True, tools={"rate_limit": 1}, sandbox={"faults": faults}, load=load
    )
    assert not told.startswith("broken"), told


def test_a_herd_that_waits_for_the_moment_that_the_sandbox_named_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quota per second asks each call to wait until then: the later one is refused, the shorter
    its pause."""
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call, attempt, asked: asked or self.base)
    told = states(
        "retries_spread",
        tools={"rate_limit": 16, "requests_per_second": 3000.0, "requests_burst": 1},
        sandbox={"model": {"kind": "quota", "per_second": 0.5, "burst": 1}},
        load={"calls": 12, "concurrency": 12, "program": {"seconds": 0.01}},
    )
    assert told.startswith("broken"), told


def test_a_herd_that_comes_back_into_a_reset_is_seen() -> None:
    faults = [
        {"first_attempts": 1, "what": {"status": 503}},
        {"first_attempts": 2, "what": "reset"},
    ]
    load = {"calls": 8, "concurrency": 8, "program": {"prints": "{call}\n"}}
    herd = MISTAKES["retries-in-step"].tool
    told = states(
        "retries_spread", tool=herd, tools={"rate_limit": 8}, sandbox={"faults": faults}, load=load
    )
    assert told.startswith("broken"), told


@pytest.mark.parametrize(("stream", "prints"), [("both", ""), ("stderr", "{fill:30000}\n")])
def test_stderr_amid_what_a_fault_added_is_not_missed(stream: str, prints: str) -> None:
    faults = [
        {"phase": "after", "what": {"output": {"what": "huge", "stream": stream, "size": 100_000}}}
    ]
    load = {**LOAD, "program": {"prints": prints, "errors": "only a warning\n"}}
    for good in (True, False):
        assert not states(
            "stderr_shown", good=good, sandbox={"faults": faults}, load=load
        ).startswith("broken")


def test_stderr_that_was_dropped_is_missed_although_a_fault_added_much_to_it() -> None:
    faults = [
        {
            "phase": "after",
            "what": {"output": {"what": "huge", "stream": "stderr", "size": 100_000}},
        }
    ]
    load = {**LOAD, "program": {"prints": "{fill:5000}\n", "errors": "oh\n", "exit": 1}}
    assert states("stderr_shown", good=True, sandbox={"faults": faults}, load=load).startswith(
        "held"
    )
    drops = MISTAKES["drops-stderr"].tool
    assert states("stderr_shown", tool=drops, sandbox={"faults": faults}, load=load).startswith(
        "broken"
    )


@pytest.mark.parametrize(("stream", "size"), [("both", 10), ("stderr", 1_000_000)])
def test_stderr_before_or_beside_what_a_fault_added_is_missed(stream: str, size: int) -> None:
    faults = [
        {"phase": "after", "what": {"output": {"what": "huge", "stream": stream, "size": size}}}
    ]
    load = {**LOAD, "program": {"prints": "4\n", "errors": "oh\n", "exit": 1}}
    assert states("stderr_shown", good=True, sandbox={"faults": faults}, load=load).startswith(
        "held"
    )
    drops = MISTAKES["drops-stderr"].tool
    assert states("stderr_shown", tool=drops, sandbox={"faults": faults}, load=load).startswith(
        "broken"
    )


@pytest.mark.parametrize("arguments", [{"timeout": 60}, {"timeout": "60"}, {"language": "cpp"}])
def test_arguments_that_the_tool_can_use_have_their_own_deadline(arguments: dict[str, Any]) -> None:
    told = states(
        "deadline_honoured",
        tools={"default_timeout": 5.0, "languages": ["cpp"]},
        sandbox={"faults": [{"what": "hang"}]},
        load={"calls": 1, "program": {"arguments": {"code": "print(1)", **arguments}}},
    )
    assert told.startswith("held"), told
