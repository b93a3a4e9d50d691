"""Java gives each record the place that Python gives it, and so the worker that pods would."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyspark")

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.spark.driver.placing import place_column
from kafka_keyshared.spark.placement import RecordPlacement
from kafka_keyshared.spark.session import Session

CHANCE = random.Random(7)
KEYS: list[bytes | None] = [
    *(CHANCE.randbytes(size) for size in range(70) for _ in range(5)),
    *(b"key-%d" % number for number in range(500)),
    b"\x80\xff" * 100,
    None,
    None,
]
SETTINGS = {
    "ring": SubscriptionSettings(workers=worker_names(5)),
    "weights": SubscriptionSettings(
        workers=worker_names(3), routing=RoutingSettings(weights={"worker-1": 3.0})
    ),
    "pulsar": SubscriptionSettings(workers=worker_names(7), slot_function="pulsar"),
    "one lane of null keys": SubscriptionSettings(workers=worker_names(5), null_keys="one-lane"),
    "exclusive": SubscriptionSettings(
        workers=worker_names(3), routing=RoutingSettings("exclusive")
    ),
    "unordered": SubscriptionSettings(
        workers=worker_names(3), routing=RoutingSettings("unordered")
    ),
}


def test_java_and_python_agree_on_the_place_of_every_record(session: Session) -> None:
    records = [(key, at % 4, at * 10**12) for at, key in enumerate(KEYS)]
    frame = session.spark.createDataFrame(records, "key binary, partition int, offset bigint")
    frame = frame.localCheckpoint()
    by_name = {name: RecordPlacement(settings) for name, settings in SETTINGS.items()}
    columns = []
    for name, places in by_name.items():
        column = place_column(places)
        assert column is not None
        columns.append(column.alias(name))
    found = frame.select("offset", *columns).orderBy("offset").collect()
    for name, places in by_name.items():
        told = [each[name] for each in found]
        assert told == places.of(*zip(*records, strict=True)), name


def test_a_slot_function_that_java_has_not_is_left_to_python(session: Session) -> None:
    assert place_column(RecordPlacement(SubscriptionSettings(slot_function="fnv1a"))) is None
