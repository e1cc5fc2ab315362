"""These tests run only where TRL is installed; elsewhere they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("trl") is not None else ["*.py"]
