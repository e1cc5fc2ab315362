"""What is checked out in the working directory."""

from __future__ import annotations

import subprocess


def current_commit() -> str:
    """Return the short commit, with ``-dirty`` if tracked files were changed; empty outside a git repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
