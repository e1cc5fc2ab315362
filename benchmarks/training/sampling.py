"""Trajectories of many models: they write, their calls are answered, they read on.

No cache of keys and values: texts are short, and a row that waits for its tool is only longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .conditions import Condition
from .decoder import Decoders, autocast
from .sandbox import Reply
from .sizes import Size
from .stacks import Asked, Stacks
from .tasks import LOOKS, Problem
from .vocabulary import ANSWER, CALL_END, END, ID, OTHER, PAD, RESULT, RESULT_END, decode, encode


@dataclass(slots=True)
class Trajectory:
    """One sample: what was asked and written, and what became of its calls."""

    problem: Problem
    group: int
    tokens: list[int]
    written: list[bool]
    """Which tokens the model wrote."""
    replies: list[Reply] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        """Was its last call lost?"""
        return bool(self.replies) and self.replies[-1].lost

    @property
    def calls(self) -> bool:
        """Does it wait for its tool?"""
        return self.tokens[-1] == ID[CALL_END] and len(self.replies) < LOOKS

    @property
    def score(self) -> float:
        _, found, answer = decode(self.tokens).rpartition(ANSWER)
        return float(bool(found) and answer == str(self.problem.answer))

    def write(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.written += [True] * len(tokens)

    def read(self, reply: Reply) -> None:
        """Add what the tool answered. Only plain numbers have tokens of their own."""
        self.replies.append(reply)
        text = encode(reply.text) if reply.text.isdecimal() else [ID[OTHER]]
        shown = [ID[RESULT], *text, ID[RESULT_END]]
        self.tokens += shown
        self.written += [False] * len(shown)


LONGEST_READ = 8
"""Tokens of a result with what surrounds it, and one to answer."""
Rows = list[list[Trajectory]]
"""Of each model; all models have equally many."""


def begin(problems: Sequence[Problem], group: int, first: str | None = None) -> list[Trajectory]:
    """Return trajectories with their prompts, ``group`` of each; ``first`` is written for them."""
    started: list[Trajectory] = []
    for place, problem in enumerate(problems):
        tokens = encode(problem.prompt)
        if first is not None:
            tokens.append(ID[first])
        for _ in range(group):
            started.append(Trajectory(problem, place, list(tokens), [False] * len(tokens)))
    return started


def play(
    models: Decoders,
    size: Size,
    rows: Rows,
    conditions: Sequence[Condition],
    step: int,
    stacks: Stacks,
    generator: torch.Generator,
    device: str,
) -> None:
    """Let all trajectories end: write, call, read the results, and write on."""
    going = [[True] * len(mine) for mine in rows]
    for _ in range(LOOKS + 1):
        write(models, size, rows, going, generator, device)
        going = [
            [_may_call(each, size, was) for each, was in zip(*pair, strict=True)]
            for pair in zip(rows, going, strict=True)
        ]
        asked: dict[int, Asked] = {}
        for number, (mine, calling) in enumerate(zip(rows, going, strict=True)):
            texts = [
                decode(each.tokens) for each, calls in zip(mine, calling, strict=True) if calls
            ]
            if texts:
                asked[number] = (conditions[number], step, texts)
        if not asked:
            return
        replies = stacks.answer(asked)
        for number, told in replies.items():
            waiting = [
                each for each, calls in zip(rows[number], going[number], strict=True) if calls
            ]
            for trajectory, reply in zip(waiting, told, strict=True):
                trajectory.read(reply)


def _may_call(trajectory: Trajectory, size: Size, was_going: bool) -> bool:
    return was_going and trajectory.calls and len(trajectory.tokens) + LONGEST_READ < size.length


@torch.no_grad()
def write(
    models: Decoders,
    size: Size,
    rows: Rows,
    going: Sequence[Sequence[bool]],
    generator: torch.Generator,
    device: str,
) -> None:
    """Let the models write until each row ends, calls its tool, or is full."""
    padded = [
        [each.tokens + [ID[PAD]] * (size.length - len(each.tokens)) for each in mine]
        for mine in rows
    ]
    tokens = torch.tensor(padded, device=device)
    ends = torch.tensor([[len(each.tokens) for each in mine] for mine in rows], device=device)
    active = torch.tensor(going, device=device) & (ends < size.length)
    model = torch.arange(tokens.shape[0], device=device)[:, None]
    row = torch.arange(tokens.shape[1], device=device)[None, :]
    most = int(torch.where(active, ends, 0).max())
    for width in range(max(1, most), size.length + 1):
        seen = tokens[:, :, :width]
        last = (ends - 1).clamp(max=width - 1)
        with autocast(device):
            logits = models.logits(models.hidden(seen)[model, row, last][:, :, None])
        chances = logits.float().softmax(-1).flatten(0, 2)
        drawn = torch.multinomial(chances, 1, generator=generator).view(ends.shape)
        place = ends.clamp(max=size.length - 1)
        tokens[model, row, place] = torch.where(active, drawn, tokens[model, row, place])
        ends = ends + active.long()
        stops = (drawn == ID[END]) | (drawn == ID[CALL_END])
        active = active & ~stops & (ends < size.length)
        if not bool(active.any()):
            break

    texts = tokens.tolist()
    for number, lengths in enumerate(ends.tolist()):
        for trajectory, text, end in zip(rows[number], texts[number], lengths, strict=True):
            trajectory.write(text[len(trajectory.tokens) : end])


def batch_of(rows: Rows, device: str) -> tuple[Tensor, Tensor]:
    """Return the tokens of all rows, and which of them the models wrote."""
    width = max(len(each.tokens) for mine in rows for each in mine)
    tokens = [
        [each.tokens + [ID[PAD]] * (width - len(each.tokens)) for each in mine] for mine in rows
    ]
    written = [
        [each.written + [False] * (width - len(each.tokens)) for each in mine] for mine in rows
    ]
    return torch.tensor(tokens, device=device), torch.tensor(written, device=device)
