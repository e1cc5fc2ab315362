"""The client of Sandbox Fusion: every program ends with a typed outcome."""

from sfusion_tools.sandbox.client import SandboxClient
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.program import LANGUAGES, Bounds, Program
from sfusion_tools.sandbox.result import Attempt, CallResult
from sfusion_tools.sandbox.retry import RetryPolicy

__all__ = ["LANGUAGES", "Attempt", "Bounds", "CallResult", "Fleet", "Program", "RetryPolicy", "SandboxClient"]
