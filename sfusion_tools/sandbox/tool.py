"""The tool that runs a model's code in Sandbox Fusion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sfusion_tools.base_tool import BaseTool, create_argument
from sfusion_tools.limiter import Limiter
from sfusion_tools.limiter.choice import LimiterChoice
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.arguments import BadArguments, read_arguments
from sfusion_tools.sandbox.client import Event, SandboxClient
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import model_text, plain
from sfusion_tools.sandbox.trajectory import note_ending
from sfusion_tools.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    ToolResponse,
)

CODE_INTERPRETER = OpenAIFunctionToolSchema(
    type="function",
    function=OpenAIFunctionSchema(
        name="code_interpreter",
        description="A tool for executing code.",
        parameters=OpenAIFunctionParametersSchema(
            type="object",
            properties={"code": OpenAIFunctionPropertySchema(type="string", description="The code to execute.")},
            required=["code"],
        ),
        strict=False,
    ),
)
"""The schema used when a config gives none."""


@dataclass(slots=True)
class _Instance:
    ground_truth: str | None = None
    last_outcome: Outcome | None = None
    last_stdout: str = ""


class SandboxFusionTool(BaseTool):
    """Runs code for many trajectories at once, under the cluster's limiter, and never hides how a call ended."""

    def __init__(
        self,
        config: dict[str, Any],
        tool_schema: OpenAIFunctionToolSchema | None = None,
        *,
        limiter: Callable[[], Limiter | None] | None = None,
        on_event: Event | None = None,
    ) -> None:
        """``limiter`` gives the limiter of the running loop in place of the one that the config chooses."""
        super().__init__(config, tool_schema)
        self.settings = SandboxToolConfig.read(config, f"{type(self).__name__} {self.name!r}")
        self._on_event = on_event
        self._limiter = limiter
        self._instances: dict[str, _Instance] = {}
        self._client = self._make_client()

    def _make_client(self) -> SandboxClient:
        settings = self.settings
        limiter = self._limiter or LimiterChoice(
            settings.limits,
            kind=settings.limiter,
            name=settings.limiter_name,
            apply=settings.rate_limit_mismatch == "apply",
        )
        return SandboxClient(
            settings.sandbox_fusion_url,
            limiter=limiter if settings.enable_global_rate_limit else lambda: None,
            retry=settings.retry,
            bounds=settings.bounds,
            headers=settings.headers,
            trust_proxy_env=settings.trust_proxy_env,
            on_event=self._on_event,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # What travels to another process is the recipe: connections and trajectories stay where they are.
        return type(self), (self.config, self.tool_schema)

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        """The schema of the config, or our own."""
        return super().get_openai_tool_schema() or CODE_INTERPRETER

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begin a trajectory; with a ``ground_truth`` its last output is judged by calc_reward."""
        instance_id = instance_id or uuid4().hex
        truth = create_argument(kwargs, "ground_truth")
        self._instances[instance_id] = _Instance(None if truth is None else str(truth))
        return instance_id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Run the code of one call. The third value says how it ended, so that a trainer can mask what was not
        the program's doing; verl drops that value, so it is noted in the ``agent_data`` that verl passes, too.
        A caller that has a name for the call gives it as ``call_id``."""
        call_id = str(kwargs.get("call_id") or uuid4().hex)
        timeout, remark = self.settings.default_timeout, ""
        try:
            program, remark = read_arguments(parameters, self.settings)
        except BadArguments as error:
            result = CallResult(call_id, Outcome.BAD_ARGUMENTS, str(error))
        else:
            timeout = program.timeout
            result = await self._client.run(program, call_id=call_id)
        instance = self._instances.get(instance_id)
        if instance is not None:
            instance.last_outcome, instance.last_stdout = result.outcome, result.stdout
        note_ending(kwargs.get("agent_data"), result.outcome)
        text = model_text(result, self.name, timeout=timeout, limit=self.settings.max_output_chars, note=remark)
        return ToolResponse(text=text), None, result.metrics()

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        """1.0 when the last program printed the ground truth, else 0.0; None when there is nothing to judge by,
        or when the last call failed for reasons that are not the program's."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.ground_truth is None or instance.last_outcome is None:
            return None
        if instance.last_outcome.is_infrastructure:
            return None
        hit = (
            instance.last_outcome is Outcome.OK and plain(instance.last_stdout).strip() == instance.ground_truth.strip()
        )
        return float(hit)

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget a trajectory."""
        self._instances.pop(instance_id, None)

    async def aclose(self) -> None:
        """Close this loop's connections; the end of the loop does it too."""
        await self._client.aclose()
