"""Counting keys for advice: against plain counting, in bounded memory, window by window."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kafka_keyshared.cli.advice.count import WINDOW, WORKERS, Hot, SampleCounts
from kafka_keyshared.core.routing.loads import busiest
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OTHER = TopicPartition("refunds", 0)


def tally_of(*keys: bytes | None, partition: TopicPartition = P0) -> SampleCounts:
    tally = SampleCounts()
    tally.add(partition, keys)
    tally.close()
    return tally


def test_it_counts_as_one_would_by_hand() -> None:
    chance = random.Random(20)
    # A few hot keys, many cold ones, in batches of every size, in two partitions.
    keys = [b"%d" % int(chance.paretovariate(0.4)) for _ in range(45_000)]
    stream: list[bytes | None] = [key if len(key) < 12 else None for key in keys]
    tally, at = SampleCounts(), 0
    while at < len(stream):
        step = chance.choice((1, 7, 400, 12_000))
        part = stream[at : at + step]
        for partition in (P0, P1):
            here = [key for key in part if (slot_of(key or b"") & 1) == partition.partition]
            tally.add(partition, here)
        at += step
    tally.close()
    expected = Counter(key for key in stream if key is not None)
    assert tally.records == len(stream)
    assert tally.null_keys == stream.count(None) > 0
    assert tally.exact
    found = tally.lanes("subscription")
    assert found.lanes == len(expected) > 3_000
    assert [hot.records for hot in found.hottest] == [n for _, n in expected.most_common(10)]
    assert {hot.key for hot in found.hottest[:5]} == {key for key, _ in expected.most_common(5)}
    assert sum(tally.partitions.values()) == len(stream)


def test_the_empty_key_is_a_key_and_a_missing_one_is_not() -> None:
    tally = tally_of(b"", b"", None, b"a")
    assert tally.null_keys == 1
    assert tally.lanes("topic").lanes == 2
    assert tally.lanes("topic").hottest[0] == Hot(b"", 2)


@pytest.mark.parametrize(
    ("scope", "lanes", "hottest"), [("partition", 5, 3), ("topic", 4, 5), ("subscription", 3, 6)]
)
def test_a_scope_of_order_says_which_records_share_a_lane(
    scope: str, lanes: int, hottest: int
) -> None:
    tally = SampleCounts()
    tally.add(P0, [b"a", b"a", b"a", b"b"])
    tally.add(P1, [b"a", b"a"])
    tally.add(OTHER, [b"a", b"c"])
    tally.close()
    found = tally.lanes(scope)
    assert found.lanes == lanes
    assert found.hottest[0] == Hot(b"a", hottest)


def test_the_load_of_a_worker_is_what_the_ring_gives_it() -> None:
    chance = random.Random(3)
    keys = [b"key-%d" % chance.randrange(700) for _ in range(5_000)] + [b"hot"] * 2_000
    tally = tally_of(*keys)
    for workers in WORKERS:
        ring = VnodeRing(worker_names(workers), ROUTING_VNODES)
        expected = Counter(ring.workers.index(ring.owner(slot_of(key))) for key in keys)
        assert {at: n for at, n in tally.loads(workers).items() if n} == expected
        assert max(tally.loads(workers).values()) >= 2_000


@pytest.mark.parametrize(
    ("loads", "records", "busy"),
    [
        ({0: 10, 1: 2}, 16, 10),  # 4 without a key fill up the idler one
        ({0: 10, 1: 2}, 20, 10),
        ({0: 10, 1: 2}, 21, 11),  # 9 of them: both are level, and one has one more
        ({}, 5, 3),
        ({}, 0, 0),
    ],
)
def test_records_without_a_key_go_to_whoever_has_least(
    loads: dict[int, int], records: int, busy: int
) -> None:
    assert busiest(loads, records, 2) == busy


def test_a_window_is_counted_when_it_is_full_and_the_last_one_at_the_end() -> None:
    tally = SampleCounts()
    # One key at a time for a whole window each: together they look parallel, but never are.
    for number in range(8):
        tally.add(P0, [b"burst-%d" % number] * (WINDOW - 1))
        tally.add(P0, [b"burst-%d" % number])
    tally.add(P0, [b"last"] * 5)
    tally.close()
    assert tally.window_steps == dict.fromkeys(WORKERS, 8 * WINDOW + 5)
    tally.close()
    assert tally.window_steps[4] == 8 * WINDOW + 5


def test_beyond_its_bound_it_estimates_the_number_of_keys_and_keeps_the_hot_ones() -> None:
    bound = 2_000
    tally = SampleCounts(keys_max=bound)
    cold = [b"cold-%d" % number for number in range(60_000)]
    late = 40_000
    for at in range(0, len(cold), 500):
        # From the start one key in 20 is hot, from 40,000 on another one is as well.
        extra = [b"hot"] * 25 + ([b"late"] * 25 if at >= late else [])
        tally.add(P0, [*cold[at : at + 500], *extra])
    tally.close()
    assert not tally.exact
    assert sum(map(len, tally._kept.values())) <= bound
    found = tally.lanes("topic")
    assert found.lanes == pytest.approx(60_002, rel=0.15)
    assert found.hottest[0] == Hot(b"hot", 25 * 120)
    name, records = found.hottest[1]
    assert name == b"late"
    assert 25 * 20 < records <= 25 * 40
    assert sum(tally.loads(4).values()) == tally.records


def test_of_a_long_key_only_the_beginning_is_kept() -> None:
    tally = tally_of(b"x" * 5_000, b"x" * 5_000 + b"y")
    assert tally.lanes("topic") == (2, [Hot(b"x" * 64, 1), Hot(b"x" * 64, 1)])
