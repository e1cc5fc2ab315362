"""The doctor: is this sandbox what the training config thinks it is?"""

from __future__ import annotations

from harness.doctor.errors import DoctorError, NotExamined
from harness.doctor.examination import CHECKS, Check, Examination, Listener, examine
from harness.doctor.finding import Finding, Severity
from harness.doctor.knee import Knee, Point, find_knee
from harness.doctor.plan import Plan
from harness.doctor.subject import Client, Subject, of_tools, of_url

__all__ = [
    "CHECKS",
    "Check",
    "Client",
    "DoctorError",
    "Examination",
    "Finding",
    "Knee",
    "Listener",
    "NotExamined",
    "Plan",
    "Point",
    "Severity",
    "Subject",
    "examine",
    "find_knee",
    "of_tools",
    "of_url",
]
