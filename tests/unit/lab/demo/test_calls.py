"""The calls that the demo's late flights cost: when they are made, and how they are counted."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_keyshared.lab.demo import calls as module
from kafka_keyshared.lab.demo.calls import CallLog, calling
from kafka_keyshared.lab.demo.data import decode, records
from kafka_keyshared.lab.demo.flights import LATE_MINUTES


def test_nothing_was_waited_for_where_nothing_was_called() -> None:
    assert CallLog().waiting() == (0, 0, 0.0, 0.0)


def test_calls_are_added_up_and_the_busiest_partition_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = CallLog()
    all_in = threading.Barrier(4)
    monkeypatch.setattr("kafka_keyshared.lab.demo.calls.time.sleep", lambda _: all_in.wait(60))
    threads = [threading.Thread(target=calls.make, args=[each]) for each in (0, 1, 1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.under_way == 0
    assert calls.waiting() == (4, 4, round(4 * module.CALL_SECONDS, 1), 0.0)
    monkeypatch.setattr("kafka_keyshared.lab.demo.calls.time.sleep", lambda _: None)
    for _ in range(997):
        calls.make(1)
    assert calls.waiting() == (1001, 4, 5.0, 5.0)


def message(key: bytes | None, value: bytes) -> Any:
    return Message(topic="flights", partition=3, offset=0, key=key, value=value)


def test_only_a_late_flight_costs_a_call() -> None:
    partitions: list[int] = []

    class Noted(CallLog):
        def make(self, partition: int) -> None:
            partitions.append(partition)

    handler = calling(Noted())()
    late = 0
    for source in records():
        row = decode(source.value)
        if "flight" not in row or row["dep_delay"] is None:
            continue
        late += row["dep_delay"] > LATE_MINUTES
        handler.handle(message(source.key, source.value))
        if late == 5:
            break
    assert partitions == [3] * 5
