"""The doctor: is this sandbox what the training config thinks it is?"""

from __future__ import annotations

from sfusion.harness.doctor.examination import CHECKS, Check, Examination, Listener, examine
from sfusion.harness.doctor.finding import Finding, Severity
from sfusion.harness.doctor.knee import Knee, Point, find_knee
from sfusion.harness.doctor.plan import Plan
from sfusion.harness.doctor.subject import Client, Subject, of_tools, of_url
from sfusion.harness.errors import DoctorError, NotExamined

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
