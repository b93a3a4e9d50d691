"""Single partitions are held back: commit metadata that fills up, lanes that stay blocked."""

from __future__ import annotations

import pytest

from kafka_keyshared.core import pressure
from kafka_keyshared.core.events import CommitDue, Fetched, Lease, Recall
from kafka_keyshared.core.metadata import Encoded, encode
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.settle import RetryPolicy
from tests.support.harness import Harness
from tests.support.records import ERROR, P0, P1, record

BUDGET = 40
LAST = 160


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "SET_BUDGET", BUDGET)


def gated(workers: int = 1) -> Harness:
    """P0 is gated: 0 and all odd offsets up to the last have failed once, the others settled."""
    names = tuple(f"worker-{index}" for index in range(workers))
    retry = RetryPolicy(attempts=9, backoff=5.0, backoff_max=5.0, jitter=0.0)
    harness = Harness(SubscriptionSettings(workers=names, retry=retry))
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, str(offset)) for offset in range(LAST + 1)])
    harness.work({0: [ERROR], **{offset: [ERROR] for offset in range(1, LAST, 2)}})
    for commit in harness.commit():
        harness.answer(commit)
    return harness


# --- commit metadata ---


@pytest.mark.usefixtures("small_budget")
def test_while_a_partition_is_held_back_snapshots_are_taken_as_often_as_allowed() -> None:
    harness = gated()
    harness.fetch(record(0, "other", P1))
    harness.work()
    sent = harness.now
    assert not harness.core.commit_wanted(sent + 0.1)
    assert harness.core.commit_wanted(sent + 0.25)


@pytest.mark.usefixtures("small_budget")
def test_at_three_quarters_of_the_budget_only_records_below_the_highest_settled_start() -> None:
    harness = gated()
    assert harness.paused == {P0}
    assert harness.said(
        "orders-0: its commit metadata is three quarters full; until the record at 0"
    )
    harness.fetch(record(LAST + 1, "new"), record(LAST + 2, None), record(0, "other", P1))
    assert harness.work() == [0]
    assert harness.sub().restrictions.gates == {P0: LAST}
    harness.later(5.0)
    assert sorted(harness.work()) == [0, *range(1, LAST, 2)]
    assert harness.committed() == (LAST + 1, [])
    assert harness.paused == set()
    assert sorted(harness.work()) == [LAST + 1, LAST + 2]


@pytest.mark.usefixtures("small_budget")
def test_the_gate_opens_at_half_of_the_budget_and_not_before() -> None:
    harness = gated()
    harness.later(5.0)
    harness.work({offset: [ERROR] for offset in range(1, LAST, 2)})
    harness.committed()
    assert harness.paused == {P0}
    harness.later(5.0)
    harness.work({offset: [ERROR] for offset in range(LAST - 7, LAST, 2)})
    assert harness.committed()[0] == LAST - 7
    assert harness.paused == set()


@pytest.mark.usefixtures("small_budget")
def test_what_a_recall_brings_back_runs_before_what_the_gate_held() -> None:
    harness = gated()
    harness.fetch(*[record(offset, "new") for offset in range(LAST + 1, LAST + 4)])
    harness.later(5.0)
    harness.tell(harness.pool.recall("default", 0))
    started = harness.work()
    harness.commit()
    started += harness.work()
    assert [offset for offset in started if offset > LAST] == [LAST + 1, LAST + 2, LAST + 3]


@pytest.mark.usefixtures("small_budget")
def test_between_a_recall_and_its_answer_nothing_is_leased() -> None:
    retry = RetryPolicy(attempts=9, backoff=5.0, backoff_max=5.0, jitter=0.0)
    harness = Harness(SubscriptionSettings(retry=retry, leases_per_worker=4))
    harness.assign(P0)
    harness.fetch(*[record(offset, str(offset)) for offset in range(LAST + 1)])
    harness.work({0: [ERROR], **{offset: [ERROR] for offset in range(1, LAST, 2)}})
    harness.fetch(*[record(LAST + extra, "new") for extra in range(1, 9)])
    harness.worker().start()
    commands = harness.core.handle(CommitDue(harness.pool.progress()), harness.now)
    kinds = [type(command) for command in commands]
    assert Recall in kinds
    assert Lease not in kinds


@pytest.mark.usefixtures("small_budget")
def test_a_restored_set_closes_no_gate_before_the_records_under_it_were_fetched() -> None:
    runs = tuple((offset, offset + 1) for offset in range(2, LAST, 2))
    harness = Harness()
    harness.assign(P0, metadata=encode(0, {"default": runs}).text)
    harness.tell(Fetched([], {P0: 0}))
    harness.commit()
    assert harness.paused == set()
    harness.fetch(*[record(offset, str(offset)) for offset in range(LAST)])
    assert harness.work() == [0, *range(1, LAST, 2)]


@pytest.mark.usefixtures("small_budget")
def test_a_gate_follows_what_settled_beyond_it() -> None:
    harness = gated()
    harness.sub().restrictions.gates[P0] = 20
    harness.commit()
    assert harness.sub().restrictions.gates == {P0: LAST}


@pytest.mark.usefixtures("small_budget")
def test_a_gate_is_gone_with_its_partition() -> None:
    harness = gated()
    harness.fetch(record(LAST + 1, "new"), record(3, "p1", P1))
    harness.revoke(P0)
    assert harness.sub().restrictions.gates == {}
    assert harness.core.pressure.paused() == set()
    assert harness.core.unsettled_count() == 1


def test_a_set_that_does_not_fit_is_said_once_until_it_fits_again() -> None:
    cut, whole = Encoded("text", truncated=("default",)), Encoded("text")
    watched = pressure.Pressure()
    (notice,) = watched.note_encoded(P0, cut)
    assert "orders-0: the settled set does not fit in the commit metadata" in notice.text
    assert watched.note_encoded(P0, cut) == []
    assert watched.note_encoded(P0, whole) == []
    assert len(watched.note_encoded(P0, cut)) == 1


# --- blocked lanes ---


def blocking(window: int = 40) -> Harness:
    settings = SubscriptionSettings(window_records=window, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(record(0, "bad"), record(0, "good", P1))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.work()
    return harness


def test_a_quarter_of_the_window_behind_blocked_lanes_stops_that_partition_only() -> None:
    harness = blocking()
    harness.fetch(*[record(offset, "bad") for offset in range(1, 9)])
    assert harness.paused == set()
    harness.fetch(record(9, "bad"), record(1, "good", P1))
    assert harness.paused == {P0}
    assert harness.said("orders-0 is stopped: records behind blocked keys fill a quarter")
    assert harness.said("b'bad'")
    assert harness.work() == [1]


def test_what_was_leased_behind_the_blocked_record_counts_too() -> None:
    settings = SubscriptionSettings(window_records=40, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, "bad") for offset in range(12)])
    harness.work({0: [ERROR]})
    assert harness.sub().blocked_waiting == 12
    assert harness.paused == {P0}


def test_what_is_recalled_to_a_blocked_lane_counts_too() -> None:
    settings = SubscriptionSettings(window_records=40, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, "bad") for offset in range(12)])
    harness.worker().start()
    harness.worker().finish(ERROR)
    harness.deliver()
    harness.tell(harness.pool.recall("default", 0))
    assert harness.sub().blocked_waiting == 12
    assert harness.paused == {P0}


def test_a_stopped_partition_is_fetched_again_once_blocked_lanes_hold_little() -> None:
    harness = blocking()
    harness.fetch(*[record(offset, "bad") for offset in range(1, 9)], record(1, "bad", P1))
    assert harness.paused == {P1}
    harness.revoke(P0)
    assert harness.sub().blocked_waiting == 0
    harness.beat()
    assert harness.paused == set()
    assert harness.work() == [1]
