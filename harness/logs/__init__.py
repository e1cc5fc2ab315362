"""Logs of production: read into one form, whatever wrote them."""

from __future__ import annotations

from sfusion.harness.logs.reading import LogReader, read_records
from sfusion.harness.logs.record import LoggedAttempt, LoggedCall

__all__ = ["LogReader", "LoggedAttempt", "LoggedCall", "read_records"]
