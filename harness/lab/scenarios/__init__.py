"""Scenario files: their model, how they are read, and where the bundled ones are."""

from ...errors import ScenarioError
from .model import Scenario
from .reading import (
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
