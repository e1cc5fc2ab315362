"""What the handlings of lost samples are called on terminals and pages."""

from __future__ import annotations

from sfusion_tools.advantages import Handling

NAMES = {
    Handling.ZERO: "as trained",
    Handling.MASK: "loss mask only",
    Handling.EXCLUDE: "out of loss and baseline",
    Handling.DROP: "group dropped",
    Handling.FAILED: "retried: all failed",
    Handling.PASSED: "retried: all passed",
}
