"""What keeps a limiter below its in-flight limit: a token bucket per second, and adaptation to 429."""

from __future__ import annotations


class Bucket:
    """A token bucket: ``rate`` tokens per second, at most ``size`` saved up; starts full unless ``tokens`` is given."""

    def __init__(self, rate: float, size: int | None, *, now: float, tokens: float | None = None) -> None:
        self.rate = rate
        self.size = float(size if size is not None else max(1, int(rate)))
        self._tokens = self.size if tokens is None else min(tokens, self.size)
        self._filled_at = now

    def take(self, now: float) -> bool:
        """Take one token; return False if there is none."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def ready_at(self, now: float) -> float:
        """When the next token will be available."""
        self._fill(now)
        return now if self._tokens >= 1.0 else now + (1.0 - self._tokens) / self.rate

    def _fill(self, now: float) -> None:
        if now > self._filled_at:
            tokens = min(self.size, self._tokens + (now - self._filled_at) * self.rate)
            # Rounding: a float sum a hair below a whole token must not postpone a grant for ever.
            self._tokens = round(tokens, 9)
            self._filled_at = now


class Width:
    """Additive increase, multiplicative decrease of the number of permits, between 1 and ``ceiling``.

    A burst of 429s counts once: after narrowing, further ones are ignored for ``COOLDOWN_SECONDS``.
    """

    NARROW_TO = 0.7
    WIDEN_BY = 1.0
    COOLDOWN_SECONDS = 1.0

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self._width = float(ceiling)
        self._cooldown_until = float("-inf")

    @property
    def permits(self) -> int:
        return max(1, min(self.ceiling, int(self._width)))

    def throttled(self, now: float) -> bool:
        """Count a 429; return True if it narrowed the width."""
        if now < self._cooldown_until:
            return False
        before = self.permits
        # From the whole number of permits, not the fraction gained since: otherwise int() could hide a narrowing.
        self._width = max(1.0, min(before * self.NARROW_TO, before - 1.0))
        self._cooldown_until = now + self.COOLDOWN_SECONDS
        return self.permits < before

    def succeeded(self, count: int) -> bool:
        """Count successes, about one width of which widens by one; return True if it did."""
        before = self.permits
        self._width = min(float(self.ceiling), self._width + self.WIDEN_BY * count / self._width)
        return self.permits > before

    def set_ceiling(self, ceiling: int) -> None:
        """Set the upper bound; a width at the old bound follows it up, and any width follows it down."""
        at_top = self.permits >= self.ceiling
        self.ceiling = ceiling
        self._width = float(ceiling) if at_top else min(self._width, float(ceiling))
