"""Shrinking: from a failing run to the smallest scenario and schedule that fail in the same way."""

from __future__ import annotations

from sfusion.harness.search.shrink.failure import Failure, Reproduces, failure_of, failures_of
from sfusion.harness.search.shrink.search import Budget, Shrunk, shrink

__all__ = ["Budget", "Failure", "Reproduces", "Shrunk", "failure_of", "failures_of", "shrink"]
