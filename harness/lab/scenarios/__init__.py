"""Scenario files: their model, how they are read, and where the bundled ones are."""

from sfusion.harness.errors import ScenarioError
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.reading import (
    bundled_folder,
    parse_scenarios,
    read_files,
    read_scenarios,
    scenario_files,
)

__all__ = [
    "Scenario",
    "ScenarioError",
    "bundled_folder",
    "parse_scenarios",
    "read_files",
    "read_scenarios",
    "scenario_files",
]
