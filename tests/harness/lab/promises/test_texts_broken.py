"""Promises about what the model reads and what is scored, each broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfusion.fakes.sandbox.program import filling
from sfusion.harness.lab.worlds import sim
from sfusion_tools import runner as runner_module
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import client as client_module
from sfusion_tools.sandbox import text as text_module
from sfusion_tools.sandbox.tool import SandboxFusionTool
from tests.harness.lab.promises.scenes import broken_in, rollout_scene, scene, verdicts


def test_text_is_truthful(monkeypatch: pytest.MonkeyPatch) -> None:
    # What verl's tool returned, whatever had happened.
    monkeypatch.setattr(runner_module, "model_text", lambda *args, **options: "no stdout here")
    broken = broken_in(scene())
    assert set(broken) == {"text_is_truthful"}
    assert "'no stdout here'" in broken["text_is_truthful"].sentence


@pytest.mark.parametrize("what", ["lost", "null", "cut", "huge", "decode_error"])
def test_text_is_truthful_to_what_the_sandbox_says_of_an_output(what: str) -> None:
    spoiled = scene(
        sandbox={"faults": [{"every": 5, "what": {"output": {"what": what, "size": 3}}}]}
    )
    assert set(broken_in(spoiled)) == (
        {"no_duplicate_execution"} if what == "null" else set()
    )  # it is sent again


def test_partial_output_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner_module.model_text

    def forgetful(result: Any, *args: Any, **options: Any) -> str:
        if result.outcome is Outcome.PROGRAM_TIMEOUT:
            result.stdout = ""
        return real(result, *args, **options)

    monkeypatch.setattr(runner_module, "model_text", forgetful)
    slow = scene(
        tools={"default_timeout": 2},
        load={"calls": 6, "concurrency": 6, "program": {"seconds": "1h", "early": "step {call}\n"}},
    )
    broken = broken_in(slow)
    assert set(broken) - {"outcomes"} == {"partial_output_kept"}
    assert "before its timeout" in broken["partial_output_kept"].sentence


def test_no_secret_leaked(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def chatty(self: Any, *args: Any) -> Any:
        client_module.logger.warning("sending with %s", self._headers)
        return await real(self, *args)

    monkeypatch.setattr(client_module.SandboxClient, "_send", chatty)
    journal = sim.run(scene(tools={"rate_limit": 3, "headers": {"X-Token": "canary-4711"}}))
    found = verdicts(journal)
    assert {name for name, verdict in found.items() if verdict.state == "broken"} == {
        "no_secret_leaked"
    }
    assert "headers.X-Token" in found["no_secret_leaked"].sentence
    assert "canary-4711" not in json.dumps(journal.events)


def test_no_secret_leaked_beyond_the_recorded_part_of_a_long_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        runner_module, "model_text", lambda *args, **options: "x" * 5000 + "canary-4711"
    )
    journal = sim.run(scene(tools={"headers": {"X-Token": "canary-4711"}}))
    assert verdicts(journal)["no_secret_leaked"].state == "broken"
    assert max(len(event.get("text", "")) for event in journal.events) == 400


def test_text_is_truthful_for_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    long = scene(load={"calls": 4, "program": {"prints": "{call} {fill:1000}\n"}})
    assert not broken_in(long)
    for other, promise in (("y" * 1001, "text_is_truthful"), (filling(1000), "cuts_marked")):
        monkeypatch.setattr(runner_module, "model_text", lambda *args, text=other, **options: text)
        assert set(broken_in(long)) == {promise}


def test_infra_never_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def harsh(self: Any, instance_id: str, **kwargs: Any) -> float:
        return 0.0

    monkeypatch.setattr(SandboxFusionTool, "calc_reward", harsh)
    faulty = scene(sandbox={"faults": [{"call": "c0003", "what": "sandbox_error"}]})
    broken = broken_in(faulty)
    assert set(broken) - {"outcomes"} == {"infra_never_scored"}
    assert "call c0003" in broken["infra_never_scored"].sentence


@pytest.mark.parametrize(
    ("end", "said", "why"),
    [
        (Outcome.BAD_ARGUMENTS, "", "the call was refused, but the tool message is empty"),
        (Outcome.BAD_ARGUMENTS, "finito", "the text is the same where a call was refused"),
        (Outcome.SANDBOX_ERROR, "finito", "the text is the same where a call got no result"),
        (Outcome.PROGRAM_TIMEOUT, "finito", "the text is the same where a call timed out"),
    ],
)
def test_text_is_truthful_about_how_calls_end(
    end: Outcome, said: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runner_module.model_text

    def terse(result: Any, *args: Any, **options: Any) -> str:
        silent = result.outcome is Outcome.OK and not result.stdout
        return (
            said
            if result.outcome is end
            else "finito"
            if silent
            else real(result, *args, **options)
        )

    programs = [
        {"arguments": {"cod": "1"}},
        {"prints": ""},
        {"seconds": "1h"},
        {"sandbox_error": "full"},
        {"prints": "4"},
    ]
    ends = scene(
        tools={"default_timeout": 2}, load={"calls": 40, "concurrency": 3, "program": programs}
    )
    assert verdicts(sim.run(ends))["text_is_truthful"].held
    monkeypatch.setattr(runner_module, "model_text", terse)
    assert why in broken_in(ends)["text_is_truthful"].sentence


def test_text_is_truthful_in_rollouts() -> None:
    turns = [
        {"malformed": "unknown_tool", "programs": [{"prints": "never"}]},
        {"sees": "no tool", "programs": [{"prints": "4\n"}]},
        {"say": "It is 4."},
    ]
    assert verdicts(sim.run(rollout_scene(rollouts={"count": 2, "turns": turns})), rollouts=True)[
        "text_is_truthful"
    ].held
    turns[1]["sees"] = "something else"
    found = broken_in(rollout_scene(rollouts={"count": 2, "turns": turns}))
    assert "was to read 'something else' and did not" in found["text_is_truthful"].sentence


def test_text_is_truthful_about_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner_module.model_text

    def off_by_one(result: Any, *args: Any, **options: Any) -> str:
        return real(result, *args, **options).replace("code 2", "code 3")

    failing = scene(
        load={"calls": 12, "program": [{"prints": "", "exit": 2}, {"prints": "", "exit": 7}]}
    )
    assert verdicts(sim.run(failing))["text_is_truthful"].held
    monkeypatch.setattr(runner_module, "model_text", off_by_one)
    assert (
        "exit code 2, but the tool message tells 3"
        in broken_in(failing)["text_is_truthful"].sentence
    )


def prints(**program: Any) -> Any:
    return scene(load={"calls": 4, "concurrency": 2, "program": {"seconds": "100ms", **program}})


def test_output_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner_module.model_text
    long = prints(prints="{call} {fill:200000}\n")
    assert verdicts(sim.run(long))["output_bounded"].held
    monkeypatch.setattr(
        runner_module,
        "model_text",
        lambda *args, **options: real(*args, **{**options, "limit": 10**9}),
    )
    broken = broken_in(long)
    assert set(broken) == {"output_bounded"}
    assert (
        "of call c0001 has 200,007 characters, promised at most 100,000"
        in broken["output_bounded"].sentence
    )


@pytest.mark.parametrize("mark", ["", "\n(truncated)", "\n[cut: 179,000 characters]"])
def test_cuts_marked(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    long = prints(prints="{call} {fill:200000}\n")
    assert verdicts(sim.run(long))["cuts_marked"].held
    monkeypatch.setattr(text_module, "cut_middle", lambda text, limit: text[:limit] + mark)
    broken = broken_in(long)
    assert set(broken) == {"cuts_marked"}
    assert "of call c0001 lacks 180,006" in broken["cuts_marked"].sentence or mark


def test_stderr_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner_module.model_text

    def deaf(result: Any, *args: Any, **options: Any) -> str:
        result.stderr = ""
        return real(result, *args, **options)

    for program in (
        {"errors": "bad {call}\n", "exit": 1},
        {"prints": "{fill:30000}\n", "errors": "bad {call}\n", "exit": 1},
    ):
        noisy = prints(**program)
        assert verdicts(sim.run(noisy))["stderr_shown"].held
        with monkeypatch.context() as patch:
            patch.setattr(runner_module, "model_text", deaf)
            broken = broken_in(noisy)
        assert set(broken) - {"outcomes"} == {"stderr_shown"}
        assert "call c0001 wrote 'bad c0001' to stderr" in broken["stderr_shown"].sentence


def test_answers_are_own(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient.run
    cache: dict[str, Any] = {}

    async def remembering(self: Any, program: Any, *, result: Any) -> Any:
        if program.code in cache:
            result.outcome, result.stdout = Outcome.OK, cache[program.code]
        else:
            cache[program.code] = (await real(self, program, result=result)).stdout
        return result

    same = prints(repeated=True, prints="4\n")
    assert verdicts(sim.run(same))["answers_are_own"].held
    monkeypatch.setattr(client_module.SandboxClient, "run", remembering)
    broken = broken_in(same)
    assert set(broken) == {"answers_are_own", "text_is_truthful", "infra_never_scored"}
    assert (
        broken["answers_are_own"].sentence
        == "call c0003 was answered without a request: '4\\n' (and 1 more)"
    )


def test_answers_are_own_and_not_those_of_another_call(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner_module.model_text
    texts: list[str] = []

    def late(*args: Any, **options: Any) -> str:
        texts.append(real(*args, **options))
        return texts[max(0, len(texts) - 2)]

    monkeypatch.setattr(runner_module, "model_text", late)
    broken = broken_in(scene())
    assert set(broken) == {"answers_are_own", "text_is_truthful"}
    assert (
        "call c0002 was given the answer of call c0011: 'c0011\\n'"
        in broken["answers_are_own"].sentence
    )
