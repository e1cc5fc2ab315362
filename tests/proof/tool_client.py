"""A tool class of the proof as a client under trial."""

from __future__ import annotations

import copy
from typing import Any

from sfusion.harness.lab.client import OF_ESTIMATORS, UNSET, Returned, Settings, TrialAsk
from sfusion.harness.lab.client import TAKES as ALL_TAKES
from sfusion.harness.lab.verl_tools import AgentData
from tests.reference_tool import GoodTool, PeerResponse

TAKES = frozenset(ALL_TAKES) - OF_ESTIMATORS - {"stdin", "files", "tests", "raises"}


class ToolClient:
    """Makes calls as verl's agent loop does."""

    def __init__(self, tool: type[GoodTool], *, states_outcomes: bool = True) -> None:
        self.takes = TAKES
        self._class, self._states = tool, states_outcomes
        self._made: set[str] = set()

    async def begin(self, settings: Settings) -> None:
        self._tool: Any = self._class(
            {
                "sandbox_fusion_url": list(settings.urls),
                "headers": dict(settings.headers),
                "rate_limit": settings.rate_limit or 10,
                "enable_global_rate_limit": settings.rate_limit is not None,
                "default_timeout": settings.default_timeout,
                "compile_timeout": settings.compile_timeout,
                "memory_limit_mb": settings.memory_limit_mb,
                "call_deadline": settings.deadline,
                "states_outcomes": self._states,
            }
        )

    async def call(self, ask: TrialAsk) -> Returned:
        tool, instance = self._tool, ask.instance or ask.call
        if ask.arguments is UNSET:
            arguments: Any = {"code": ask.code}
            arguments |= {} if ask.language == "python" else {"language": ask.language}
            arguments |= {} if ask.timeout is None else {"timeout": ask.timeout}
        else:
            arguments = copy.deepcopy(ask.arguments)
        before = copy.deepcopy(arguments)
        if instance not in self._made:
            self._made.add(instance)
            await tool.create(
                instance, ground_truth=ask.truth, create_kwargs={"ground_truth": ask.truth}
            )
        agent = AgentData(request_id=ask.call)
        agent.extra_fields["left_by"] = "another tool"
        try:
            response, step, metrics = PeerResponse(""), None, None
            if ask.executes:
                response, step, metrics = await tool.execute(
                    instance, arguments, call_id=ask.call, agent_data=agent
                )
            reward = await tool.calc_reward(instance) if ask.last else None
        finally:
            if ask.last:
                await tool.release(instance)
        altered = "" if arguments == before else f"{before} became {arguments}"
        if agent.extra_fields.get("left_by") != "another tool":
            altered = "what another tool had left in extra_fields is gone"
        fields = metrics if isinstance(metrics, dict) else {}
        if step is not None:
            fields["step_reward"] = step
        extras = agent.extra_fields.get("extras")
        if isinstance(extras, dict) and "outcome" in extras:
            fields["stated"] = extras["outcome"]
        return Returned(response.text, fields, reward, None, altered)

    async def end(self) -> None:
        await self._tool.aclose()

    def inside(self) -> Any:
        return self._tool
