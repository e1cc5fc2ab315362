"""Seeds of a test that tries several: the first in every run, all of them once a week.

The weekly run is that of ``SFUSION_EXAMPLES=random``, which also draws other examples of
Hypothesis; the mark ``other_seeds`` selects these tests for it.
"""

from __future__ import annotations

import os

import pytest


def with_seeds(first: int, *others: int) -> pytest.MarkDecorator:
    """Return the decorator of a test with a parameter ``seed``.

    The first seed must find whatever the test is for; the others look for luck.
    """
    chosen = (first, *others) if is_weekly() else (first,)
    return pytest.mark.parametrize(
        "seed", [pytest.param(seed, marks=pytest.mark.other_seeds) for seed in chosen]
    )


def is_weekly() -> bool:
    """Return whether this run is to find something new."""
    return os.environ.get("SFUSION_EXAMPLES") == "random"
