"""The tool that runs a model's code in Sandbox Fusion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from types import MethodType
from typing import Any

from sfusion_tools.base_tool import TrajectoryTool
from sfusion_tools.limiter import PermitSource
from sfusion_tools.outcome import Outcome
from sfusion_tools.runner import CodeRunner, Parts, in_shared_loop
from sfusion_tools.sandbox.arguments import BadArguments, offered_languages, read_arguments
from sfusion_tools.sandbox.client import OnEvent
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.guard import SandboxGuard
from sfusion_tools.sandbox.inherited import ExecutionPool, calling, followed, give_up_permit
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import plain
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse, text_tool

EXTRAS = "extras"
KEY = "sfusion"
"""Where verl's trainer finds the calls of a trajectory.

verl's agent loop drops the metrics of a call. What a tool leaves in ``extra_fields`` of the
trajectory reaches the reward function (in its ``extra_info``) and the batch (in
``non_tensor_batch``). Only the key ``extras`` is safe there: verl puts it into every batch, while a
key of our own would be missing from a worker in which no tool was called, and verl cannot
concatenate batches whose keys differ.
"""
MEASURED = ("attempts", "permit_wait_s", "backoff_s", "total_s")
"""The metrics of each call that are kept beside its outcome, each in a list of its own."""

_VERL_TRACE = "verl.utils.rollout_trace"

CODE_INTERPRETER = text_tool(
    "code_interpreter", "A tool for executing code.", "code", "The code to execute."
)


class _Instance(dict[str, Any]):
    """A trajectory, with the keys that subclasses of verl's tool use, and its last call."""

    __slots__ = ("group", "number", "outcome", "scored", "stdout")

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.number = 0
        self.outcome: Outcome | None = None
        """None until the call has ended."""
        self.scored = False
        """The last call failed, but counts as a failed program."""
        self.stdout = ""
        self.group: str | None = None

    @classmethod
    def of(cls, ground_truth: str | None) -> _Instance:
        return cls({"response": "", "ground_truth": ground_truth, "reward": []})

    def begin(self) -> int:
        """Begin a call, which is the last one from now on; return its number."""
        self.number += 1
        self.outcome = None
        return self.number

    def end(self, number: int, result: CallResult) -> None:
        if number == self.number:
            self.outcome = result.outcome
            self.scored = result.scored
            self.stdout = result.stdout


class _Setting:
    """A key of the config as an attribute, as on verl's tool.

    Setting it takes effect from the next call on.
    """

    def __set_name__(self, owner: type[SandboxFusionTool], name: str) -> None:
        self._name = name

    def __get__(self, tool: SandboxFusionTool | None, owner: type[SandboxFusionTool]) -> Any:
        return self if tool is None else getattr(tool.settings, self._name)

    def __set__(self, tool: SandboxFusionTool, value: Any) -> None:
        tool._configure({**tool.config, self._name: value})


class SandboxFusionTool(TrajectoryTool[_Instance]):
    """Runs code for many trajectories at once, under the cluster's limiter.

    It never hides how a call ended.
    """

    default_schema = CODE_INTERPRETER

    num_workers = _Setting()
    rate_limit = _Setting()
    default_timeout = _Setting()
    default_language = _Setting()
    memory_limit_mb = _Setting()
    enable_global_rate_limit = _Setting()
    sandbox_fusion_url = _Setting()

    def __init__(
        self,
        config: dict[str, Any],
        tool_schema: OpenAIFunctionToolSchema | None = None,
        *,
        limiter: Callable[[], PermitSource | None] | None = None,
        on_event: OnEvent | None = None,
        fleet: Fleet | None = None,
        guard: Callable[[], SandboxGuard] | None = None,
    ) -> None:
        """Read the config; nothing is connected yet.

        ``limiter`` and ``guard`` return those of the running loop, instead of the ones the config
        chooses. An ``on_event`` that raises is logged once and does not affect the call. ``fleet``
        is the state of the sandboxes if it is not to be that of this process.
        """
        super().__init__(config, tool_schema, _Instance.of)
        self._parts = Parts(limiter=limiter, on_event=on_event, fleet=fleet, guard=guard)
        self._overridden = type(self).execute_code is not SandboxFusionTool.execute_code
        verl = sys.modules.get(_VERL_TRACE)
        if verl is not None and type(self).execute is SandboxFusionTool.execute:
            self.execute = MethodType(_traced(verl.rollout_trace_op), self)  # type: ignore[method-assign]
        self._configure(config)

    def _configure(self, config: dict[str, Any]) -> None:
        self.settings = SandboxToolConfig.read(config, f"{type(self).__name__} {self.name!r}")
        self.config = config
        self._languages = offered_languages(self.settings, self.tool_schema.function.parameters)
        self.runner = CodeRunner(
            self.settings, name=self.name, languages=self._languages, parts=self._parts
        )
        """Runs this tool's programs; ``score`` takes it too."""
        self.client = self.runner.client

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.execute is not SandboxFusionTool.execute:
            cls.execute = followed(cls.execute)  # type: ignore[method-assign]

    @cached_property
    def execution_pool(self) -> Any:
        """The pool as subclasses of verl's tool use it.

        ``await self.execution_pool.execute.remote(fn, …)``
        """
        ours = SandboxFusionTool.execute_code

        def direct(fn: Any) -> Any:
            is_ours = getattr(fn, "__func__", None) is ours
            return fn.__self__._execute_code if is_ours else None

        return ExecutionPool(lambda: self.client.permit(), direct)

    def execute_code(
        self, instance_id: str, code: str, timeout: float | None = None, language: str | None = None
    ) -> ToolResponse:
        """Run code and block until it has ended.

        For subclasses, which may override it as on verl's tool.
        """
        give_up_permit()
        return in_shared_loop(self._execute_code(instance_id, code, timeout, language))

    async def _execute_code(
        self, instance_id: str, code: str, timeout: float | None = None, language: str | None = None
    ) -> ToolResponse:
        arguments = {"code": code, "timeout": timeout, "language": language}
        return (await self._call(instance_id, arguments))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the configuration is pickled: connections and trajectories stay in this process.
        return type(self), (self.config, self.tool_schema)

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Begin a trajectory.

        ``group_id``, given as ``ground_truth`` is, names the siblings of its prompt.
        """
        made = await super().create(instance_id, **kwargs)
        nested = kwargs.get("create_kwargs")
        group = kwargs.get("group_id")
        if isinstance(nested, dict):
            group = nested.get("group_id", group)
        if group is not None:
            self._instance_dict[made[0]].group = str(group)
        return made

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Run the code of one call, named ``call_id`` if the caller gives one.

        The metrics say how it ended, so that a trainer can leave out what was not the program's
        doing.
        verl drops them, so the call is also counted in the ``agent_data`` that verl passes.
        """
        if self._overridden:
            return await self._execute_overridden(instance_id, parameters, **kwargs)  # type: ignore[no-any-return]
        response, metrics = await self._call(
            instance_id, parameters, kwargs.get("call_id"), kwargs.get("agent_data")
        )
        return response, None, metrics

    @followed
    async def _execute_overridden(self, instance_id: str, parameters: Any, **kwargs: Any) -> Any:
        """Do as verl's tool does: call ``execute_code``, which a subclass has overridden."""
        try:
            program, _ = read_arguments(parameters, self.settings, self._languages)
        except BadArguments:
            return (await self._call(instance_id, parameters))[0], None, None
        result = await self.execution_pool.execute.remote(
            self.execute_code, instance_id, program.code, program.timeout, program.language
        )
        if not hasattr(result, "text"):
            result = ToolResponse(text=None if result is None else str(result))
        return result, None, None

    async def _call(
        self, instance_id: str, parameters: Any, call_id: str | None = None, agent_data: Any = None
    ) -> tuple[ToolResponse, dict[str, Any]]:
        instance: Any = self._instance_dict.get(instance_id)
        if type(instance) is dict:  # made by a subclass
            instance = self._instance_dict[instance_id] = _Instance(instance)
        number = instance.begin() if instance is not None else 0
        caller = calling.get()
        if caller is not None and agent_data is None:
            agent_data = caller.agent_data
        # verl makes an instance for each call; its agent data name the trajectory.
        trajectory = getattr(agent_data, "request_id", instance_id)
        group = None if instance is None else instance.group
        result = await self.runner.call(
            parameters, call_id=call_id, trajectory=trajectory, group=group
        )
        if instance is not None:
            instance.end(number, result)
        metrics = result.metrics()
        if caller is not None:
            caller.metrics = metrics
        if agent_data is not None:
            count_call(agent_data, metrics)
        return ToolResponse(text=result.text), metrics

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | list[float] | None:
        """Return 1.0 if the program that started last printed the ground truth, else 0.0.

        As verl's tool, return an empty list if there is nothing to judge: no ground truth, or no
        call. None if the last call failed for reasons that are not the program's.
        """
        instance: Any = self._instance_dict.get(instance_id)
        if instance is not None and instance.get("reward"):
            return instance["reward"]  # type: ignore[no-any-return] # put there by a subclass
        if not isinstance(instance, _Instance):
            return []
        if instance.get("ground_truth") is None or instance.number == 0:
            return []
        if instance.outcome is None:
            return None
        if instance.outcome.is_infrastructure and not instance.scored:
            return None
        printed = plain(instance.stdout).strip()
        is_right = printed == str(instance["ground_truth"]).strip()
        return float(instance.outcome is Outcome.OK and is_right)

    async def aclose(self) -> None:
        """Close this loop's connections; the end of the loop closes them too."""
        await self.runner.aclose()


@cache
def _traced(rollout_trace_op: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``execute`` as verl's own tools have it.

    It is in the traces of weave, mlflow or trackio if they are on.
    """
    return rollout_trace_op(SandboxFusionTool.execute)  # type: ignore[no-any-return]


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
    if KEY not in extras:
        extras[KEY] = {
            "trajectory": metrics.get("trajectory"),
            "calls": 0,
            "infrastructure": 0,
            "outcomes": [],
            **{name: [] for name in MEASURED},
        }
    counts = extras[KEY]
    counts["calls"] += 1
    counts["infrastructure"] += metrics["infrastructure"]
    counts["outcomes"].append(metrics["outcome"])
    for name in MEASURED:
        counts[name].append(metrics[name])
