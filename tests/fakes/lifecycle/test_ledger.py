"""What a ledger of sandboxes lets happen, and when."""

from __future__ import annotations

import pytest

from sfusion.fakes.errors import SandboxSetupError
from sfusion.fakes.lifecycle import EventCause, SandboxFull, read_lifecycle
from sfusion.fakes.lifecycle import ledger as ledgers
from tests.fakes.lifecycle.ledgers import Watched


def test_a_sandbox_is_pending_until_it_has_booted() -> None:
    watched = Watched(boot="2s")
    sandbox = watched.create(1.0, episode="e1", name="one", by=EventCause("c", 1))
    assert sandbox.state == "pending"
    assert watched.ledger.running(sandbox.id, 2.9) is None
    assert watched.ledger.running("one", 3.0) is sandbox
    assert watched.events[0] == {
        "at": 1.0,
        "source": "server",
        "event": "sandbox_created",
        "call": "c",
        "attempt": 1,
        "instance": sandbox.id,
        "episode": "e1",
        "name": "one",
        "ttl": None,
        "idle": None,
    }
    assert watched.happened() == [(1.0, "created"), (3.0, "ready")]


def test_without_a_boot_time_it_runs_at_once() -> None:
    watched = Watched()
    assert watched.create(5.0).state == "running"
    assert watched.happened() == [(5.0, "created"), (5.0, "ready")]


def test_only_some_start_at_once_and_the_others_wait_for_their_turn() -> None:
    watched = Watched(boot="2s", starting=1)
    first, second, third = (watched.create(0.0, episode=str(place)) for place in range(3))
    assert watched.ledger.pending == 3
    watched.ledger.delete(second.id, 1.0)
    watched.ledger.advance(4.0)
    assert (first.ready, second.ready, third.ready) == (2.0, None, 4.0)


def test_a_delete_while_it_boots_lets_the_next_one_start() -> None:
    watched = Watched(boot="2s", starting=1)
    first = watched.create(0.0)
    second = watched.create(0.0)
    watched.ledger.delete(first.id, 0.5)
    watched.ledger.advance(9.0)
    assert (first.ready, second.ready) == (None, 2.5)


def test_live_sandboxes_are_limited_and_one_that_is_being_deleted_still_counts() -> None:
    watched = Watched(live=1, delete_takes="10s", retry_after="3s")
    sandbox = watched.create(0.0)
    watched.ledger.delete(sandbox.id, 1.0)
    refusal = watched.refused(10.9, episode="e2", by=EventCause("c2", 2))
    assert (refusal.why, refusal.status, refusal.retry_after) == ("live", 429, 3.0)
    assert watched.events[-1] == {
        "at": 10.9,
        "source": "server",
        "event": "sandbox_refused",
        "call": "c2",
        "attempt": 2,
        "episode": "e2",
        "why": "live",
        "retry_after": "3",
    }
    watched.create(11.0)


def test_creates_per_second_are_limited_and_the_refusal_says_how_long_to_wait() -> None:
    watched = Watched(creates_per_second=2, burst=1)
    watched.create(0.0)
    refusal = watched.refused(0.2)
    assert refusal.why == "rate"
    assert refusal.retry_after == pytest.approx(0.3)
    watched.create(0.5)


def test_its_time_is_up_unless_it_is_renewed() -> None:
    watched = Watched(ttl="10s")
    renewed = watched.create(0.0)
    left_alone = watched.create(0.0)
    watched.ledger.renew(renewed, 8.0)
    watched.ledger.advance(100.0)
    assert (left_alone.state, left_alone.why, left_alone.ended) == ("dead", "ttl", 10.0)
    assert (renewed.state, renewed.ended) == ("dead", 18.0)


def test_a_client_may_ask_for_less_time_and_not_for_more() -> None:
    watched = Watched(ttl="10s")
    short = watched.create(0.0, ttl=4.0)
    long = watched.create(0.0, ttl=40.0)
    watched.ledger.renew(short, 1.0, ttl=2.0)
    watched.ledger.advance(100.0)
    assert (short.ended, long.ended) == (3.0, 10.0)


def test_the_time_of_a_sandbox_begins_when_it_is_ready() -> None:
    watched = Watched(boot="30s", ttl="10s")
    sandbox = watched.create(0.0)
    watched.ledger.advance(100.0)
    assert sandbox.ended == 40.0


def test_an_idle_sandbox_ends_and_a_command_that_runs_is_use() -> None:
    watched = Watched(idle="5s")
    used = watched.create(0.0)
    unused = watched.create(0.0)
    watched.ledger.begin(used, 4.0, "c1")
    watched.ledger.advance(20.0)
    assert (unused.ended, used.state) == (5.0, "running")
    watched.ledger.end(used, 20.0)
    watched.ledger.touch(used, 24.0)
    watched.ledger.advance(100.0)
    assert (used.why, used.ended) == ("idle", 29.0)


def test_some_die_by_themselves() -> None:
    watched = Watched(dies=1.0, dies_after="28s")
    sandbox = watched.create(0.0)
    watched.ledger.advance(100.0)
    assert (sandbox.why, sandbox.ended) == ("death", 28.0)


def test_how_many_die_is_a_share_and_which_depends_on_the_seed() -> None:
    def dead(seed: int) -> set[str]:
        watched = Watched(seed=seed, dies=0.2, dies_after="1s")
        for place in range(200):
            watched.create(0.0, episode=f"e{place}")
        watched.ledger.advance(2.0)
        return {one.episode for one in watched.ledger.all() if one.state == "dead"}

    assert 25 < len(dead(1)) < 55
    assert dead(1) == dead(1) != dead(2)


def test_ids_depend_on_the_episode_and_not_on_the_order_of_creates() -> None:
    forth = Watched()
    back = Watched()
    one, two = (forth.create(0.0, episode=episode).id for episode in ("e1", "e2"))
    other_two, other_one = (back.create(0.0, episode=episode).id for episode in ("e2", "e1"))
    assert (one, two) == (other_one, other_two)
    assert forth.create(0.0, episode="e1").id not in (one, two)


def test_a_killed_sandbox_is_dead_until_it_is_deleted() -> None:
    watched = Watched()
    sandbox = watched.create(0.0, name="one")
    watched.ledger.kill(sandbox, 1.0, by=EventCause("c", 1))
    watched.ledger.kill(sandbox, 2.0)
    assert watched.ledger.running("one", 2.0) is None
    assert watched.ledger.find("one", 2.0) is sandbox
    watched.ledger.delete("one", 3.0)
    assert watched.ledger.find("one", 3.0) is None
    assert [name for _, name in watched.happened()[2:]] == ["died", "deleting", "deleted"]
    assert watched.events[2]["why"] == "fault"
    assert watched.ledger.live == 0


def test_a_sandbox_that_dies_while_it_boots_never_becomes_ready() -> None:
    watched = Watched(boot="2s", starting=1)
    sandbox = watched.create(0.0)
    following = watched.create(0.0)
    watched.ledger.kill(sandbox, 1.0)
    watched.ledger.advance(9.0)
    assert (sandbox.ready, following.ready) == (None, 3.0)


def test_a_second_delete_finds_it_while_it_is_being_deleted_and_not_later() -> None:
    watched = Watched(delete_takes="5s")
    sandbox = watched.create(0.0)
    assert watched.ledger.delete(sandbox.id, 1.0) is sandbox
    assert watched.ledger.delete(sandbox.id, 2.0) is sandbox
    assert sandbox.deletes == 2
    assert watched.ledger.delete(sandbox.id, 6.0) is None
    assert [name for _, name in watched.happened()[2:]] == ["deleting", "deleted"]


def test_an_idempotency_key_returns_the_sandbox_that_is_there() -> None:
    watched = Watched(creates_per_second=1, burst=2)
    first = watched.create(0.0, key="k")
    assert watched.create(0.0, key="k") is first
    watched.ledger.delete(first.id, 0.0)
    assert watched.create(0.0, key="k") is not first
    names = [name for _, name in watched.happened()]
    assert names == ["created", "ready", "adopted", "deleting", "deleted", "created", "ready"]


def test_orphans_are_those_that_nobody_asked_to_delete() -> None:
    watched = Watched(delete_takes="5s")
    watched.create(0.0, episode="left")
    asked = watched.create(0.0)
    watched.ledger.delete(asked.id, 0.0)
    assert [sandbox.episode for sandbox in watched.ledger.orphans()] == ["left"]
    assert watched.ledger.snapshot()["orphans"] == 1


def test_files_belong_to_a_sandbox_and_know_who_wrote_them() -> None:
    watched = Watched()
    sandbox = watched.create(0.0, episode="e1")
    watched.ledger.write(sandbox, "/a", b"1", now=1.0)
    watched.ledger.write(sandbox, "/b", b"2", now=1.0, writer="e2")
    stored = watched.ledger.read(sandbox, "/b", now=2.0)
    assert stored is not None
    assert (stored.content, stored.writer) == (b"2", "e2")
    assert watched.ledger.read(sandbox, "/c", now=2.0) is None
    assert sandbox.as_dict()["files"] == {"/a": "e1", "/b": "e2"}
    events = watched.events[2:]
    assert [event["event"] for event in events] == ["file_written", "file_written", "file_read"]
    assert [event["writer"] for event in events] == ["e1", "e2", "e2"]
    assert events[1]["path"] == events[2]["path"] != "/b"
    watched.ledger.kill(sandbox, 3.0)
    assert sandbox.files == {}


def test_commands_that_ran_twice_are_known() -> None:
    watched = Watched()
    sandbox = watched.create(0.0)
    for call in ("c1", "c2", "c1"):
        watched.ledger.begin(sandbox, 1.0, call)
        watched.ledger.end(sandbox, 1.0)
    assert sandbox.as_dict()["repeated"] == ["c1"]
    assert sandbox.executions == 3


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_LIVE", "MOST_ENDED", "MOST_FILES"):
        monkeypatch.setattr(ledgers, name, 3)
    monkeypatch.setattr(ledgers, "MOST_STORED", 10)
    watched = Watched(ttl="1s")
    for place in range(20):
        sandbox = watched.create(
            float(place), name=f"n{place}", episode="e" * 1000, key=f"k{place}"
        )
        for _ in range(50):
            watched.ledger.renew(sandbox, float(place))
    assert len(sandbox.episode) == 200
    watched.ledger.advance(30.0)
    assert len(list(watched.ledger.all())) == 3
    assert watched.ledger.next_at() is None

    watched = Watched()
    sandbox = watched.create(0.0)
    for place in range(3):
        watched.ledger.write(sandbox, str(place), b"123", now=0.0)
    with pytest.raises(SandboxFull, match="3 files"):
        watched.ledger.write(sandbox, "4", b"", now=0.0)
    with pytest.raises(SandboxFull, match="10 bytes"):
        watched.ledger.write(sandbox, "1", b"12345", now=0.0)
    watched.ledger.delete(sandbox.id, 0.0)
    sandboxes = [watched.create(0.0) for _ in range(3)]
    watched.ledger.write(sandboxes[0], "1", b"1234567890", now=0.0)
    assert watched.refused(0.0).why == "live"


def test_renewing_again_and_again_sets_one_timer() -> None:
    watched = Watched(ttl="10s", idle="10s")
    sandbox = watched.create(0.0)
    for moment in range(1000):
        watched.ledger.renew(sandbox, moment * 0.005)
        watched.ledger.begin(sandbox, moment * 0.005, "c")
        watched.ledger.end(sandbox, moment * 0.005)
    assert len(watched.ledger._timers) == 2


def test_a_model_that_cannot_be_names_the_mistake() -> None:
    with pytest.raises(SandboxSetupError, match=r"model lifecycle: .*did you mean 'live'"):
        read_lifecycle({"lives": 3})
    with pytest.raises(SandboxSetupError, match="not a duration"):
        read_lifecycle({"boot": "soon"})


def test_a_model_is_written_as_it_is_read() -> None:
    model = read_lifecycle({"boot": "2s", "live": 3, "dies_after": {"exponential": "5m"}})
    assert model.as_data().keys() == {"kind", "boot", "live", "dies_after"}
    assert read_lifecycle(model.as_data()) == model
    assert read_lifecycle("lifecycle") == read_lifecycle(None)


def test_a_queue_forgets_what_was_deleted_before_its_turn() -> None:
    watched = Watched(boot="1h", starting=1)
    watched.create(0.0)
    for _ in range(5):
        watched.ledger.delete(watched.create(0.0).id, 0.0)
    assert not watched.ledger._queue
