"""Shrinking: from a failing run to the smallest scenario and schedule that fail in the same way."""

from __future__ import annotations

from sfusion.harness.search.shrink.search import Budget, Failure, Reproduces, Shrunk, failure_of, failures_of, shrink

__all__ = ["Budget", "Failure", "Reproduces", "Shrunk", "failure_of", "failures_of", "shrink"]
