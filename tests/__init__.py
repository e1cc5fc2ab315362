"""Tests: the folders mirror the packages; docker, ray and verl hold what needs a real engine, a
real cluster, verl."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The top of the repository."""
