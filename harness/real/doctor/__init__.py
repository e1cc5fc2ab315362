"""The doctor: is this sandbox what the training config expects?"""

from __future__ import annotations

from sfusion.harness.errors import DoctorError, NotExamined
from sfusion.harness.real.doctor.examination import CHECKS, Check, Examination, Observer, examine
from sfusion.harness.real.doctor.finding import Finding, Severity
from sfusion.harness.real.doctor.knee import Knee, Point, find_knee
from sfusion.harness.real.doctor.settings import Client, Plan, SandboxSettings, settings_of_tools, settings_of_url

__all__ = [
    "CHECKS",
    "Check",
    "Client",
    "DoctorError",
    "Examination",
    "Finding",
    "Knee",
    "NotExamined",
    "Observer",
    "Plan",
    "Point",
    "SandboxSettings",
    "Severity",
    "examine",
    "find_knee",
    "settings_of_tools",
    "settings_of_url",
]
