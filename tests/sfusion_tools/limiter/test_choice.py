"""Which limiter a tool uses."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest

from sfusion_tools.errors import ConfigError
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.host import shared_host
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from tests.sfusion_tools.limiter.holding import take


class TestChoice:
    """Which limiter a tool uses."""

    async def test_tools_with_equal_settings_share_one_client_per_loop(self) -> None:
        choices = [LimiterChoice(LimiterSettings(2), kind="local", name="shared") for _ in range(2)]
        assert choices[0]() is choices[1]()

    def test_a_limiter_does_not_keep_its_loop_alive(self) -> None:
        choice = LimiterChoice(LimiterSettings(2), kind="local", name="loops come and go")

        async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
            async with choice().permit():
                return weakref.ref(asyncio.get_running_loop())

        loops = [asyncio.run(main()) for _ in range(3)]
        gc.collect()
        assert [loop() for loop in loops] == [None, None, None]

    async def test_auto_without_ray_warns_that_the_limit_holds_for_this_process_only(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            limiter = LimiterChoice(LimiterSettings(2), kind="auto", name="no ray here")()
        assert (await take(limiter)).id
        assert "holds for this process only" in caplog.text

    def test_limiter_ray_without_a_running_ray_is_refused_at_once(self) -> None:
        pytest.importorskip("ray")
        with pytest.raises(ConfigError, match=r"call ray\.init\(\) first"):
            LimiterChoice(LimiterSettings(2), kind="ray", name="x")

    @pytest.mark.parametrize("apply", [False, True])
    def test_different_settings_are_refused_or_applied_but_never_silently(
        self, apply: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = f"mismatch {apply}"
        shared_host(name, LimiterSettings(2), apply=False)
        with caplog.at_level(logging.WARNING):
            host = shared_host(name, LimiterSettings(50), apply=apply)
        assert host.settings.rate_limit == (50 if apply else 2)
        assert (
            "now it runs with rate_limit 50" if apply else "rate_limit 50 is NOT in force"
        ) in caplog.text
