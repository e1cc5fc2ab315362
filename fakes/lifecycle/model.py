"""How sandboxes live and die: the settings of a ledger, as a scenario's YAML has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sfusion_tools.errors import refusal

from ..described import described_fields
from ..errors import SandboxSetupError
from ..faults import Distribution, Seconds
from ..fields import NotHunted

_NO_HUNT = NotHunted("a hunt judges our own tool, which has no sandboxes of its own")
_AT_ONCE = Distribution.model_validate(0)
_WITHIN_A_MINUTE = Distribution.model_validate({"uniform": [0, 60]})


class Lifecycle(BaseModel):
    """A service of sandboxes; by default they start at once, and nothing ends them."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    kind: Literal["lifecycle"] = "lifecycle"
    boot: Annotated[Distribution, _NO_HUNT] = _AT_ONCE
    """How long a sandbox takes to start."""
    starting: Annotated[int | None, _NO_HUNT] = Field(default=None, ge=1)
    """How many may start at once; others wait for their turn, still pending."""
    live: Annotated[int | None, _NO_HUNT] = Field(default=None, ge=1)
    """How many may exist at once, pending and being deleted included; further creates are
    refused."""
    creates_per_second: Annotated[float | None, _NO_HUNT] = Field(default=None, gt=0)
    """Creates per second; further ones are refused."""
    burst: Annotated[int | None, _NO_HUNT] = Field(default=None, ge=1)
    """How many creates may come at once; by default one second's worth."""
    status: Annotated[int, _NO_HUNT] = Field(default=429, ge=400, le=599)
    """The status of a refused create."""
    retry_after: Annotated[Seconds | None, _NO_HUNT] = None
    """What a refused create is asked to wait; with creates_per_second, by default until the next
    create is possible."""
    ttl: Annotated[Seconds | None, _NO_HUNT] = None
    """How long a sandbox runs at most; a client may ask for less, and renew."""
    idle: Annotated[Seconds | None, _NO_HUNT] = None
    """After how long without use it ends; a command that runs is use."""
    delete_takes: Annotated[Distribution, _NO_HUNT] = _AT_ONCE
    """How long a delete takes; until then the sandbox counts as live."""
    dies: Annotated[float, _NO_HUNT] = Field(default=0.0, ge=0, le=1)
    """Share of sandboxes that die by themselves, whatever clients do."""
    dies_after: Annotated[Distribution, _NO_HUNT] = _WITHIN_A_MINUTE
    """When these die, counted from when they are ready."""

    def as_data(self) -> dict[str, Any]:
        """The model as it could be written in YAML, always with its kind."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"kind": self.kind}


def read_lifecycle(value: Any) -> Lifecycle:
    """Read a model: None, ``lifecycle``, or a mapping such as ``{boot: 2s, live: 16}``."""
    if isinstance(value, Lifecycle):
        return value
    if value is None or value == "lifecycle":
        return Lifecycle()
    try:
        return Lifecycle.model_validate(value)
    except ValidationError as error:
        wrong = refusal(error.errors()[0], described_fields(Lifecycle))
        raise SandboxSetupError(f"model lifecycle: {wrong}") from error
