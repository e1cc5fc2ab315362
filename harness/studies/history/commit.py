"""What is checked out in the working directory."""

from __future__ import annotations

import subprocess


def current_commit() -> str:
    """Return the short commit; empty outside a git repository.

    Whether files were changed is not asked: that would run what the configuration of a stranger's repository names.
    """
    command = ["git", "rev-parse", "--short=10", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
