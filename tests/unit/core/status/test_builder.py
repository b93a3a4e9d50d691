"""The status: what an onlooker is told about one instance."""

from __future__ import annotations

import msgspec
import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.keys.key_text import KEY_CHARS, key_text
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.simulator.stepped import PoolKind
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.status import Status, SubscriptionStatus
from tests.support.core_harness import Harness
from tests.support.core_status import WALL, status_of
from tests.support.records import ERROR, P0, P1, record


def started(*, blocked: bool = False) -> Harness:
    """Ten records of ten keys, of which the third fails and blocks its key if asked."""
    harness = Harness(SubscriptionSettings(workers=("worker-0", "worker-1")))
    harness.assign(P0, P1)
    harness.fetch(*(record(offset, f"key-{offset}") for offset in range(10)))
    if blocked:
        harness.work({2: [ERROR] * 5})
        for _ in range(5):
            harness.later(60)
            harness.work({2: [ERROR] * 5})
    return harness


def test_offsets_lag_and_backlog_of_a_partition_behind_a_blocked_record() -> None:
    harness = started(blocked=True)
    for commit in harness.commit():
        harness.answer(commit)
    harness.now += 7.0
    first, second = status_of(harness, log_ends={P0: 15, P1: 0}, paused=frozenset({P1})).partitions
    assert (first.topic, first.partition) == P0
    assert (first.fetched, first.safe, first.settled_max, first.committed) == (10, 2, 10, 2)
    assert first.unsettled == 1
    # 13 offsets are not committed; of these 7 are settled, the blocked one and 5 more are not.
    assert (first.log_end, first.lag, first.backlog) == (15, 13, 6)
    assert first.oldest_seconds >= 7.0
    assert first.lag_seconds == pytest.approx(WALL - 0.002)
    assert (first.paused, second.paused) == (False, True)


def test_a_position_that_moves_is_never_old() -> None:
    harness = started()
    harness.now += 100.0
    assert status_of(harness).partitions[0].oldest_seconds == 0
    harness.now += 100.0
    assert status_of(harness).partitions[0].oldest_seconds == 100.0
    harness.work()
    assert status_of(harness).partitions[0].oldest_seconds == 0


def test_a_partition_without_a_commit_has_no_lag_yet_and_one_without_a_backlog_none() -> None:
    harness = started()
    harness.work()
    assert status_of(harness, log_ends={P0: 10}).partitions[1].lag is None
    for commit in harness.commit():
        harness.answer(commit)
    partition = status_of(harness, log_ends={P0: 10}).partitions[0]
    assert (partition.lag, partition.backlog, partition.lag_seconds) == (0, 0, 0.0)


def test_a_worker_shows_what_it_runs_for_how_long_and_what_it_owns() -> None:
    harness = started()
    worker = harness.worker(0)
    running = worker.start()
    assert running is not None
    harness.beat(5)
    first, second = status_of(harness).subscriptions[0].workers
    assert (first.name, first.state, second.state) == ("worker-0", "running", "idle")
    assert first.running is not None
    assert (first.running.topic, first.running.offset) == ("orders", running.offset())
    assert first.running.seconds == pytest.approx(2.0)
    assert first.share + second.share == pytest.approx(1.0)
    assert 0.3 < first.share < 0.7
    assert first.leased + second.leased == 10


@pytest.mark.parametrize(("kind", "state"), [("instance", "stuck"), ("thread", "running")])
def test_a_worker_that_waits_for_a_stuck_record_is_called_stuck(kind: PoolKind, state: str) -> None:
    harness = Harness(SubscriptionSettings(ack_timeout=1.0))
    harness.pool.kind = kind
    harness.assign()
    harness.fetch(record(0), record(1, "other"))
    harness.worker().start()
    harness.beat(5)
    harness.deliver()
    harness.worker().start()
    sub = status_of(harness).subscriptions[0]
    (worker,) = sub.workers
    assert (worker.state, worker.stuck, sub.stuck, sub.lanes["stuck"]) == (state, 1, 1, 1)
    assert worker.running is not None
    assert worker.running.offset == 0, "the one that has been running for longest"
    assert worker.runs == (2 if kind == "thread" else 1)


def test_closed_lanes_and_the_hottest_key_are_shown() -> None:
    harness = started(blocked=True)
    harness.fetch(*(record(offset, "key-2") for offset in range(10, 14)))
    harness.work()
    sub = status_of(harness).subscriptions[0]
    others = [each.value for each in LaneState if each is not LaneState.BLOCKED]
    assert sub.lanes == {"blocked": 1, **dict.fromkeys(others, 0)}
    assert (sub.lane_records, sub.records) == (5, 5)
    assert (sub.keys, sub.hottest) == (1, 5)


def test_what_can_be_counted_is_there_before_the_first_event() -> None:
    status = status_of(Harness(), topics=("orders", "payments"))
    both = {"orders": 0, "payments": 0}
    assert (status.fetched, status.stalls) == (both, both)
    assert set(status.commits.values()) == set(status.rebalances.values()) == {0}
    sub = status.subscriptions[0]
    for counted in (sub.processed, sub.retried, sub.dlq_writes):
        assert counted.keys() == both.keys()
        assert all(labels and set(labels.values()) == {0} for labels in counted.values())
    assert "dead_lettered" in sub.processed["orders"]


def test_a_topic_that_was_assigned_stays_counted_when_it_is_gone() -> None:
    harness = Harness()
    harness.assign(P0)
    harness.revoke(P0)
    sub = status_of(harness).subscriptions[0]
    assert sub.processed["orders"]["ok"] == 0
    harness.assign(P0)
    harness.fetch(record(0))
    harness.work()
    status = status_of(harness)
    assert status.fetched == {"orders": 1}
    assert status.subscriptions[0].processed["orders"]["ok"] == 1


def test_the_status_is_plain_data() -> None:
    status = status_of(started(blocked=True), log_ends={P0: 15})
    again = msgspec.json.decode(msgspec.json.encode(status), type=Status)
    assert again == status
    assert again.version == 1


def test_every_record_that_runs_counts_also_where_a_worker_runs_many() -> None:
    """A member that had received fifty counted as one that is in flight."""
    harness = Harness(SubscriptionSettings(individually=True, one_in_flight_per_key=True))
    harness.assign()
    harness.fetch(*(record(offset, f"key-{offset}") for offset in range(60)))
    received = [*harness.worker().given][:50]
    for id_ in received:
        next(harness.worker().given[id_].todo)
    (worker,) = status_of(harness).subscriptions[0].workers
    assert (worker.leased, worker.runs) == (60, 50)
    inflight = next(each for each in FAMILIES if each.name == "keyshared_inflight_records")
    assert list(inflight.read(status_of(harness))) == [((), 50)]


# --- whose keys are ---


def shown(routing: RoutingSettings, workers: int = 2) -> SubscriptionStatus:
    harness = Harness(SubscriptionSettings(workers=worker_names(workers), routing=routing))
    return status_of(harness).subscriptions[0]


def test_ranges_are_shown_as_the_settings_have_them_also_of_workers_that_are_away() -> None:
    ranges = {"worker-1": [(0, 9), (20, 29)], "later": [(10, 19)]}
    found = shown(RoutingSettings("sticky", ranges, on_unmatched="hold"))
    assert (found.routing, found.on_unmatched) == ("sticky", "hold")
    assert found.ranges == {"later": "10-19", "worker-1": "0-9,20-29"}
    assert shown(RoutingSettings("auto-split")).ranges == {
        "worker-0": "32769-65535",
        "worker-1": "0-32768",
    }
    assert shown(RoutingSettings("exclusive")).ranges == {"worker-0": "0-65535"}
    assert shown(RoutingSettings()).ranges == {}, "hundreds of arcs for each worker tell nobody"


def test_filters_are_shown_of_all_that_were_declared() -> None:
    given: dict[str, list[str | bytes]] = {"worker-1": ["eu-*", b"\xff?"], "later": ["x"]}
    found = shown(RoutingSettings(filters=given))
    assert found.filters == {"worker-0": (), "worker-1": ("eu-*", "\\xff?"), "later": ("x",)}
    assert shown(RoutingSettings()).filters == {}


def test_where_workers_filter_a_draining_slot_is_shown_by_its_own_number() -> None:
    settings = RoutingSettings(filters={"worker-0": ["x*"], "worker-1": ["a*", "x*"]})
    harness = Harness(SubscriptionSettings(workers=worker_names(3), routing=settings))
    harness.assign(P0)
    # The first set of takers makes numbers that are those of the slots.
    keys = [b"first", *(b"%c-%d" % (letter, at) for letter in b"ax" for at in range(20))]
    harness.fetch(*(record(offset, key) for offset, key in enumerate(keys)))
    running = {key.start() for key in harness.pool.workers.values()}
    harness.tell(ev.Resize("default", ["worker-0", "worker-2"]))
    found = status_of(harness, pending=True).subscriptions[0]
    drains = {each.slot: each for worker in found.workers for each in worker.draining}
    theirs = {slot_of(each.key()) for each in running if each is not None}
    assert drains
    assert set(drains) <= theirs
    assert {each.owner for each in drains.values()} <= {"worker-0", "worker-2"}
    assert found.pending is not None
    assert {each.slot for each in found.pending} <= {slot_of(key) for key in keys}
    assert {each.slot for each in found.pending if each.draining} == set(drains)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (None, None),
        (b"", ""),
        ("größer".encode(), "größer"),
        (b"\x00\xff:", "hex:00ff3a"),
        (b"k" * 10_000, "k" * KEY_CHARS),
        (b"k" + "\N{GRINNING FACE}".encode() * 10_000, "k" + "\N{GRINNING FACE}" * (KEY_CHARS - 1)),
        (b"\xff" * 10_000, "hex:" + "f" * (KEY_CHARS - 4)),
    ],
)
def test_a_key_is_shown_as_text_or_as_hex(key: bytes | None, shown: str | None) -> None:
    assert key_text(key) == shown
