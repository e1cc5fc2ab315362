"""Reward functions of a batch, as TRL and open-r1 call them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sfusion.harness.lab.client import Settings, TrialAsk
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.lab.shapes.batched import BatchClient, BatchedReward
from sfusion.harness.lab.shapes.function import Surroundings
from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import bundled_scenes, check_journals, judge, play_in_sim

TRL = """
import asyncio, os
from sfusion_tools import CodeRunner
from sfusion_tools.reward import score

def runner():
    return CodeRunner(os.environ["SANDBOX_FUSION_URL"], limiter="local", languages=["python"])

async def reward(completions, tests, **kwargs):
    one = runner()
    scored = await asyncio.gather(*(score(c, t, one) for c, t in zip(completions, tests)))
    return [found.score for found in scored]

async def lost_is_zero(completions, tests, **kwargs):
    return [found or 0.0 for found in await reward(completions, tests, **kwargs)]

async def code_reward(completions, **kwargs):
    texts = [completion[-1]["content"] for completion in completions]
    infos = kwargs["verification_info"]
    tests = [
        {
            "inputs": [case["input"] for case in info["test_cases"]],
            "outputs": [case["output"] for case in info["test_cases"]],
        }
        for info in infos
    ]
    return await reward(texts, tests)
"""


def _judged(folder: Path, name: str) -> TrialResult:
    file = folder / "rewards.py"
    file.write_text(TRL)
    return judge(f"{file}:{name}")


def _states(result: TrialResult) -> dict[str, str]:
    return {verdict.promise: verdict.state for verdict in result.verdicts}


def test_a_reward_function_of_trl_is_judged(tmp_path: Path) -> None:
    result = _judged(tmp_path, "reward")
    assert result.about == "a reward function, asynchronous, of a batch of texts"
    assert _states(result)["score_follows_the_tests"] == "held", result.table()


def test_one_that_scores_a_lost_test_is_found(tmp_path: Path) -> None:
    result = _judged(tmp_path, "lost_is_zero")
    assert _states(result)["score_follows_the_tests"] == "broken"


def test_one_of_open_r1_gets_messages_and_verification_info(tmp_path: Path) -> None:
    result = _judged(tmp_path, "code_reward")
    assert result.about.endswith("of a batch of messages")
    assert _states(result)["score_follows_the_tests"] == "held", result.table()


OBJECTS = (
    TRL
    + """
import functools

class Only:  # a tensor with one number, or a number of numpy: both look like this
    shape = ()

    def __init__(self, number):
        self.number = number

    def item(self):
        return self.number

class AsTensors:
    def __init__(self, none=None):
        self.none = none

    async def __call__(self, completions, tests, **kwargs):
        found = await reward(completions, tests)
        return tuple(self.none if score is None else Only(score) for score in found)

tensors = AsTensors()
lost_is_a_tensor = AsTensors(Only(-1.0))

class Accuracy:
    def __init__(self, none=None):
        self.none = none

    async def __call__(self, completions, tests, **kwargs):
        found = await reward(completions, tests)
        return [self.none if score is None else score for score in found]

as_object = Accuracy()
lost_is_half = Accuracy(0.5)
lost_is_minus_one = Accuracy(-1.0)
lost_is_best = Accuracy({"score": 1.0, "lost": True})
lost_is_nan = Accuracy(float("nan"))
async def loss_dropped(completions, tests, **kwargs):
    return [score for score in await reward(completions, tests) if score is not None]

as_partial = functools.update_wrapper(functools.partial(code_reward, provider="local"), code_reward)
"""
)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("as_object", "held"),
        ("lost_is_half", "broken"),
        ("lost_is_minus_one", "broken"),
        ("lost_is_best", "broken"),
        ("lost_is_nan", "held"),
        ("loss_dropped", "broken"),
        ("tensors", "held"),
        ("lost_is_a_tensor", "broken"),
        ("as_partial", "held"),
    ],
)
def test_objects_and_partials_are_called_as_trl_calls_them(
    tmp_path: Path, name: str, state: str
) -> None:
    file = tmp_path / "objects.py"
    file.write_text(OBJECTS)
    result = judge(f"{file}:{name}")
    assert result.about.startswith("a reward function, asynchronous, of a batch of ")
    assert _states(result)["score_follows_the_tests"] == state, result.table()


IN_ORDER_OF = (
    TRL
    + """
async def placed(place, completion, tests):
    return place, (await reward([completion], [tests]))[0]

async def completion(completions, tests, **kwargs):
    jobs = [placed(i, *pair) for i, pair in enumerate(zip(completions, tests))]
    return [(await job)[1] for job in asyncio.as_completed(jobs)]

async def samples(completions, tests, **kwargs):
    jobs = [placed(i, *pair) for i, pair in enumerate(zip(completions, tests))]
    found = [await job for job in asyncio.as_completed(jobs)]
    return [score for _, score in sorted(found, key=lambda pair: pair[0])]

async def loss_raised(completions, tests, **kwargs):
    found = await samples(completions, tests)
    if None in found:
        raise RuntimeError("a test was lost")
    return found

async def one_too_few(completions, tests, **kwargs):
    found = await samples(completions, tests)
    return found if len(found) < 2 else found[1:]

async def loss_dropped(completions, tests, **kwargs):
    return [score for score in await samples(completions, tests) if score is not None]
"""
)


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        ("completion", {"misplaced", "numbered"}),
        ("samples", set()),
        ("loss_raised", set()),
        ("one_too_few", {"uncounted"}),
        ("loss_dropped", {"uncounted"}),
    ],
)
def test_each_score_of_a_batch_is_that_of_its_own_sample(
    tmp_path: Path, order: str, kinds: set[str]
) -> None:
    file = tmp_path / "orders.py"
    file.write_text(IN_ORDER_OF)
    scenes = [scene for scene in bundled_scenes() if scene.scenario == "judge-batches"]
    played = play_in_sim(scenes, shape_of(f"{file}:{order}").make)
    verdicts = check_journals(played.journals)
    assert {verdict.how.kind for verdict in verdicts if verdict.state == "broken"} == kinds
    scored = next(each for each in verdicts if each.promise == "score_follows_the_tests")
    assert scored.state == ("broken" if kinds else "held")


async def test_samples_do_not_wait_for_a_batch_that_nobody_scores_any_more() -> None:
    began = asyncio.Event()

    async def reward(completions: list[str], tests: list[object], sandbox_url: str) -> None:
        began.set()
        await asyncio.Event().wait()

    client = BatchClient(BatchedReward(reward, as_messages=False), "reward", Surroundings((), None))
    await client.begin(Settings(("http://sandbox.invalid",)))
    samples = [TrialAsk(f"c{n}", tests=(("a\n", "b\n"),), among=2) for n in range(2)]
    calls = [asyncio.ensure_future(client.call(sample)) for sample in samples]
    await began.wait()
    calls[-1].cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 2
