"""The public names: those that verl's users know stay importable, and each package exports what it
says."""

from __future__ import annotations

import importlib
import types

import pytest

from sfusion_tools.sandbox.config import SandboxToolConfig

NAMES_THAT_STAY = {
    "sfusion_tools.schemas": [
        "OpenAIFunctionCallSchema",
        "OpenAIFunctionParametersSchema",
        "OpenAIFunctionParsedSchema",
        "OpenAIFunctionPropertySchema",
        "OpenAIFunctionSchema",
        "OpenAIFunctionToolCall",
        "OpenAIFunctionToolSchema",
        "ToolResponse",
    ],
    "sfusion_tools.base_tool": ["BaseTool"],
    "sfusion_tools.gsm8k_tool": ["Gsm8kTool"],
    "sfusion_tools.sandbox_fusion_tools": [
        "ExecutionWorker",
        "PoolMode",
        "SandboxFusionTool",
        "TokenBucketWorker",
        "init_execution_pool",
    ],
    "sfusion_tools.tool_registry": ["initialize_tools_from_config"],
    "sfusion_tools.utils.tool_registry": ["initialize_tools_from_config"],
    "sfusion_tools.rollout": [
        "AsyncRolloutRequest",
        "AsyncRolloutRequestStateEnum",
        "FinishReasonTypeEnum",
        "Message",
    ],
}
"""The names of verl's original design and of its users' configs: design.md, "Names that stay"."""

PACKAGES = [
    "sfusion_tools",
    "sfusion_tools.formats",
    "sfusion_tools.limiter",
    "sfusion_tools.rollout",
    "sfusion_tools.sandbox",
    "sfusion_tools.tokenizers",
    "sfusion_tools.utils",
]


@pytest.mark.parametrize(
    ("module", "name"), [(m, n) for m, names in NAMES_THAT_STAY.items() for n in names]
)
def test_names_from_verls_design_can_be_imported(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_the_states_of_a_rollout_request_keep_their_names() -> None:
    from sfusion_tools.rollout import AsyncRolloutRequestStateEnum

    states = ["PENDING", "RUNNING", "TOOL_CALLING", "INTERACTING", "COMPLETED", "FAILED"]
    assert list(AsyncRolloutRequestStateEnum.__members__) == states


def test_the_config_keys_of_verls_original_design_keep_their_defaults() -> None:
    config = SandboxToolConfig(num_workers=10, sandbox_fusion_url="http://127.0.0.1:1/run_code")
    assert (config.rate_limit, config.default_timeout, config.default_language) == (
        10,
        30,
        "python",
    )
    assert (config.enable_global_rate_limit, config.memory_limit_mb) == (True, 1024)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_exactly_what_it_lists(package: str) -> None:
    """What it only uses is not exported. Ruff keeps the lists sorted."""
    module = importlib.import_module(package)
    listed = getattr(module, "__all__", [])
    assert all(hasattr(module, name) for name in listed)
    ours = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type | types.FunctionType) and value.__module__.startswith(package)
    }
    assert {name for name in ours if not name.startswith("_")} <= set(listed)


def test_an_unknown_name_raises_attribute_error() -> None:
    import sfusion_tools

    with pytest.raises(AttributeError, match="has no attribute 'Tool'"):
        _ = sfusion_tools.Tool
    assert dir(sfusion_tools) == sfusion_tools.__all__
