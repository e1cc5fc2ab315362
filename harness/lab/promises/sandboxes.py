"""Promises about sandboxes that live and die: each is created once, and deleted whatever
happens."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ....fakes.faults import Seconds
from ...core.sandbox_lives import SandboxLife, SandboxLives, SandboxRequest
from .episodes import Found, _OfEpisodes

_SERVER_ERROR = 500
_FIRST_STEP = "s1"
_OVER = ("ttl", "idle")
"""Deaths by the settings of a sandbox."""
_ROUNDED = 1e-6
"""Seconds by which a time in the journal may be early: it has six digits."""


class EverySandboxDeleted(_OfEpisodes):
    """Every sandbox that a client knows of is deleted, also if its episode is cancelled or fails:
    at the end none lives for which no delete came. The process of a client may be killed, so that
    nobody is left to delete: then a sandbox must end by itself within `after_kill`."""

    sentences: ClassVar = {
        "left": "sandbox {instance} of {episode} lives at the end, and no delete came for it",
        "outlives": (
            "the client of {episode} was killed: nobody deletes sandbox {instance}, and it does "
            "not end by itself within {bound:g} s"
        ),
        "held": "{judged} sandboxes, each deleted or over",
        "nothing": "no client learnt of a sandbox",
    }

    after_kill: Seconds = Field(
        3600.0, description="how long a sandbox may live on if its client is killed"
    )

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for life in facts.lives.values():
            if life.was_lost and not life.uses:
                continue  # that is `no_orphan_after_lost_create`
            if life.has_ended or life.deletes:
                yield None
                continue
            owner = facts.episodes.get(facts.owner_of(life))
            if owner is None or not owner.was_killed:
                yield self.broken("left", [life.created], **_about(facts, life))
            elif life.ends_within(self.after_kill):
                yield None
            else:
                about = {**_about(facts, life), "bound": self.after_kill}
                yield self.broken("outlives", [life.created, owner.ended or {}], **about)


class NoOrphanAfterLostCreate(_OfEpisodes):
    """A sandbox whose create seemed to fail is deleted or adopted, unless its TTL is at most
    `within`: a 504, a cut connection or a cancelled request says nothing about its effect."""

    scalar = "within"
    sentences: ClassVar = {
        "orphan": (
            "the create of sandbox {instance} for {episode} had its effect but no good answer; at "
            "the end it lives, and nobody has used or deleted it"
        ),
        "held": "{judged:create} had an effect and no good answer, and left no orphan",
        "nothing": "no create had an effect without a good answer",
    }

    within: Seconds = Field(
        600.0, description="a sandbox that ends by itself within this time is no orphan"
    )

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for life in facts.lives.values():
            if not life.was_lost:
                continue
            is_short = life.ends_within(self.within)
            if life.has_ended or life.deletes or life.uses or is_short:
                yield None
                continue
            evidence = [life.created]
            if life.request is not None and life.request.ended is not None:
                evidence.append(life.request.ended)
            yield self.broken("orphan", evidence, **_about(facts, life))


class CreateOnce(_OfEpisodes):
    """An episode has one sandbox (or `at_most`): a create that is sent again has the same name or
    key, or adopts what the first one made."""

    scalar = "at_most"
    sentences: ClassVar = {
        "several": "{episode} had {times} sandboxes, at most {bound} promised",
        "held": "{judged:episode} with a sandbox, none with more than promised",
        "nothing": "no sandbox is known to be of an episode",
    }

    at_most: int = Field(1, ge=1, description="maximum number of sandboxes of one episode")

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for episode in facts.episodes:
            lives = facts.lives_of(episode)
            if not lives:
                continue
            if len(lives) <= self.at_most:
                yield None
                continue
            times = {"times": len(lives), "bound": self.at_most}
            yield self.broken("several", [life.created for life in lives], episode=episode, **times)


class DeadNeverReplaced(_OfEpisodes):
    """An episode whose sandbox died never goes on in another one, which has none of its files: it
    ends, or begins again with its first step."""

    sentences: ClassVar = {
        "replaced": (
            "sandbox {instance} of {episode} died ({why}), and step {step} then ran in {other}, "
            "which is blank"
        ),
        "held": "{judged} sandboxes died under an episode, none replaced by a blank one",
        "nothing": "no sandbox died under its episode",
    }

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for life in facts.lives.values():
            episode = facts.owner_of(life)
            if life.died is None or not episode or not life.uses:
                continue
            later = _first_use_elsewhere(facts, life, episode)
            if later is None or later.call == f"{episode}.{_FIRST_STEP}":
                yield None
                continue
            about = {"episode": episode, "instance": life.id, "why": life.died["why"]}
            about |= {"step": later.call, "other": later.instance}
            yield self.broken("replaced", [life.died, later.arrived], **about)


def _first_use_elsewhere(
    facts: SandboxLives, life: SandboxLife, episode: str
) -> SandboxRequest | None:
    """Return the first use of another sandbox by an episode after the death of this one."""
    assert life.died is not None
    for request in facts.uses_of(episode):
        if request.at >= life.died["at"] and request.instance not in ("", life.id):
            return request
    return None


class CreatesWithinLimit(_OfEpisodes):
    """No more sandboxes are starting at once than `pending`, and no more are created per second
    than `per_second`; with neither, the service refuses no create."""

    implied: ClassVar[bool] = False
    sentences: ClassVar = {
        "refused": "the service refused {times:create} ({why})",
        "pending": "{many} sandboxes were starting at {at:.4g} s, at most {bound} promised",
        "per_second": "{many} creates came within a second from {at:.4g} s, {bound:g} promised",
        "held": "{judged:create}, all within the limit",
        "nothing": "no create came",
    }

    pending: int | None = Field(None, ge=1, description="most sandboxes that start at once")
    per_second: float | None = Field(None, gt=0, description="most creates within one second")

    def judge_episodes(self, facts: SandboxLives) -> Found:
        creates = list(facts.of_kind("create"))
        if not creates:
            return
        if self.pending is None and self.per_second is None:
            if facts.refused:
                first = facts.refused[0]
                times = len(facts.refused)
                yield self.broken("refused", facts.refused, times=times, why=first["why"])
            else:
                yield from (None for _ in creates)
            return
        yield from self._over_pending(facts)
        yield from self._over_rate(creates)
        yield from (None for _ in creates)

    def _over_pending(self, facts: SandboxLives) -> Found:
        if self.pending is None:
            return
        for life in facts.lives.values():
            pending = [
                other for other in facts.lives.values() if other.at <= life.at < _until(other)
            ]
            if len(pending) > self.pending:
                about = {"many": len(pending), "at": life.at, "bound": self.pending}
                yield self.broken("pending", [other.created for other in pending], **about)

    def _over_rate(self, creates: list[SandboxRequest]) -> Found:
        if self.per_second is None:
            return
        for first in creates:
            within = [other for other in creates if 0 <= other.at - first.at < 1.0 - _ROUNDED]
            if len(within) > max(1.0, self.per_second):
                about = {"many": len(within), "at": first.at, "bound": self.per_second}
                yield self.broken("per_second", [other.arrived for other in within], **about)


def _until(life: SandboxLife) -> float:
    """Return until when a sandbox was starting."""
    ends = [life.pending_until]
    if life.deleting is not None:
        ends.append(life.deleting["at"])
    return min((end for end in ends if end is not None), default=float("inf"))


class DeleteRetried(_OfEpisodes):
    """A delete that failed (5xx, or no answer) is sent again, unless the sandbox ends by itself
    within `within`."""

    scalar = "within"
    sentences: ClassVar = {
        "given_up": (
            "the delete of sandbox {instance} of {episode} failed ({how}) and was not sent again; "
            "at the end the sandbox lives"
        ),
        "held": "{judged:delete} failed, each sent again until the sandbox was gone",
        "nothing": "no delete failed without its effect",
    }

    within: Seconds = Field(
        0.0, description="a sandbox that ends by itself within this time need not be deleted"
    )

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for life in facts.lives.values():
            failed = [delete for delete in life.deletes if _has_failed(delete)]
            if not failed or (len(failed) == len(life.deletes) and life.deleting is not None):
                continue  # a delete that took effect need not be sent again
            if life.has_ended or life.ends_within(self.within):
                yield None
                continue
            last = failed[-1]
            how = "no answer" if last.status is None else f"status {last.status}"
            evidence = [last.arrived] if last.ended is None else [last.arrived, last.ended]
            yield self.broken("given_up", evidence, **_about(facts, life), how=how)


def _has_failed(delete: SandboxRequest) -> bool:
    return delete.status is None or delete.status >= _SERVER_ERROR


class TtlCoversEpisode(_OfEpisodes):
    """No sandbox ends by its TTL, or because it idled, while its episode still uses it: it lives
    long enough, or is renewed in time."""

    sentences: ClassVar = {
        "over": (
            "sandbox {instance} ended by its {why} at {at:.4g} s, and {episode} used it at "
            "{used:.4g} s"
        ),
        "held": "{judged} sandboxes used, none over before its last use",
        "nothing": "no sandbox was used",
    }

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for life in facts.lives.values():
            uses = _uses_of(facts, life)
            if not uses:
                continue
            late = _use_after_its_time(life, uses)
            if late is None:
                yield None
                continue
            assert life.died is not None
            times = {"at": life.died["at"], "used": late.at, "why": life.died["why"]}
            yield self.broken("over", [life.died, late.arrived], **_about(facts, life), **times)


def _uses_of(facts: SandboxLives, life: SandboxLife) -> list[SandboxRequest]:
    """Return the uses of a sandbox, also those that came when the service knew it no more."""
    episode = facts.owner_of(life)
    late = [use for use in facts.uses_of(episode) if not use.instance and use.at >= life.at]
    return [*life.uses, *late] if episode else life.uses


def _use_after_its_time(life: SandboxLife, uses: list[SandboxRequest]) -> SandboxRequest | None:
    """Return a use that came after the end of a sandbox by its settings, or was broken off by
    it."""
    if life.died is None or life.died["why"] not in _OVER:
        return None
    died = life.died["at"]
    for use in uses:
        under_way = use.at <= died and use.ended is not None and use.ended["at"] > died
        if use.at >= died or (under_way and not use.succeeded):
            return use
    return None


class NoStateLeaked(_OfEpisodes):
    """No episode reads a file that another one wrote: a sandbox that is used again is emptied
    before."""

    sentences: ClassVar = {
        "leaked": "{episode} read a file in sandbox {instance} that {writer} wrote",
        "held": "{judged:file} read, each by the episode that wrote it",
        "nothing": "no file with a known writer was read",
    }

    def judge_episodes(self, facts: SandboxLives) -> Found:
        for event in facts.file_events:
            if event["event"] != "file_read":
                continue
            writer = str(event.get("writer") or "").partition(".")[0]
            reader = _reader_of(facts, event["instance"], event["at"])
            if writer not in facts.episodes or not reader:
                continue
            if writer == reader:
                yield None
                continue
            about = {"episode": reader, "instance": event["instance"], "writer": writer}
            yield self.broken("leaked", [event], **about)


def _reader_of(facts: SandboxLives, instance: str, at: float) -> str:
    """Return whose step a sandbox took last: that of the last marked request."""
    life = facts.lives.get(instance)
    if life is None:
        return ""
    reader = facts.owner_of(life)
    for request in life.uses:
        named = request.call.rpartition(".")[0]
        if request.at <= at and named in facts.episodes:
            reader = named
    return reader


def _about(facts: SandboxLives, life: SandboxLife) -> dict[str, str]:
    return {"instance": life.id, "episode": facts.owner_of(life) or "an unknown episode"}
