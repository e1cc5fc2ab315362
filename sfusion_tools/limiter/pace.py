"""How many permits may be out, and how many may start per second; both follow from what happened.

No clock and no I/O: the time comes in as an argument.
"""

from __future__ import annotations


class Bucket:
    """A token bucket: ``rate`` tokens per second, at most ``size`` saved up.

    It starts full unless ``tokens`` is given.
    """

    def __init__(
        self, rate: float, size: int | None, *, now: float, tokens: float | None = None
    ) -> None:
        self.rate = rate
        self.size = float(size if size is not None else max(1, int(rate)))
        self.tokens = self.size if tokens is None else min(tokens, self.size)
        self.filled_at = now
        """The time for which ``tokens`` was computed last."""

    def take(self, now: float) -> bool:
        """Take one token; return False if there is none."""
        self._fill(now)
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def ready_at(self, now: float) -> float:
        """When the next token will be available."""
        self._fill(now)
        if self.tokens >= 1.0:
            return now
        return now + (1.0 - self.tokens) / self.rate

    def _fill(self, now: float) -> None:
        if now > self.filled_at:
            tokens = min(self.size, self.tokens + (now - self.filled_at) * self.rate)
            # Rounding: a float sum a hair below a whole token must not postpone a grant for ever.
            self.tokens = round(tokens, 9)
            self.filled_at = now


class Width:
    """The number of permits of an adaptive limit, between 1 and ``ceiling``.

    Successes add to it, a 429 multiplies it. A burst of 429s counts once: after narrowing, further
    ones are ignored for ``COOLDOWN_SECONDS``.
    """

    # All three are chosen: back off fast, and come back by one permit per round of successes. The
    # cooldown is as long as many programs run, so that the 429s of one overload count as one.
    NARROW_TO = 0.7
    WIDEN_BY = 1.0
    COOLDOWN_SECONDS = 1.0

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.value = float(ceiling)
        """The width, with the fraction of a permit that successes have added so far."""
        self.cooldown_until = float("-inf")

    @property
    def permits(self) -> int:
        return max(1, min(self.ceiling, int(self.value)))

    def throttled(self, now: float) -> bool:
        """Count a 429; return True if it narrowed the width."""
        if now < self.cooldown_until:
            return False
        before = self.permits
        # From the whole number of permits, not the fraction gained since: otherwise int() could
        # hide a narrowing.
        self.value = max(1.0, min(before * self.NARROW_TO, before - 1.0))
        self.cooldown_until = now + self.COOLDOWN_SECONDS
        return self.permits < before

    def succeeded(self, count: int) -> None:
        """Count successes, about one width of which widens by one."""
        self.value = min(float(self.ceiling), self.value + self.WIDEN_BY * count / self.value)

    def set_ceiling(self, ceiling: int) -> None:
        """Set the upper bound.

        A width at the old bound follows it up, and any width follows it down.
        """
        at_top = self.permits >= self.ceiling
        self.ceiling = ceiling
        self.value = float(ceiling) if at_top else min(self.value, float(ceiling))
