"""That a record's task is its worker's: driver, executors and pods agree on it."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOT_FUNCTIONS
from kafka_keyshared.spark.placement import RecordPlacement, place_numbers, spark_partition

KEYS = [b"", b"a", b"customer-1", b"N12345", bytes(range(256)), *(b"%d" % n for n in range(2_000))]


def test_spark_partitions_are_those_that_spark_says() -> None:
    """``SELECT pmod(hash(v), 16)`` of Spark 4.0 for 0, 1, 2, 42, -1 and 2147483647."""
    hashes = {0: 933211791, 1: -559580957, 2: 1765031574, 42: 29417773, -1: -1604776387}
    for value, hashed in hashes.items():
        assert spark_partition(value, 1 << 30) == hashed % (1 << 30)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 16, 100])
def test_each_worker_has_a_place_of_its_own(workers: int) -> None:
    found = [spark_partition(place, workers) for place in place_numbers(workers)]
    assert found == list(range(workers))


@pytest.mark.parametrize("slot_function", [name for name in SLOT_FUNCTIONS if name != "blake3_u16"])
@pytest.mark.parametrize(
    "routing",
    [
        RoutingSettings(),
        RoutingSettings(weights={"worker-1": 3.0}),
        RoutingSettings("auto-split"),
        RoutingSettings("sticky", {"worker-0": [(0, 9)], "worker-1": [(10, 65535)]}),
    ],
    ids=["ring", "weights", "auto-split", "sticky"],
)
def test_keys_go_where_the_cores_routing_sends_them(
    routing: RoutingSettings, slot_function: str
) -> None:
    workers = worker_names(2 if routing.mode == "sticky" else 5)
    settings = SubscriptionSettings(workers=workers, routing=routing, slot_function=slot_function)  # type: ignore[arg-type]
    sub = Dispatcher([settings]).subscriptions["default"]
    owners = [sub.table.owners[sub.keys.slot(key)] for key in KEYS]
    places = RecordPlacement(settings).of(KEYS, [0] * len(KEYS), range(len(KEYS)))
    assert [spark_partition(place, len(workers)) for place in places] == owners


def test_a_null_key_goes_to_each_worker_in_turn_and_always_to_the_same() -> None:
    settings = SubscriptionSettings(workers=worker_names(3))
    places = RecordPlacement(settings)
    found = places.of([None] * 6, [0] * 6, range(6))
    assert sorted(set(found)) == sorted(places.numbers)
    assert found == places.of([None] * 6, [0] * 6, range(6))


def test_null_keys_of_one_lane_go_where_the_empty_key_goes() -> None:
    settings = SubscriptionSettings(workers=worker_names(3), null_keys="one-lane")
    [first, *others] = RecordPlacement(settings).of([b"", None, None], [0, 0, 1], [1, 2, 3])
    assert others == [first, first]


def test_exclusive_has_one_task_for_everything() -> None:
    settings = SubscriptionSettings(workers=worker_names(3), routing=RoutingSettings("exclusive"))
    assert len(set(RecordPlacement(settings).of([b"a", None, b"c"], [0, 0, 0], [1, 2, 3]))) == 1


def test_routings_that_leave_keys_to_nobody_are_refused() -> None:
    gap = RoutingSettings("sticky", {"worker-0": [(0, 9)]}, on_unmatched="skip")
    filters = RoutingSettings(filters={"worker-0": ["a*"]}, on_unmatched="skip")
    for routing in (gap, filters):
        with pytest.raises(ConfigError, match="do not run on Spark"):
            RecordPlacement(SubscriptionSettings(routing=routing))
