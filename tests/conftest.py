"""What all tests share."""

from __future__ import annotations

import os

# Before anything imports Ray: no telemetry, logs as they come.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
