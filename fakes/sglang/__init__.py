"""A fake sglang: an engine whose text comes from a policy, and its HTTP server.

engine = FakeSGLang(Gsm8kSolver())
answer = await engine.async_generate("What is 2 + 2?", {"max_new_tokens": 64})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

# Not on first use: `problems` is also the name of its module.
from .problems import INSTRUCTION, SYSTEM_PROMPT, WordProblem, problems, prompts

if TYPE_CHECKING:
    from ..errors import (
        BadScript,
        BadValue,
        EngineDown,
        EngineRefused,
        FakeSGLangError,
        NothingToSay,
    )
    from .engine import FakeSGLang
    from .policies import Gsm8kSolver, Misbehaving, ScriptedPolicy, ScriptedTurn
    from .protocol import Ask, Finish, Policy, Reply, Step, ToolCall
    from .server import FakeSGLangServer
    from .state import EngineSnapshot, Latency

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


# Scenario files are read with one module of this package; the engine and its server need many.
__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.fakes.errors": [
            "BadScript",
            "BadValue",
            "EngineDown",
            "EngineRefused",
            "FakeSGLangError",
            "NothingToSay",
        ],
        "sfusion.fakes.sglang.engine": ["FakeSGLang"],
        "sfusion.fakes.sglang.policies": [
            "Gsm8kSolver",
            "Misbehaving",
            "ScriptedPolicy",
            "ScriptedTurn",
        ],
        "sfusion.fakes.sglang.protocol": ["Ask", "Finish", "Policy", "Reply", "Step", "ToolCall"],
        "sfusion.fakes.sglang.state": ["EngineSnapshot", "Latency"],
        "sfusion.fakes.sglang.server": ["FakeSGLangServer"],
    },
)
