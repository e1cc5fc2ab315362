"""The two things that slow a limiter down below its in-flight limit: a bucket per second, and adaptation."""

from __future__ import annotations


class Bucket:
    """A token bucket: ``rate`` tokens per second, at most ``size`` saved up. It starts with ``tokens``."""

    def __init__(self, rate: float, size: int | None, *, now: float, tokens: float | None = None) -> None:
        self.rate = rate
        self.size = float(size if size is not None else max(1, int(rate)))
        self._tokens = self.size if tokens is None else min(tokens, self.size)
        self._filled_at = now

    def take(self, now: float) -> bool:
        """Take one token if there is one."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def ready_at(self, now: float) -> float:
        """When the next token will be there."""
        self._fill(now)
        return now if self._tokens >= 1.0 else now + (1.0 - self._tokens) / self.rate

    def _fill(self, now: float) -> None:
        if now > self._filled_at:
            tokens = min(self.size, self._tokens + (now - self._filled_at) * self.rate)
            # A hair below a whole token is a whole one: sums of floats must not postpone a grant for ever.
            self._tokens = round(tokens, 9)
            self._filled_at = now


class Width:
    """Additive increase, multiplicative decrease of how many permits are given out, between 1 and ``ceiling``.

    A burst of 429s is one piece of news: after narrowing, further ones are not counted for ``NEWS_SECONDS``.
    """

    NARROW_TO = 0.7
    WIDEN_BY = 1.0
    NEWS_SECONDS = 1.0

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self._width = float(ceiling)
        self._deaf_until = float("-inf")

    @property
    def permits(self) -> int:
        """How many permits may be out now."""
        return max(1, min(self.ceiling, int(self._width)))

    def throttled(self, now: float) -> bool:
        """The sandbox answered 429; True when that narrowed the width."""
        if now < self._deaf_until:
            return False
        before = self.permits
        # From where we really are, not from the fraction gained since: else int() could eat a narrowing.
        self._width = max(1.0, min(before * self.NARROW_TO, before - 1.0))
        self._deaf_until = now + self.NEWS_SECONDS
        return self.permits < before

    def succeeded(self, count: int) -> bool:
        """That many attempts went well; about one width of them widens by one. True when it did."""
        before = self.permits
        self._width = min(float(self.ceiling), self._width + self.WIDEN_BY * count / self._width)
        return self.permits > before

    def set_ceiling(self, ceiling: int) -> None:
        """A new limit from outside: a width that stood at the old one follows it up, any width follows it down."""
        at_top = self.permits >= self.ceiling
        self.ceiling = ceiling
        self._width = float(ceiling) if at_top else min(self._width, float(ceiling))
