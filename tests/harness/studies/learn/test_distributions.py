"""The shape that a sample was drawn from is found again."""

from __future__ import annotations

import pytest

from sfusion.fakes.faults import Distribution
from sfusion.fakes.faults.chance import drawer
from sfusion.harness.studies.learn.distributions import fit, sample_distance

SHAPES = [
    {"uniform": [0.1, 0.6]},
    {"lognormal": [0.2, 0.5]},
    {"exponential": 0.3},
    {"normal": [1.0, 0.1]},
    0.25,
]


@pytest.mark.parametrize("written", SHAPES, ids=str)
def test_the_shape_and_numbers_of_a_sample_are_found(written: object) -> None:
    source = Distribution.model_validate(written)
    found = fit([source.sample(drawer(1, "test", str(number))) for number in range(2000)])
    assert found.shape == source.shape
    assert found.numbers == pytest.approx(source.numbers, rel=0.06)
    assert found.distance < 0.03
    assert Distribution.model_validate(found.yaml).shape == source.shape


def test_a_sample_with_two_modes_becomes_quantiles() -> None:
    sample = [0.1 + 0.0001 * number for number in range(100)] + [
        5 + 0.001 * number for number in range(100)
    ]
    found = fit(sample)
    assert found.shape == "choice"
    assert sample_distance(found.numbers, sample) < 0.05


def test_small_and_empty_samples_are_taken_as_they_are() -> None:
    assert fit([]).yaml == 0.0
    assert fit([0.5]).yaml == 0.5
    assert fit([0.1, 3.0, 0.7]).yaml == {"choice": [0.1, 0.7, 3]}
