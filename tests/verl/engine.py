"""The only stand-in of these tests: the fake sglang with a policy, instead of an engine on a
GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.workers.rollout.replica import TokenOutput

from sfusion.fakes.sglang import FakeSGLang, Policy
from sfusion_tools.tokenizers import HfTokenizer


class Engine:
    """Has the only method that verl calls on its server managers and server actors."""

    def __init__(self, model: Path, policy: Policy) -> None:
        self._fake = FakeSGLang(policy, format="hermes", tokenizer=HfTokenizer(model))
        self.prompts: list[str] = []
        """The prompt of each turn."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.prompts.append(self._fake.tokenizer.decode(prompt_ids))
        answer = await self._fake.async_generate(
            input_ids=list(prompt_ids), sampling_params={"max_new_tokens": 2048}
        )
        return TokenOutput(token_ids=answer["output_ids"], stop_reason="completed")
