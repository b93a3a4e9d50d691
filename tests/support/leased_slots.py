"""A subscription of which one worker holds a lease in each of many slots."""

from __future__ import annotations

from functools import cache

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.model import TopicPartition
from tests.support.records import FakeRecord


@cache
def keys_by_slot() -> list[bytes]:
    """A key for each slot."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < SLOTS:
        key = b"%d" % number
        found.setdefault(slot_of(key), key)
        number += 1
    return [found[slot] for slot in range(SLOTS)]


def ranges(first_free: int, *, of: str) -> StickyRanges:
    """The slots below that are ``of``'s, all others C's."""
    spans = {of: [(0, first_free - 1)]}
    if first_free < SLOTS:
        spans["C"] = [(first_free, SLOTS - 1)]
    return StickyRanges(spans, ("A", "B", "C"))


def held_by_a(slots: int) -> tuple[Dispatcher, list[cmd.LeaseSlice]]:
    """A core in which A was given a record of each of so many slots, each one by itself."""
    settings = SubscriptionSettings(
        workers=("A", "B", "C"),
        individually=True,
        window_records=1 << 20,
        window_bytes=1 << 40,
        prefetch_records=1 << 20,
    )
    core = Dispatcher([settings])
    # Of many partitions, so that none of them gets beyond its ceiling.
    partitions = [TopicPartition("orders", number) for number in range(64)]
    core.handle(ev.Assigned(dict.fromkeys(partitions, ev.StartPoint(0))), 0.0)
    sub = core.subscriptions["default"]
    sub.table.project(sub.workers.values(), ranges(slots, of="A"))
    sub.workers[0].slice_size = sub.workers[0].slice_max = 1
    keys = keys_by_slot()[:slots]
    records = [FakeRecord(partitions[at % 64], at // 64, key) for at, key in enumerate(keys)]
    commands = core.handle(ev.Fetched(records, dict.fromkeys(partitions, slots // 64 + 1)), 0.0)
    return core, [each for each in commands if isinstance(each, cmd.LeaseSlice)]
