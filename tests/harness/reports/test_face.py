"""What the package offers is what it says."""

from __future__ import annotations

from sfusion.harness import reports


def test_the_public_names_are_sorted_and_there() -> None:
    names = reports.__all__
    assert names == sorted(names)
    assert all(hasattr(reports, name) for name in names)
