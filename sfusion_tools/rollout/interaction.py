"""The user side of a conversation, for rollouts in which somebody answers the model."""

from __future__ import annotations

from typing import Any, Protocol


class Interaction(Protocol):
    """Somebody who talks to the model; verl's interface."""

    async def start_interaction(self, instance_id: str, **kwargs: Any) -> Any:
        """Begin a conversation."""
        ...

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float | None, dict[str, Any]]:
        """Whether it is over, what the user says, a score of the turn, and metrics."""
        ...

    async def finalize_interaction(self, instance_id: str) -> None:
        """End a conversation."""
        ...
