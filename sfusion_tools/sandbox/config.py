"""The configuration of SandboxFusionTool.

A test compares the table in docs/tool.md with these fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sfusion_tools.errors import ConfigError, near
from sfusion_tools.event_log import EventLogSettings
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.settings import DEFAULT_LEASE, DEFAULT_RATE_LIMIT
from sfusion_tools.sandbox.endpoints import normalise_url
from sfusion_tools.sandbox.guard import GuardSettings
from sfusion_tools.sandbox.program import LANGUAGES, RUNNABLE, Bounds
from sfusion_tools.sandbox.retry import RetryPolicy

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = ("headers", "sandbox_fusion_url")
"""Keys whose values are not shown in errors: they may contain passwords."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]


_SECTIONS: dict[Any, type[BaseModel]] = {
    "guard": GuardSettings,
    "event_log": EventLogSettings,
}
"""Keys whose values are mappings."""


class SandboxToolConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["native"] = Field("native", description="kind of tool in verl; always native")
    sandbox_fusion_url: str | list[str] = Field(
        description=(
            "address of the sandbox, with or without /run_code; a list spreads "
            "calls over several sandboxes"
        )
    )
    num_workers: Count = Field(
        10, description="accepted but ignored: calls run in the caller's event loop"
    )
    rate_limit: Count = Field(
        DEFAULT_RATE_LIMIT, description="attempts in flight at once, in the whole cluster"
    )
    enable_global_rate_limit: bool = Field(True, description="false: no limiter")
    default_timeout: Seconds = Field(
        30.0, description="seconds a program may run if the model sets no timeout"
    )
    max_timeout: Seconds = Field(
        60.0, description="longest timeout a model may set (never below default_timeout)"
    )
    default_language: str = Field("python", description="language if the model sets none")
    languages: list[str] | None = Field(
        None,
        description=(
            "other languages that the model may choose; null: those of the "
            "schema's parameter `language`"
        ),
    )
    memory_limit_mb: int = Field(
        1024, description="memory limit sent with each program; -1 for no limit"
    )
    compile_timeout: Seconds = Field(
        10.0, description="seconds for compilation, in compiled languages"
    )
    limiter: Literal["auto", "ray", "host", "local"] = Field(
        "auto",
        description=(
            "where the limit is kept: ray for the cluster, host for all processes of this machine, "
            "local for this process; auto means ray if it is running, else local"
        ),
    )
    limiter_name: str = Field(
        "rate-limiter", description="tools with the same name share one limiter"
    )
    limiter_share: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description=(
            "a name for the calls of this job: while permits are scarce, all shares of one "
            "limiter get equally many"
        ),
    )
    rate_limit_mismatch: Literal["warn", "apply"] = Field(
        "warn",
        description="if a limiter of that name has other limits: keep them and warn, or apply ours",
    )
    permit_lease: Seconds = Field(
        DEFAULT_LEASE, description="seconds after which the permits of a dead process return"
    )
    requests_per_second: Seconds | None = Field(
        None, description="attempts started per second, in addition to rate_limit"
    )
    requests_burst: Count | None = Field(
        None, description="how many of them may start at once after an idle period"
    )
    adaptive_rate_limit: bool = Field(
        False, description="go below rate_limit on 429 and up again on success"
    )
    max_attempts: Count = Field(
        6,
        description=(
            "most HTTP requests for one call, without those answered with 429 and "
            "Retry-After; 1: no retries"
        ),
    )
    backoff_base: Seconds = Field(
        0.5, description="first pause between attempts; doubles, with jitter"
    )
    backoff_cap: Seconds = Field(8.0, description="longest pause, unless Retry-After asks for more")
    retry_may_have_run: bool = Field(
        True,
        description=(
            "also retry when the code may have run: after 500, 502, 504, a lost connection, "
            "a timeout, a SandboxError or an answer that cannot be used"
        ),
    )
    transport_margin: Seconds = Field(
        10.0, description="seconds an attempt may take beyond the program's own time"
    )
    call_deadline: Seconds | None = Field(
        None,
        description=(
            "seconds for all attempts and pauses of a call, not counting the wait for a permit; "
            "null: twice an attempt plus 10 s"
        ),
    )
    queue_timeout: Seconds | None = Field(
        600.0, description="seconds to wait for a permit; null: no limit"
    )
    total_timeout: Seconds | None = Field(
        None,
        description=(
            "seconds for a whole call, waits for permits and pauses included; null: no limit"
        ),
    )
    max_response_mb: Seconds = Field(16.0, description="largest answer that is read, in MB")
    max_output_chars: Count = Field(
        20_000, description="longest program output shown to the model; more is cut in the middle"
    )
    guard: GuardSettings | None = Field(
        None,
        description=(
            "what to do when the sandbox fails too often, see [The guard](#the-guard); "
            "null: nothing"
        ),
    )
    event_log: EventLogSettings | None = Field(
        None,
        description=(
            "path of a log of every call, or a mapping, see "
            "[the event log](journal.md#the-event-log); null: none"
        ),
    )
    ray_metrics: bool = Field(
        True,
        description=(
            "pass metrics on to Ray if it runs in this process, else to prometheus_client if that "
            "is imported, see [metrics.md](metrics.md)"
        ),
    )
    score_provoked: bool = Field(
        False,
        description=(
            "count a call as a failed program, not as lost, if all its attempts failed while "
            "other programs succeeded on the same sandboxes, see "
            "[below](#failures-that-a-program-can-cause)"
        ),
    )
    tracing: bool = Field(
        False,
        description=(
            "make OpenTelemetry spans of calls, waits for permits and attempts (extra `otel`)"
        ),
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="HTTP headers sent with each request, never logged"
    )
    trust_proxy_env: bool = Field(
        True,
        description=(
            "use the proxy variables of the environment, with a warning; never for loopback"
        ),
    )

    @field_validator("sandbox_fusion_url")
    @classmethod
    def _urls(cls, value: str | list[str]) -> str | list[str]:
        if not value:
            raise ConfigError(
                "sandbox_fusion_url is empty; give the address of a Sandbox Fusion server"
            )
        for url in [value] if isinstance(value, str) else value:
            normalise_url(url)
        return value

    @field_validator("event_log", mode="before")
    @classmethod
    def _event_log(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("default_language")
    @classmethod
    def _language(cls, value: str) -> str:
        if value not in LANGUAGES:
            raise ConfigError(
                f"{value!r} is not a language of Sandbox Fusion; {near(value, LANGUAGES)}"
            )
        return value

    @field_validator("languages")
    @classmethod
    def _languages(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if name not in RUNNABLE:
                raise ConfigError(
                    f"{name!r} is not a language that can be offered; {near(name, RUNNABLE)}"
                )
        return value

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _TOKEN.fullmatch(name):
                raise ConfigError(f"headers: {name!r} is not the name of a header")
            if any(character in text for character in "\r\n\0"):
                raise ConfigError(
                    f"headers: the value of {name!r} contains a line break or a NUL character"
                )
        return value

    @model_validator(mode="after")
    def _combinations(self) -> SandboxToolConfig:
        if self.requests_burst is not None and self.requests_per_second is None:
            raise ConfigError(
                "requests_burst is set but requests_per_second is not; it has no meaning without it"
            )
        if isinstance(self.sandbox_fusion_url, str):
            urls = [self.sandbox_fusion_url]
        else:
            urls = self.sandbox_fusion_url
        if any(name.lower() == "authorization" for name in self.headers) and any(
            urlsplit(url).username for url in urls
        ):
            raise ConfigError(
                "sandbox_fusion_url contains a user name and headers an Authorization; "
                "a request carries only one of them"
            )
        return self

    @property
    def longest_timeout(self) -> float:
        """The longest timeout a model can get."""
        return max(self.max_timeout, self.default_timeout)

    @property
    def limits(self) -> LimiterSettings:
        return LimiterSettings(
            rate_limit=self.rate_limit,
            lease=self.permit_lease,
            per_second=self.requests_per_second,
            burst=self.requests_burst,
            adaptive=self.adaptive_rate_limit,
        )

    @property
    def share(self) -> str:
        """The share of the limiter; empty for the common one."""
        return self.limiter_share or ""

    @property
    def retry(self) -> RetryPolicy:
        return RetryPolicy(
            self.max_attempts, self.backoff_base, self.backoff_cap, self.retry_may_have_run
        )

    @property
    def bounds(self) -> Bounds:
        return Bounds(
            margin=self.transport_margin,
            deadline=self.call_deadline,
            queue=self.queue_timeout,
            response_bytes=int(self.max_response_mb * 2**20),
            total=self.total_timeout,
        )

    @classmethod
    def read(cls, config: dict[str, Any], owner: str) -> SandboxToolConfig:
        """Validate a config section.

        The error names the owner, each wrong key and the nearest known one.
        """
        try:
            return cls.model_validate(config)
        except ValidationError as error:
            raise ConfigError(_problem_text(owner, error, cls.model_fields)) from None


def _problem_text(owner: str, error: ValidationError, known: Any) -> str:
    """Describe everything that is wrong with a config."""
    sentences = [_sentence(problem, known) for problem in error.errors()]
    return f"{owner}: " + "; ".join(dict.fromkeys(sentences))


def _sentence(problem: Any, known: Any) -> str:
    """Describe one problem that pydantic found."""
    place = problem["loc"] or ("config",)
    first = place[0]
    key = _key(place)
    found = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            is_nested = len(place) > 1 and first in _SECTIONS
            keys = _SECTIONS[first].model_fields if is_nested else known
            return f"unknown key {key!r}; {near(str(place[-1]), keys)}"
        case "model_type":
            fields = ", ".join(_SECTIONS[first].model_fields)
            return f"{key} must be a mapping with any of {fields}; found {found!r}"
        case "missing":
            needed = known[key].description if key in known else "it is required"
            return f"{key} is missing: {needed}"
        case "value_error":
            reason = str(problem["ctx"]["error"])
            names_key = not problem["loc"] or str(first) in reason
            return reason if names_key else f"{key}: {reason}"
        case _:
            shown = type(found).__name__ if first in _SECRET else repr(found)
            return f"{key}: {problem['msg']}, found {shown}"


def _key(place: Sequence[Any]) -> str:
    """Return the key of a problem: after it, pydantic lists the alternatives of its type."""
    parts = [str(part) for part in place]
    nested = [part for part in parts[1:] if part != "str" and not part.startswith("list[")]
    return ".".join([parts[0], *nested])
