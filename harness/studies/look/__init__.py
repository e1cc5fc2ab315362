"""Logs of production: read into one form, whatever wrote them."""

from __future__ import annotations

from sfusion.harness.studies.look.reading import LogReader, read_records
from sfusion.harness.studies.look.record import LoggedAttempt, LoggedCall

__all__ = ["LogReader", "LoggedAttempt", "LoggedCall", "read_records"]
