"""The user side of a conversation, for rollouts in which a simulated user answers the model."""

from __future__ import annotations

from typing import Any, Protocol


class Interaction(Protocol):
    """A simulated user, with the same interface as verl's."""

    async def start_interaction(self, instance_id: str, **kwargs: Any) -> Any: ...

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float | None, dict[str, Any]]:
        """Return whether the conversation is over, what the user says, a score of the turn, and metrics."""
        ...

    async def finalize_interaction(self, instance_id: str) -> None: ...
