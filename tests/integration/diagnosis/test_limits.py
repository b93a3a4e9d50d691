"""What keeps a running instance from getting on faster; and that every cause is made on one."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_keyshared.observability.diagnosis.causes import CAUSES
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.integration.diagnosis.conftest import Started
from tests.support.diagnosis_causes import FACTS, WAIT, Named, found
from tests.support.live_cluster import Written, numbered
from tests.support.odd_records import ODD, Gate, nothing

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def short_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of a minute is said of a second, and a backlog of a few records is one."""
    monkeypatch.setattr("kafka_keyshared.runtime.trend.MINUTE", 1.0)
    monkeypatch.setattr("kafka_keyshared.observability.diagnosis.limits.RECORDS_LEAST", 10)


def test_workers_that_are_all_busy_are_named(started: Started, closed: Gate, named: Named) -> None:
    member = started(closed)
    limit = named(member.app, "workers-limit")
    assert "100% of the workers were busy" in limit.sentence
    assert "has not fallen" in limit.sentence
    closed.open()
    named.cleared(member.app, "workers-limit")


def test_a_window_that_is_full_while_workers_are_idle_is_named(
    started: Started, closed: Gate, named: Named
) -> None:
    one = {"routing": "sticky", "ranges": {"worker-0": "0-65535"}}
    member = started(closed, workers=4, window_records=20, **one)
    limit = named(member.app, "window-full")
    assert "the window is full, and 25% of the workers were busy" in limit.sentence
    closed.open()
    named.cleared(member.app, "window-full")


def test_a_key_that_most_of_the_work_is_of_is_named(
    started: Started, gate: Gate, named: Named
) -> None:
    records: list[Written] = [(ODD, b"%d" % number) for number in range(60)]
    member = started(gate, records=records, workers=4)
    hot = named(member.app, "hot-key")
    assert "60 of the 60 held are of key 'odd'" in hot.sentence
    assert hot.key == "odd"
    gate.open()
    named.cleared(member.app, "hot-key")


def test_a_key_that_gets_more_than_one_worker_runs_is_named_while_others_go_on(
    started: Started, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("kafka_keyshared.observability.diagnosis.hot.HELD", 0.5)
    quick = threading.Event()

    def handle(record: Any) -> None:
        if record.key() == ODD:
            quick.wait(0.03)

    records = [(ODD, b"%d" % number) for number in range(1_200)]
    member = started(handle, records=[*records, *numbered(200)], workers=4, window_records=200)
    app = member.app

    def measured() -> bool:
        hot = found(app, "hot-key")
        return hot is not None and "one worker runs" in hot.sentence

    eventually(measured, WAIT)
    hot = found(app, "hot-key")
    assert hot is not None
    assert hot.key == "odd"
    assert re.search(
        r"^key 'odd' has \d+% of what arrives, [\d,.]+ records/s, and one worker runs [\d.]+ "
        r"records/s of it; \d+ records of it wait, so .+-\d is held back; other partitions go on$",
        hot.sentence,
    )
    status = app.status()
    assert status is not None
    shared = status.subscriptions[0].shared
    assert shared is not None
    capacity = shared.hot_keys[0].capacity
    assert capacity is not None
    assert capacity < 100, "33, but for slices that have just ended: it was measured for a second"
    quick.set()
    eventually(lambda: found(app, "hot-key") is None, WAIT)


def test_brokers_that_give_out_less_than_is_written_are_named(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    cluster.create_topic(topic, 1)
    # A fetch of the embedded cluster brings one batch.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1})
    for number in range(40):
        producer.produce(topic, b"%d" % number, b"key", 0)
    assert producer.flush(WAIT) == 0
    cluster.delay_next("Fetch", 0.0, times=2)
    cluster.delay_next("Fetch", 3.0, times=100)
    member = started(nothing, records=None, workers=4)
    limit = named(member.app, "broker-limit")
    assert "were fetched in that time, and 0% of the workers were busy" in limit.sentence


def test_every_cause_is_made_on_a_running_instance() -> None:
    tests = "".join(each.read_text() for each in HERE.glob("test_*.py"))
    codes = {cause.code for cause in CAUSES}
    assert set(FACTS) == codes
    assert {code for code in codes if f'.app, "{code}")' in tests} == codes
