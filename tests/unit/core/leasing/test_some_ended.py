"""Slices of workers whose records end in any order: what ends before the rest is over at once."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError, InvariantError
from tests.support.records import ERROR, P0, FakeRecord, record
from tests.support.slices import scattered


class Scene:
    """A core with one worker at first; what it leases is kept, and nothing runs."""

    def __init__(self, **settings: object) -> None:
        chosen = {"prefetch_records": 8, "slice_records": 4, "individually": True, **settings}
        self.core = Dispatcher([SubscriptionSettings(**chosen)], CommitPolicy())  # type: ignore[arg-type]
        self.now = 100.0
        self.leased: list[Slice] = []
        self.tell(ev.Assigned({P0: ev.StartPoint(0)}))

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        commands = self.core.handle(event, self.now)
        self.leased += [each.slice for each in commands if isinstance(each, cmd.LeaseSlice)]
        self.core.check()
        return commands

    def report(self, *reports: ev.Report) -> list[cmd.Command]:
        return self.tell(ev.Reported(reports))

    def fetch(self, *records: FakeRecord) -> None:
        self.tell(ev.Fetched(records, {P0: records[-1].offset() + 1}))

    def offsets(self) -> list[list[int]]:
        return [[each.offset() for each in slice_.records] for slice_ in self.leased]

    @property
    def sub(self):  # type: ignore[no-untyped-def]
        return self.core.subscriptions["default"]


def many(count: int) -> list[FakeRecord]:
    return [record(offset, f"key-{offset}") for offset in range(count)]


def test_what_has_ended_leaves_its_place_to_others_although_its_slice_goes_on() -> None:
    scene = Scene()
    scene.fetch(*many(12))
    assert scene.offsets() == [[0, 1, 2, 3], [4, 5, 6, 7]], "eight leases, four in a slice"
    first = scene.leased[0].id
    scene.report(ev.SomeEnded(first, (1, 3), 0.5))
    assert scene.offsets()[2:] == [[8, 9]]
    assert scene.core.outstanding() == 8
    assert scene.core.unsettled_count() == 10
    assert scene.sub.counts.ok == 2
    scene.report(ev.SliceEnded(first, 0.1))
    assert scene.offsets()[3:] == [[10, 11]]
    assert scene.sub.counts.ok == 4
    assert sum(scene.sub.counts.process_seconds.counts) == 4


def test_positions_go_by_what_has_ended_told_or_not() -> None:
    scene = Scene()
    scene.fetch(*many(4))
    (slice_,) = scene.leased
    scene.report(ev.SomeEnded(slice_.id, (0, 2), 0.1))
    progress = {slice_.id: scattered(4, runs=(1,), ended=(0, 2, 3))}
    snapshot = scene.core.snapshots.take(progress, scene.now)[P0]
    assert (snapshot.position, snapshot.runs) == (1, {"default": ((2, 4),)})


def test_an_end_is_believed_once_and_of_what_is_leased_alone() -> None:
    scene = Scene()
    scene.fetch(*many(4))
    (slice_,) = scene.leased
    scene.report(ev.SomeEnded(slice_.id, (2,), 0.1))
    for index in (2, 4, -1):
        with pytest.raises(InvariantError, match=f"record {index} of slice {slice_.id} ends"):
            scene.report(ev.SomeEnded(slice_.id, (index,), 0.1))
        scene.core.check()
    with pytest.raises(InvariantError, match="has come back already"):
        scene.report(ev.Failed(slice_.id, 2, ERROR))
    assert scene.sub.counts.ok == 1


def test_what_was_dropped_and_what_failed_is_counted_once_each() -> None:
    scene = Scene(retry=RetryPolicy(attempts=5, backoff=50.0))
    scene.fetch(*many(4))
    (slice_,) = scene.leased
    scene.report(ev.Failed(slice_.id, 0, ERROR), ev.SomeEnded(slice_.id, (0, 1), 0.1, (1,)))
    assert (scene.sub.counts.ok, scene.sub.counts.dropped, scene.sub.counts.failed) == (0, 1, 1)
    scene.report(ev.FencePassed("default", 0, (scene.sub.keys.lane(slice_.records[0]),)))
    scene.report(ev.SliceEnded(slice_.id, 0.1))
    assert (scene.sub.counts.ok, scene.sub.counts.dropped) == (2, 1)
    assert scene.core.unsettled_count() == 1, "the one that failed waits for its next attempt"


def test_a_failed_record_may_end_behind_what_was_set_aside_because_of_it() -> None:
    scene = Scene()
    scene.fetch(*(record(offset, "key") for offset in range(4)))
    (slice_,) = scene.leased
    aside = [each for index in (1, 2) for each in (_aside(slice_, index), _over(slice_, index))]
    scene.report(ev.Failed(slice_.id, 0, ERROR), *aside)
    assert (scene.core.outstanding(), scene.core.unsettled_count()) == (2, 4)
    scene.report(_aside(slice_, 3), ev.SliceEnded(slice_.id, 0.1))
    assert (scene.core.outstanding(), scene.core.unsettled_count()) == (0, 4)


def _aside(slice_: Slice, index: int) -> ev.SetAside:
    return ev.SetAside(slice_.id, index)


def _over(slice_: Slice, index: int) -> ev.SomeEnded:
    return ev.SomeEnded(slice_.id, (index,), 0.0)


def test_a_lane_goes_on_when_its_head_has_ended_whatever_else_its_slice_has() -> None:
    scene = Scene(retry=RetryPolicy(attempts=5, backoff=0.1, jitter=0.0))
    scene.fetch(record(0, "a"), record(1, "b"))
    (slice_,) = scene.leased
    lanes = tuple(scene.sub.keys.lane(each) for each in slice_.records)
    scene.report(ev.Failed(slice_.id, 0, ERROR), ev.Failed(slice_.id, 1, ERROR))
    scene.report(
        ev.SliceEnded(slice_.id, 0.1), *(ev.FencePassed("default", 0, (e,)) for e in lanes)
    )
    scene.fetch(record(2, "a"), record(3, "b"))
    scene.now += 1.0
    scene.tell(ev.LeaseDue())
    assert scene.offsets()[1:] == [[0, 1]], "both heads run again, in one slice"
    scene.report(ev.SomeEnded(scene.leased[1].id, (0,), 0.1))
    assert scene.offsets()[2:] == [[2]], "a has gone on, and b waits for its head"
    scene.report(ev.SliceEnded(scene.leased[1].id, 0.1))
    assert scene.offsets()[3:] == [[3]]


def test_a_slot_that_drains_waits_for_its_own_record_and_not_for_the_rest_of_the_slice() -> None:
    scene = Scene()
    records = many(4)
    scene.fetch(*records)
    (slice_,) = scene.leased
    scene.tell(ev.Resize("default", ("worker-0", "worker-1")))
    moved = [
        index
        for index, each in enumerate(slice_.records)
        if scene.sub.routing.waits_for(scene.sub.keys.slot(each.key()), 0)
    ]
    assert 0 < len(moved) < 4, "some of the slots have changed hands"
    assert scene.sub.draining.count == len(moved)
    scene.report(ev.SomeEnded(slice_.id, moved, 0.1))
    assert scene.sub.draining.count == 0


def test_a_limit_of_letters_counts_each_record_that_settles_once() -> None:
    limit = DlqLimit(share=0.5, records=4, consecutive=3)
    scene = Scene(dlq=True, dlq_limit=limit)
    scene.fetch(*many(4))
    (slice_,) = scene.leased
    scene.report(ev.SomeEnded(slice_.id, (0, 1), 0.1))
    scene.report(ev.SliceEnded(slice_.id, 0.1))
    watch = scene.sub.dlq_watch
    assert watch is not None and watch._of(P0).total == 4


def test_slices_of_many_are_refused_with_an_ack_timeout() -> None:
    """What cannot be ended is set apart as a slice, and others of it would be taken along."""
    with pytest.raises(ConfigError, match="slice_records=4: give at least 1, and 1 with an ack"):
        SubscriptionSettings(slice_records=4, ack_timeout=1.0).check()
