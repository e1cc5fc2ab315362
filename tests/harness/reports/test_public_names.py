"""The public names of the package."""

from __future__ import annotations

from sfusion.harness import reports


def test_public_names_are_sorted_and_exist() -> None:
    names = reports.__all__
    assert names == sorted(names)
    assert all(hasattr(reports, name) for name in names)
