"""The servers that attacks run against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.attacks.test_attacks import Targets


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    from tests.attacks.test_attacks import Targets

    made = Targets()
    yield made
    made.close_all()
