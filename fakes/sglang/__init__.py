"""A fake sglang: an engine whose text comes from a policy, and its HTTP server.

engine = FakeSGLang(Gsm8kSolver())
answer = await engine.async_generate("What is 2 + 2?", {"max_new_tokens": 64})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

from ..errors import BadScript, BadValue, EngineDown, EngineRefused, FakeSGLangError, NothingToSay
from .engine import FakeSGLang
from .policies import Gsm8kSolver, Misbehaving, ScriptedPolicy, ScriptedTurn
from .problems import INSTRUCTION, SYSTEM_PROMPT, WordProblem, problems, prompts
from .protocol import Ask, Finish, Policy, Reply, Step, ToolCall
from .state import EngineSnapshot, Latency

if TYPE_CHECKING:
    from .server import FakeSGLangServer

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


# To import the HTTP server takes as long as everything else together.
__getattr__ = _on_first_use(__name__, {"sfusion.fakes.sglang.server": ["FakeSGLangServer"]})
