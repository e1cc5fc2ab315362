"""Probes: requests that show how a sandbox answers, and recordings of the answers."""

from __future__ import annotations

from sfusion.harness.errors import BadProbes, ProbeError, Unreachable
from sfusion.harness.real.probes.cassette import Recording, read_recording, recording_lines
from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion.harness.real.probes.raw_http import ProbeAnswer, Server
from sfusion.harness.real.probes.scrubbing import Scrubber
from sfusion.harness.real.probes.sending import Sender
from sfusion.harness.real.probes.suite import SUITE_VERSION, bundled_probes, chosen, read_probes, suite_with

__all__ = [
    "SUITE_VERSION",
    "BadProbes",
    "Probe",
    "ProbeAnswer",
    "ProbeError",
    "ProbeRequest",
    "Recording",
    "Scrubber",
    "Sender",
    "Server",
    "Unreachable",
    "bundled_probes",
    "chosen",
    "read_probes",
    "read_recording",
    "recording_lines",
    "suite_with",
]
