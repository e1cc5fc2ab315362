"""The tool that runs a model's code in Sandbox Fusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sfusion_tools.base_tool import TrajectoryTool
from sfusion_tools.event_log import EventLogSettings
from sfusion_tools.limiter import Limiter
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.arguments import BadArguments, offered_languages, read_arguments
from sfusion_tools.sandbox.call_log import CallLog
from sfusion_tools.sandbox.client import Event, SandboxClient
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.ray_metrics import counted_call
from sfusion_tools.sandbox.result import CallResult, new_call_id
from sfusion_tools.sandbox.shared_guard import SandboxGuard, shared_guard
from sfusion_tools.sandbox.text import model_text, plain
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse, text_tool

EXTRAS, KEY = "extras", "sfusion"
"""Where verl's trainer finds the calls of a trajectory.

verl's agent loop drops the metrics of a call. What a tool leaves in ``extra_fields`` of the trajectory reaches the
reward function (in its ``extra_info``) and the batch (in ``non_tensor_batch``). Only the key ``extras`` is safe there:
verl puts it into every batch, while a key of our own would be missing from a worker in which no tool was called, and
verl cannot concatenate batches whose keys differ.
"""
MEASURED = ("attempts", "permit_wait_s", "backoff_s", "total_s")
"""The metrics of each call that are kept beside its outcome, each in a list of its own."""

CODE_INTERPRETER = text_tool("code_interpreter", "A tool for executing code.", "code", "The code to execute.")


@dataclass(slots=True)
class _LastCall:
    ground_truth: str | None
    number: int = 0
    outcome: Outcome | None = None
    """None until the call has ended."""
    stdout: str = ""

    def begin(self) -> int:
        """Begin a call, which is the last one from now on; return its number."""
        self.number, self.outcome = self.number + 1, None
        return self.number

    def end(self, number: int, result: CallResult) -> None:
        if number == self.number:
            self.outcome, self.stdout = result.outcome, result.stdout


class _Setting:
    """A key of the config as an attribute, as on verl's tool; setting it takes effect from the next call on."""

    def __set_name__(self, owner: type[SandboxFusionTool], name: str) -> None:
        self._name = name

    def __get__(self, tool: SandboxFusionTool | None, owner: type[SandboxFusionTool]) -> Any:
        return self if tool is None else getattr(tool.settings, self._name)

    def __set__(self, tool: SandboxFusionTool, value: Any) -> None:
        tool._configure({**tool.config, self._name: value})


class SandboxFusionTool(TrajectoryTool[_LastCall]):
    """Runs code for many trajectories at once, under the cluster's limiter, and never hides how a call ended."""

    default_schema = CODE_INTERPRETER

    num_workers, rate_limit, default_timeout = _Setting(), _Setting(), _Setting()
    default_language, memory_limit_mb = _Setting(), _Setting()
    enable_global_rate_limit, sandbox_fusion_url = _Setting(), _Setting()

    def __init__(
        self,
        config: dict[str, Any],
        tool_schema: OpenAIFunctionToolSchema | None = None,
        *,
        limiter: Callable[[], Limiter | None] | None = None,
        on_event: Event | None = None,
        fleet: Fleet | None = None,
        guard: Callable[[], SandboxGuard] | None = None,
    ) -> None:
        """``limiter`` and ``guard`` return those of the running loop, instead of the ones the config chooses.

        An ``on_event`` that raises is logged once and does not affect the call. ``fleet`` is the state of the
        sandboxes if it is not to be that of this process.
        """
        super().__init__(config, tool_schema, _LastCall)
        self._on_event = on_event
        self._limiter = limiter
        self._fleet = fleet
        self._guard = guard
        self._configure(config)

    def _configure(self, config: dict[str, Any]) -> None:
        self.settings = settings = SandboxToolConfig.read(config, f"{type(self).__name__} {self.name!r}")
        self.config = config
        self._languages = offered_languages(settings, self.tool_schema.function.parameters)
        event_log = settings.event_log or EventLogSettings.of_environment()
        self._call_log = None if event_log is None else CallLog(event_log, self.name)
        limiter = self._limiter or LimiterChoice(
            settings.limits,
            kind=settings.limiter,
            name=settings.limiter_name,
            apply=settings.rate_limit_mismatch == "apply",
            share=settings.share,
        )
        guard = self._guard
        if guard is None and settings.guard is not None:
            guard = shared_guard(settings.guard, settings.sandbox_fusion_url, settings.headers)
        self.client = SandboxClient(
            settings.sandbox_fusion_url,
            limiter=limiter if settings.enable_global_rate_limit else lambda: None,
            retry=settings.retry,
            bounds=settings.bounds,
            headers=settings.headers,
            trust_proxy_env=settings.trust_proxy_env,
            on_event=self._on_event,
            fleet=self._fleet,
            guard=guard,
            call_log=self._call_log,
        )
        """Runs this tool's programs, under its limiter and its guard; ``judge`` takes it too."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the configuration is pickled: connections and trajectories stay in this process.
        return type(self), (self.config, self.tool_schema)

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Run the code of one call, named ``call_id`` if the caller gives one.

        The metrics say how it ended, so that a trainer can mask what was not the program's doing. verl drops them,
        so the call is also counted in the ``agent_data`` that verl passes.
        """
        last = self._trajectories.get(instance_id)
        number = last.begin() if last is not None else 0
        call_id = str(kwargs.get("call_id") or new_call_id())
        timeout, remark = self.settings.default_timeout, ""
        result = CallResult(call_id, Outcome.CANCELLED)
        with counted_call(self.name, result, on=self.settings.ray_metrics):
            try:
                program, remark = read_arguments(parameters, self.settings, self._languages)
            except BadArguments as error:
                result.outcome, result.message, result.problem = Outcome.BAD_ARGUMENTS, str(error), error.problem
                if self._call_log is not None:
                    self._call_log.malformed(call_id, error)
            else:
                timeout = program.timeout
                await self.client.run(program, result=result)
        if last is not None:
            last.end(number, result)
        metrics = result.metrics()
        if (agent_data := kwargs.get("agent_data")) is not None:
            count_call(agent_data, metrics)
        text = model_text(result, self.name, timeout=timeout, limit=self.settings.max_output_chars, note=remark)
        return ToolResponse(text=text), None, metrics

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | list[float] | None:
        """Return 1.0 if the program that started last printed the ground truth, else 0.0.

        As verl's tool, return an empty list if there is nothing to judge: no ground truth, or no call. None if the last
        call failed for reasons that are not the program's.
        """
        last = self._trajectories.get(instance_id)
        if last is None or last.ground_truth is None or last.number == 0:
            return []
        if last.outcome is None or last.outcome.is_infrastructure:
            return None
        return float(last.outcome is Outcome.OK and plain(last.stdout).strip() == last.ground_truth.strip())

    async def aclose(self) -> None:
        """Close this loop's connections; the end of the loop closes them too."""
        await self.client.aclose()


def count_call(agent_data: Any, metrics: Mapping[str, Any]) -> None:
    """Add a call to ``extra_fields["extras"]["sfusion"]``; ignore what is not verl's agent data."""
    fields = getattr(agent_data, "extra_fields", None)
    if not isinstance(fields, dict):
        return
    extras = fields.get(EXTRAS)
    if extras is None:
        extras = fields[EXTRAS] = {}
    if not isinstance(extras, dict):
        return  # set by someone else first
    lists: dict[str, list[Any]] = {name: [] for name in ("outcomes", *MEASURED)}
    counts = extras.setdefault(KEY, {"calls": 0, "infrastructure": 0, **lists})
    counts["calls"] += 1
    counts["infrastructure"] += metrics["infrastructure"]
    counts["outcomes"].append(metrics["outcome"])
    for name in MEASURED:
        counts[name].append(metrics[name])
