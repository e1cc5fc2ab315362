"""Test and emulation harness for reinforcement learning with a code sandbox (Sandbox Fusion).

In a checkout, ``sfusion/harness``, ``sfusion/fakes`` and ``sfusion/scenarios`` are links to the
folders of the same name at the top of the repository; in a wheel they are the folders themselves.
Names are imported on first use.
"""

from __future__ import annotations

from sfusion_tools._lazy import on_first_use

TYPE_CHECKING = False  # as in sfusion_tools/_lazy.py
if TYPE_CHECKING:
    from sfusion.fakes.proxy import FaultProxy
    from sfusion.fakes.sandbox import FakeSandbox
    from sfusion.fakes.sglang import FakeSGLang, FakeSGLangServer
    from sfusion.harness.core.journal import Journal
    from sfusion.harness.lab.promises import Verdict, check_promises
    from sfusion.harness.lab.runs import PromisesBroken, RunResult, run_scenario
    from sfusion.harness.lab.scenarios import Scenario, ScenarioError, read_scenarios
    from sfusion_tools._version import __version__

__all__ = [
    "FakeSGLang",
    "FakeSGLangServer",
    "FakeSandbox",
    "FaultProxy",
    "Journal",
    "PromisesBroken",
    "RunResult",
    "Scenario",
    "ScenarioError",
    "Verdict",
    "__version__",
    "check_promises",
    "read_scenarios",
    "run_scenario",
]

__getattr__ = on_first_use(
    __name__,
    {
        "sfusion.fakes.proxy": ["FaultProxy"],
        "sfusion.fakes.sandbox": ["FakeSandbox"],
        "sfusion.fakes.sglang": ["FakeSGLang", "FakeSGLangServer"],
        "sfusion.harness.core.journal": ["Journal"],
        "sfusion.harness.lab.promises": ["Verdict", "check_promises"],
        "sfusion.harness.lab.runs": ["PromisesBroken", "RunResult", "run_scenario"],
        "sfusion.harness.lab.scenarios": ["Scenario", "ScenarioError", "read_scenarios"],
        "sfusion_tools._version": ["__version__"],
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
