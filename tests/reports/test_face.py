"""What the package offers is what it says."""

from __future__ import annotations

import harness.reports


def test_the_public_names_are_sorted_and_there() -> None:
    names = harness.reports.__all__
    assert names == sorted(names)
    assert all(hasattr(harness.reports, name) for name in names)
