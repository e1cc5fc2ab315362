"""Gsm8kTool and its scoring, as in verl's guide."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.gsm8k_tool import NO_IMPROVEMENT, Gsm8kTool, compute_score, extract_answer


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("so #### 72", "72", "72"),
        ("#### 1,234", "1234", "1234"),
        ("#### $1,000.50", "1000.50", "1000.50"),
        ("#### -5", "-5", "-5"),
        ("#### 72.", "72", "72"),
        ("#### 220000.0", "220000.0", "220000.0"),
        ("#### 1 then #### 2", "2", "2"),
        ("the answer is 72", None, "72"),
        ("3 apples and 4 pears make 7.", None, "7"),
        ("it costs $12.50!", None, "12.50"),
        ("half is .5", None, ".5"),
        ("so −5", None, "-5"),
        ("#### −5", "-5", "-5"),
        ("one of 1/2", None, "1/2"),
        ("about 1e3", None, "1e3"),
        ("#### 42\nNote 7: see step 3", "42", "42"),
        ("the roots are 1,2,3", None, "3"),
        ("#### 1,2,3", "1,2,3", "1,2,3"),
        ("1,234,567.5 in all", None, "1234567.5"),
        ("rupees 12,34,567", None, "1234567"),
        ("pages 3-5", None, "5"),
        ("no number", None, None),
        ("", None, None),
        ("####", None, None),
    ],
)
def test_answers_are_extracted(text, strict, flexible):
    assert extract_answer(text, "strict") == strict
    assert extract_answer(text, "flexible") == flexible


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method must be one of strict, flexible, found 'lax'"):
        extract_answer("1", "lax")


def test_strict_compares_the_text_flexible_the_value():
    """The sample of verl's original design answers 220000.0 instead of 220000 and scores 0."""
    assert compute_score("#### 220000.0", "220000", "strict") == 0.0
    assert compute_score("#### 220000.0", "220000", "flexible") == 1.0
    assert compute_score("#### 1,234", "1,234", "strict") == 1.0
    assert compute_score("72", "72", "strict") == 0.0
    assert compute_score("72", "72", "flexible") == 1.0


def test_flexible_reads_signs_fractions_and_exponents():
    right = [
        ("−5", "-5"),
        ("1/2", "0.5"),
        ("1e3", "1,000"),
        ("#### 42 (step 7)", "42"),
        ("$1,200", "1200"),
    ]
    wrong = [
        ("−5", "5"),
        ("1/2", "2"),
        ("1e3", "3"),
        ("#### 42 (step 7)", "7"),
        ("1,2,3", "123"),
        ("1/0", "0"),
    ]
    assert [compute_score(text, truth, "flexible") for text, truth in (*right, *wrong)] == [
        1.0
    ] * 5 + [0.0] * 6
    assert compute_score("1e999999999", "1", "flexible") == 0.0


def test_a_wrong_answer_gets_the_format_score():
    assert compute_score("#### 5", "6", format_score=0.1) == 0.1
    assert compute_score("five", "6", format_score=0.1) == 0.0
    assert compute_score("#### 6", "6", format_score=0.1, score=2.0) == 2.0
    assert compute_score("#### 5", "many", "flexible") == 0.0


@settings(max_examples=60)
@given(st.text("0123456789.,$-# \nx", max_size=30), st.text("0123456789.,$- x", max_size=10))
def test_any_solution_text_is_scored(text, truth):
    for method in ("strict", "flexible"):
        assert compute_score(text, truth, method) in (0.0, 1.0)


@settings(max_examples=40)
@given(st.integers(-(10**9), 10**9))
def test_the_right_number_always_scores(number):
    for text in (f"#### {number}", f"#### {number:,}"):
        assert (
            compute_score(text, str(number), "strict")
            == compute_score(text, str(number), "flexible")
            == 1.0
        )


async def test_trajectory_of_verls_guide_gets_its_rewards():
    tool = Gsm8kTool({"type": "native"})
    instance, response = await tool.create(ground_truth="72")
    assert response.is_empty()
    assert await tool.calc_reward(instance) == 0.0

    response, reward, metrics = await tool.execute(instance, {"answer": "70"})
    assert (response.text, reward, metrics) == (
        "Current parsed answer='70' reward=0.0",
        NO_IMPROVEMENT,
        {},
    )
    response, reward, _ = await tool.execute(instance, {"answer": "72"})
    assert (response.text, reward) == ("Current parsed answer='72' reward=1.0", 0.0)
    _, reward, _ = await tool.execute(instance, {"answer": "#### 72"})
    assert reward == NO_IMPROVEMENT == -0.05
    assert await tool.calc_reward(instance) == 1.0
    _, reward, _ = await tool.execute(instance, {"answer": "71"})
    assert reward == NO_IMPROVEMENT
    assert await tool.calc_reward(instance) == 0.0

    await tool.release(instance)
    assert await tool.release(instance) is None
    assert await tool.calc_reward(instance) is None


async def test_create_accepts_spread_and_nested_arguments():
    tool = Gsm8kTool({})
    for options in ({"ground_truth": 72}, {"create_kwargs": {"ground_truth": "72"}}):
        instance, _ = await tool.create(**options)
        await tool.execute(instance, {"answer": 72})
        assert await tool.calc_reward(instance) == 1.0


async def test_the_method_is_flexible_by_default():
    for config, score in (({}, 1.0), ({"method": "flexible"}, 1.0), ({"method": "strict"}, 0.0)):
        tool = Gsm8kTool(config)
        instance, _ = await tool.create(ground_truth="72")
        await tool.execute(instance, {"answer": "72.0"})
        assert await tool.calc_reward(instance) == score


@pytest.mark.parametrize("parameters", [None, [], "72", {}, {"answer": None}, {"anser": "72"}])
async def test_a_missing_answer_gets_a_message(parameters):
    tool = Gsm8kTool({})
    instance, _ = await tool.create(ground_truth="72")
    response, reward, metrics = await tool.execute(instance, parameters)
    assert response.text == (
        '[calc_gsm8k_reward] `answer` is missing; call it with an object such as {"answer": "42"}'
    )
    assert (reward, metrics) == (NO_IMPROVEMENT, {"outcome": "bad_arguments"})


@pytest.mark.parametrize("answer", [72, 72.0, "72", " 72 ", ["72"], {"value": 72}])
async def test_an_answer_of_any_type_is_accepted(answer):
    tool = Gsm8kTool({})
    instance, _ = await tool.create(ground_truth="72")
    _, reward, _ = await tool.execute(instance, {"answer": answer})
    assert reward == 0.0


async def test_an_answer_that_python_cannot_write_gets_a_message():
    tool = Gsm8kTool({})
    instance, _ = await tool.create(ground_truth="72")
    response, reward, metrics = await tool.execute(instance, {"answer": 16**3600})
    assert (
        response.text
        == "[calc_gsm8k_reward] `answer` is too long to be read; write a number or a short text"
    )
    assert (reward, metrics) == (NO_IMPROVEMENT, {"outcome": "bad_arguments"})


async def test_without_a_ground_truth_nothing_is_scored():
    tool = Gsm8kTool({})
    instance, _ = await tool.create()
    for unknown in (instance, "never seen"):
        response, reward, _ = await tool.execute(unknown, {"answer": "72"})
        assert (response.text, reward) == (
            "[calc_gsm8k_reward] There is no ground truth to compare with.",
            None,
        )
        assert await tool.calc_reward(unknown) is None


async def test_trajectories_do_not_mix():
    tool = Gsm8kTool({})
    first, _ = await tool.create(ground_truth="1")
    second, _ = await tool.create(ground_truth="2")
    await tool.execute(first, {"answer": "1"})
    await tool.execute(second, {"answer": "1"})
    assert [await tool.calc_reward(first), await tool.calc_reward(second)] == [1.0, 0.0]
