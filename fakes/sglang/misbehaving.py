"""A policy whose tool calls get worse: more of them are malformed at later training steps."""

from __future__ import annotations

from collections.abc import Sequence

from sfusion.fakes.sglang.gsm8k import Gsm8kSolver
from sfusion.fakes.sglang.keyed_digest import Key, digest, draw, pick, whole
from sfusion.fakes.sglang.malformed import MalformedText, kinds, malformed
from sfusion.fakes.sglang.protocol import Ask, Finish, Policy, Reply
from sfusion_tools.errors import near


class Misbehaving:
    """A policy that makes the calls of another one malformed.

    At a step, ``rate + slope * step`` of the turns that call a tool (at most ``ceiling``) are malformed, each in one of
    the ways of the catalogue. Which turns depends on the seed and the conversation: a turn that is malformed at one
    step is malformed at every later one.
    """

    def __init__(
        self,
        inner: Policy | None = None,
        *,
        rate: float = 0.05,
        slope: float = 0.01,
        ceiling: float = 1.0,
        only: Sequence[str] | None = None,
    ) -> None:
        for name, value in (("rate", rate), ("ceiling", ceiling)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, found {value}")
        unknown = sorted(set(only or ()) - set(kinds()))
        if unknown:
            raise ValueError(f"there is no kind of malformed text called {unknown[0]!r}: {near(unknown[0], kinds())}")
        self.inner = inner or Gsm8kSolver()
        self.rate = rate
        self.slope = slope
        self.ceiling = ceiling
        self.kinds = tuple(only or kinds())

    def rate_at(self, step: int) -> float:
        """Return the share of turns that are malformed at a step."""
        return max(0.0, min(self.ceiling, self.rate + self.slope * step))

    def reply(self, ask: Ask) -> Reply:
        good = self.inner.reply(ask)
        if not good.calls:
            return good
        keys: tuple[Key, ...] = (ask.seed, "misbehave", digest(str(ask.messages)), ask.sample)
        # The key stays as it is: it decides which turns of a seed are malformed.
        if draw(*keys, "spoilt") >= self.rate_at(ask.step):
            return good
        bad = self._spoiled(ask.format, keys)
        if bad is None:
            return good
        finish = None if bad.finish_reason == "stop" else Finish(bad.finish_reason)
        # Kinds that are about thinking include their own; the others follow the good thinking.
        own_thought = bad.kind in ("call_in_think", "draft_then_call", "unclosed_think", "unclosed_think_alone")
        return Reply(bad.text if own_thought else good.text + bad.text, finish=finish)

    def _spoiled(self, form: str, keys: tuple[Key, ...]) -> MalformedText | None:
        left = list(self.kinds)
        while left:
            kind = pick(left, *keys, "kind", len(left))
            bad = malformed(kind, form, whole(0, 2**31, *keys, "text"))
            if bad is not None:
                return bad
            left.remove(kind)  # the kind makes no sense in this format
        return None
