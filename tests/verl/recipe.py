"""Subclasses of the tool as verl's recipes write them, derived from our class and from verl's where
it has one."""

from __future__ import annotations

import re
from typing import Any

from verl.utils.rollout_trace import rollout_trace_op

from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.verl.releases import NEW


class Recipe:
    """Takes code out of its fence and prints its last line, through the pool of its base."""

    default_timeout: Any
    default_language: Any
    execution_pool: Any
    execute_code: Any
    _instance_dict: Any

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        super().__init__(config, tool_schema)  # type: ignore[call-arg]
        self.fenced = re.compile(r"```python\n(.*?)```", re.DOTALL)

    @rollout_trace_op
    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        code = parameters["code"]
        if found := self.fenced.findall(code):
            code = found[0].strip()
        *before, last = code.split("\n")
        if not last.startswith("print"):
            last = f"print({last})"
        code = "\n".join([*before, last])
        timeout = parameters.get("timeout", self.default_timeout)
        language = parameters.get("language", self.default_language)
        self._instance_dict[instance_id]["response"] = code
        result = await self.execution_pool.execute.remote(
            self.execute_code, instance_id, code, timeout, language
        )
        return result, None, None

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> Any:
        return len(self._instance_dict[instance_id]["response"])


class Bracketing:
    """Overrides ``execute_code`` and calls the one of its base."""

    def execute_code(
        self, instance_id: str, code: str, timeout: float = 30, language: str = "python"
    ) -> str:
        answer: Any = super().execute_code(instance_id, code, timeout, language)  # type: ignore[misc]
        return f"<{answer.text}>"


class OurRecipe(Recipe, SandboxFusionTool): ...


class OurBracketing(Bracketing, SandboxFusionTool): ...


BASES: dict[str, tuple[Any, Any]] = {"ours": (OurRecipe, OurBracketing)}

if not NEW:
    from verl.tools.sandbox_fusion_tools import SandboxFusionTool as VerlTool

    class VerlRecipe(Recipe, VerlTool): ...

    class VerlBracketing(Bracketing, VerlTool): ...

    BASES["verl's"] = VerlRecipe, VerlBracketing
