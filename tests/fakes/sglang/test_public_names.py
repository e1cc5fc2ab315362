"""The public names of the package."""

from __future__ import annotations

from sfusion.fakes import sglang


def test_public_names_are_sorted_and_exist() -> None:
    names = sglang.__all__
    assert all(hasattr(sglang, name) for name in names)
    assert len(set(names)) == len(names)
    assert (
        sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == names
    )
