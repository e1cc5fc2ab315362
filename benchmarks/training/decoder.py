"""Small decoders, several side by side, so that many trainings share one pass on a GPU.

Every parameter has a first dimension of models; nothing passes from one model to another.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from .sizes import Size
from .vocabulary import TOKENS

SPREAD = 0.02
"""Standard deviation of fresh weights, as GPT-2 has it."""


class Norm(nn.Module):
    def __init__(self, models: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(models, 1, 1, width))
        self.shift = nn.Parameter(torch.zeros(models, 1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:]) * self.scale + self.shift


class Linear(nn.Module):
    def __init__(self, models: int, inner: int, outer: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(models, inner, outer))
        self.bias = nn.Parameter(torch.zeros(models, 1, outer))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1, 2)
        return torch.baddbmm(self.bias, flat, self.weight).view(*x.shape[:-1], -1)


class Block(nn.Module):
    def __init__(self, models: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = Norm(models, width)
        self.attention = Linear(models, width, 3 * width)
        self.out = Linear(models, width, width)
        self.norm_wide = Norm(models, width)
        self.widen = Linear(models, width, 4 * width)
        self.narrow = Linear(models, 4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        models, rows, length, width = x.shape
        shape = models * rows, length, self.heads, width // self.heads
        query, key, value = self.attention(self.norm_attention(x)).chunk(3, dim=-1)
        seen = functional.scaled_dot_product_attention(
            query.reshape(shape).transpose(1, 2),
            key.reshape(shape).transpose(1, 2),
            value.reshape(shape).transpose(1, 2),
            is_causal=True,
        )
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.widen(self.norm_wide(x))))


class Decoders(nn.Module):
    """Models of one size: learned places, pre-norm blocks, tied embeddings."""

    def __init__(self, size: Size, seeds: Sequence[int]) -> None:
        super().__init__()
        models = len(seeds)
        self.tokens = nn.Parameter(torch.empty(models, len(TOKENS), size.width))
        self.places = nn.Parameter(torch.empty(models, 1, size.length, size.width))
        blocks = [Block(models, size.width, size.heads) for _ in range(size.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = Norm(models, size.width)
        self._begin(seeds)

    @torch.no_grad()
    def _begin(self, seeds: Sequence[int]) -> None:
        """Draw the weights of each model by its own seed."""
        drawn = [value for name, value in self.named_parameters() if _is_drawn(name)]
        for model, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for value in drawn:
                value[model].normal_(std=SPREAD, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token at every place."""
        return self.logits(self.hidden(tokens))

    def hidden(self, tokens: Tensor) -> Tensor:
        model = torch.arange(len(tokens), device=tokens.device)[:, None, None]
        x = self.tokens[model, tokens] + self.places[:, :, : tokens.shape[2]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(len(hidden), -1, hidden.shape[-1])
        return torch.bmm(flat, self.tokens.transpose(1, 2)).view(*hidden.shape[:-1], -1)


def _is_drawn(name: str) -> bool:
    return name in ("tokens", "places") or name.endswith(".weight")


def autocast(device: str) -> torch.autocast:
    """Half precision on a GPU, full precision elsewhere."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


class Adam:
    """Adam with a rate for each model, and its gradient cut to length 1 for each model."""

    BETAS = 0.9, 0.999
    EPSILON = 1e-8
    """Both as in torch."""
    LONGEST = 1.0
    """Length to which a gradient is cut, as most trainers do."""

    def __init__(self, models: nn.Module, rates: Tensor) -> None:
        self._parameters = list(models.parameters())
        self._rates = rates
        self._first = [torch.zeros_like(value) for value in self._parameters]
        self._second = [torch.zeros_like(value) for value in self._parameters]
        self._step = 0

    @torch.no_grad()
    def step(self, factor: Tensor | float = 1.0) -> None:
        """Update by the gradients, at ``factor`` of the rates (one for each model, or one)."""
        self._step += 1
        squares = [value.grad.flatten(1).square().sum(1) for value in self._parameters]
        lengths = torch.stack(squares).sum(0).sqrt()
        cut = self.LONGEST / lengths.clamp(min=self.LONGEST)
        rates = self._rates * factor
        first_beta, second_beta = self.BETAS
        first_left = 1 - first_beta**self._step
        second_left = 1 - second_beta**self._step
        for place, value in enumerate(self._parameters):
            by_model = (-1, *[1] * (value.dim() - 1))
            gradient = value.grad * cut.view(by_model)
            self._first[place].lerp_(gradient, 1 - first_beta)
            self._second[place].lerp_(gradient.square(), 1 - second_beta)
            away = (self._second[place] / second_left).sqrt_().add_(self.EPSILON)
            value -= rates.view(by_model) * (self._first[place] / first_left) / away
            value.grad = None
