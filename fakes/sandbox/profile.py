"""Which real server is imitated: the source of 2026-07, or the published image of June 2025."""

from __future__ import annotations

from typing import Literal, get_args

Profile = Literal["2026-07", "2025-06"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
