"""Tools of an MCP server, for the registry: ``config: {type: mcp, server: …}``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sfusion_tools._loops import in_own_loop
from sfusion_tools.base_tool import BaseTool
from sfusion_tools.errors import ConfigError, LimiterError, import_extra, near, refusal
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.runtime import LoopResource, runtime
from sfusion_tools.sandbox.result import new_call_id
from sfusion_tools.sandbox.text import FAILED, REFUSED, cut_middle, plain
from sfusion_tools.sandbox.tool import count_call
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse

_INVALID_PARAMS = -32602
_CONNECTION_CLOSED = -32000
"""Codes of JSON-RPC and of MCP's SDK."""


class McpCommand(BaseModel):
    """A server that is started as a process and talks over its standard streams."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] | None = Field(None, repr=False)


class McpToolConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["mcp"] = "mcp"
    server: str | McpCommand = Field(
        description="address of a server (Streamable HTTP), or `{command: …, args: […]}`"
    )
    tools: list[str] | None = Field(None, description="which of its tools; null: all")
    timeout: Annotated[float, Field(gt=0)] = Field(
        60.0, description="seconds for a call, its permit not included"
    )
    rate_limit: Annotated[int, Field(ge=1)] | None = Field(
        None, description="calls in flight at once; null: no limit"
    )
    limiter: Literal["auto", "ray", "host", "local"] = Field(
        "auto", description="where the limit is kept"
    )
    limiter_name: str = Field("mcp", description="tools with the same name share one limiter")
    max_output_chars: Annotated[int, Field(ge=1)] = Field(
        20_000, description="longest text shown to the model"
    )

    @classmethod
    def read(cls, config: dict[str, Any]) -> McpToolConfig:
        try:
            return cls.model_validate(config)
        except ValidationError as error:
            problems = [refusal(problem, cls.model_fields) for problem in error.errors()]
            wrong = "; ".join(problems)
            raise ConfigError(f"config of type mcp: {wrong}") from None


class McpTool(BaseTool):
    """One tool of a server.

    A failure of the server, or of the way to it, never looks like an answer of the tool.
    """

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        super().__init__(config, tool_schema)
        self.settings = settings = McpToolConfig.read(config)
        self._limiter: Callable[[], Any] = lambda: None
        if settings.rate_limit is not None:
            limits = LimiterSettings(settings.rate_limit)
            self._limiter = LimiterChoice(limits, kind=settings.limiter, name=settings.limiter_name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config, self.tool_schema)

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Call the tool once: a server may change something outside, so nothing is repeated."""
        started = asyncio.get_running_loop().time()
        if isinstance(parameters, dict):
            outcome, text = await self._call(parameters)
        else:
            outcome = Outcome.BAD_ARGUMENTS
            text = f"[{self.name}] {REFUSED}the arguments must be a JSON object"
        metrics = {
            "call_id": new_call_id(),
            "outcome": outcome.value,
            "infrastructure": outcome.is_infrastructure,
            "attempts": int(outcome is not Outcome.BAD_ARGUMENTS),
            "permit_wait_s": 0.0,
            "backoff_s": 0.0,
            "total_s": asyncio.get_running_loop().time() - started,
        }
        agent_data = kwargs.get("agent_data")
        if agent_data is not None:
            count_call(agent_data, metrics)
        return ToolResponse(text=text), None, metrics

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> None:
        return None

    async def _call(self, parameters: dict[str, Any]) -> tuple[Outcome, str]:
        mcp = _sdk()
        limiter = self._limiter()
        try:
            async with limiter.permit() if limiter is not None else nullcontext():
                result = await self._ask(parameters)
        except mcp.MCPError as error:
            if error.code == _INVALID_PARAMS:
                return Outcome.BAD_ARGUMENTS, f"[{self.name}] {REFUSED}{plain(error.message)[:300]}"
            if error.code == _CONNECTION_CLOSED:
                return self._failure(Outcome.UNREACHABLE, "the connection to its server was lost")
            # The SDK also reports a connection that was refused in this way.
            return self._failure(Outcome.SANDBOX_ERROR, "its server failed or could not be reached")
        except TimeoutError:
            return self._failure(Outcome.TRANSPORT_TIMEOUT, "its server did not answer in time")
        except LimiterError:
            return self._failure(Outcome.THROTTLED, "there was no permit for it")
        except Exception:  # whatever the SDK and its transports raise when a connection is lost
            return self._failure(Outcome.UNREACHABLE, "its server could not be reached")
        text = "\n".join(part.text for part in result.content if part.type == "text")
        outcome = Outcome.PROGRAM_ERROR if result.is_error else Outcome.OK
        told = result.structured_content
        if isinstance(told, dict) and told.get("outcome") in OUTCOMES:  # a server of ours
            outcome = OUTCOMES[told["outcome"]]
        return outcome, cut_middle(plain(text), self.settings.max_output_chars)

    async def _ask(self, parameters: dict[str, Any]) -> Any:
        session = runtime.scope().get(
            (_Session, self.settings.server), lambda: _Session(self.settings.server)
        )
        async with asyncio.timeout(self.settings.timeout):
            client = await session.client()
            try:
                return await client.call_tool(self.name, parameters)
            except Exception as error:
                if getattr(error, "code", None) != _INVALID_PARAMS:
                    await session.aclose()  # the next call connects again
                raise

    def _failure(self, outcome: Outcome, why: str) -> tuple[Outcome, str]:
        return (
            outcome,
            f"[{self.name}] {FAILED}{outcome.value}: {why}). The call may have had an effect.",
        )


class _Session(LoopResource):
    """The connection of one loop to a server, held open by a task.

    The SDK opens and closes in one task only.
    """

    def __init__(self, server: str | McpCommand) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Any] | None = None

    async def client(self) -> Any:
        if self._client is None or self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._client = loop.create_future()
            self._task = loop.create_task(self._hold(self._client), name="sfusion mcp")
        return await asyncio.shield(self._client)

    async def _hold(self, ready: asyncio.Future[Any]) -> None:
        try:
            async with _client(self._server) as client:
                ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
                ready.exception()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task
        self.abandon()

    def abandon(self) -> None:
        self._task = self._client = None


def tools_of(config: dict[str, Any]) -> list[McpTool]:
    """Connect to the server and return its tools, or those that the config names. This blocks."""
    settings = McpToolConfig.read(config)
    mcp = _sdk()

    async def schemas() -> list[Any]:
        async with asyncio.timeout(settings.timeout), _client(settings.server) as client:
            return (await client.list_tools()).tools  # type: ignore[no-any-return]

    try:
        found = {tool.name: tool for tool in in_own_loop(schemas())}
    except (mcp.MCPError, OSError, TimeoutError, ExceptionGroup) as error:
        where = settings.server if isinstance(settings.server, str) else settings.server.command
        reason: BaseException = error
        while isinstance(reason, BaseExceptionGroup):  # the SDK wraps what it meets
            reason = reason.exceptions[0]
        raise ConfigError(
            f"the MCP server {where} cannot be asked for its tools: {reason}"
        ) from error
    for name in settings.tools or ():
        if name not in found:
            raise ConfigError(f"the MCP server has no tool {name!r}; {near(name, found)}")
    return [McpTool(config, _schema(found[name])) for name in settings.tools or found]


def _schema(tool: Any) -> OpenAIFunctionToolSchema:
    parameters = {"properties": {}, **tool.input_schema}
    function = {"name": tool.name, "description": tool.description or "", "parameters": parameters}
    return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})


def _sdk() -> Any:
    return import_extra("mcp", extra="mcp", needed_by="tools of type mcp")


def _client(server: str | McpCommand) -> Any:
    mcp = _sdk()
    if isinstance(server, str):
        return mcp.Client(server)
    return mcp.Client(
        mcp.StdioServerParameters(command=server.command, args=list(server.args), env=server.env)
    )
