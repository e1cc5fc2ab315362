"""The errors of the doctor.

DoctorError
├── NotExamined     a check could not be made, and why; it becomes a line of the report
└── Vanished        the sandbox answered before and does not any more; it becomes a finding
"""

from __future__ import annotations


class DoctorError(Exception):
    """Base of the doctor's errors."""


class NotExamined(DoctorError):
    """Raised by a check that cannot be made; its text says why."""


class Vanished(DoctorError):
    """Raised when the sandbox stopped answering in the middle of a check; its text says how."""
