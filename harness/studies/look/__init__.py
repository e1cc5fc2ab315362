"""Logs of production: read into calls, whatever wrote them."""

from __future__ import annotations

from sfusion.harness.studies.look.reading import LogReader, read_records
from sfusion_tools.record import Attempt, Call

__all__ = ["Attempt", "Call", "LogReader", "read_records"]
