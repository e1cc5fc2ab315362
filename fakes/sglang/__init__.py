"""A fake sglang: an engine whose words come from a policy, and its HTTP server.

engine = FakeSGLang(Gsm8kSolver())
answer = await engine.async_generate("What is 2 + 2?", {"max_new_tokens": 64})
"""

from __future__ import annotations

from fakes.sglang.engine import FakeSGLang
from fakes.sglang.errors import BadScript, BadValue, EngineDown, FakeSGLangError, NothingToSay, Refused
from fakes.sglang.gsm8k import Gsm8kSolver
from fakes.sglang.latency import Latency
from fakes.sglang.misbehaving import Misbehaving
from fakes.sglang.problems import INSTRUCTION, SYSTEM_PROMPT, Problem, problems, prompts
from fakes.sglang.protocol import Ask, Finish, Policy, Reply, Step, ToolCall
from fakes.sglang.script import Script, Turn
from fakes.sglang.server import FakeSGLangServer
from fakes.sglang.state import Snapshot

__all__ = [
    "INSTRUCTION",
    "SYSTEM_PROMPT",
    "Ask",
    "BadScript",
    "BadValue",
    "EngineDown",
    "FakeSGLang",
    "FakeSGLangError",
    "FakeSGLangServer",
    "Finish",
    "Gsm8kSolver",
    "Latency",
    "Misbehaving",
    "NothingToSay",
    "Policy",
    "Problem",
    "Refused",
    "Reply",
    "Script",
    "Snapshot",
    "Step",
    "ToolCall",
    "Turn",
    "problems",
    "prompts",
]
