"""Settings of a limiter that are refused."""

from __future__ import annotations

import math

import pytest

from sfusion_tools.errors import ConfigError
from sfusion_tools.limiter.settings import LimiterSettings


@pytest.mark.parametrize("limit", [0, -1, 1.5, "10", None, True, math.inf])
def test_an_invalid_rate_limit_is_refused_at_construction(limit: object) -> None:
    with pytest.raises(ConfigError, match="rate_limit must be a whole number of at least 1, found"):
        LimiterSettings(limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"lease": 0}, {"lease": -1}, {"lease": "x"}, {"per_second": 0}, {"burst": 3}]
)
def test_other_invalid_settings_are_refused_at_construction(settings: dict) -> None:
    with pytest.raises(ConfigError):
        LimiterSettings(**settings)
