"""A fake sglang: an engine whose text comes from a policy, and its HTTP server.

engine = FakeSGLang(Gsm8kSolver())
answer = await engine.async_generate("What is 2 + 2?", {"max_new_tokens": 64})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfusion.fakes.errors import BadScript, BadValue, EngineDown, EngineRefused, FakeSGLangError, NothingToSay
from sfusion.fakes.sglang.engine import FakeSGLang
from sfusion.fakes.sglang.policies import Gsm8kSolver, Misbehaving, ScriptedPolicy, ScriptedTurn
from sfusion.fakes.sglang.problems import INSTRUCTION, SYSTEM_PROMPT, WordProblem, problems, prompts
from sfusion.fakes.sglang.protocol import Ask, Finish, Policy, Reply, Step, ToolCall
from sfusion.fakes.sglang.state import EngineSnapshot, Latency

if TYPE_CHECKING:
    from sfusion.fakes.sglang.server import FakeSGLangServer

__all__ = [
    "INSTRUCTION",
    "SYSTEM_PROMPT",
    "Ask",
    "BadScript",
    "BadValue",
    "EngineDown",
    "EngineRefused",
    "EngineSnapshot",
    "FakeSGLang",
    "FakeSGLangError",
    "FakeSGLangServer",
    "Finish",
    "Gsm8kSolver",
    "Latency",
    "Misbehaving",
    "NothingToSay",
    "Policy",
    "Reply",
    "ScriptedPolicy",
    "ScriptedTurn",
    "Step",
    "ToolCall",
    "WordProblem",
    "problems",
    "prompts",
]


def __getattr__(name: str) -> Any:
    """Import the HTTP server on first use: that takes as long as everything else together."""
    if name == "FakeSGLangServer":
        from sfusion.fakes.sglang.server import FakeSGLangServer

        return FakeSGLangServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
