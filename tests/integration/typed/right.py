"""A user's file with nothing wrong in it: every public name, used as the documents say."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import assert_type

import confluent_kafka
import pytest

import kafka_keyshared
from kafka_keyshared import (
    Ack,
    ConfigError,
    Consumer,
    DeadLetter,
    Drop,
    InvariantError,
    KeyShared,
    KeySharedError,
    LeaseOverError,
    Reader,
    Record,
    Retry,
    Verdict,
    split,
)
from kafka_keyshared.testing import (
    EmbeddedKafka,
    HandlerTest,
    ReceivedRecord,
    Request,
    Result,
    RunningApp,
    record,
    run_handler,
    running,
)

log = logging.getLogger(__name__)
pytest_plugins = ["kafka_keyshared.testing"]

conf: dict[str, str | int | float | bool] = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "billing",
}
app = KeyShared(
    conf,
    ["orders"],
    workers=16,
    dlq="orders.dlq",
    retry={"attempts": 3},
    dead_letter_on=(ValueError,),
)


@app.handler
def handle(given: Record) -> Verdict | None:
    if given.value() is None:
        return Drop()
    if given.offset() == 7:
        raise Retry(after=1.5)
    if given.topic() == "audit":
        return DeadLetter("not ours")
    return Ack() if given.headers() else None


@app.handler
def handle_message(message: confluent_kafka.Message) -> None:
    log.info("%r %r", message.key(), message.value())


@app.handler
class PerWorker:
    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()

    def handle(self, given: Record) -> None:
        self.seen[given.key()] += 1

    def close(self) -> None:
        self.seen.clear()


# What the decorator gives back is what it was given.
assert_type(handle(record("a")), Verdict | None)
assert_type(PerWorker().seen, Counter[bytes])
handle_message(record("a"))


def run() -> int:
    try:
        status = app.run()
    except ConfigError as error:
        log.info("%s", error)
        return error.exit_code
    except (InvariantError, KeySharedError):
        return 1
    assert_type(status, int)
    seen = app.status()
    if seen is not None:
        for partition in seen.partitions:
            assert_type(partition.lag, int | None)
    app.stop()
    return status


def assigned(
    client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]
) -> None:
    log.info("%r got %r", client, partitions)


def wrapped() -> KeyShared:
    consumer = Consumer({"bootstrap.servers": "localhost:9092", "group.id": "billing"})
    consumer.subscribe(["orders"], on_assign=assigned)
    again = KeyShared.wrap(consumer, workers=8)
    assert_type(again, KeyShared)
    plain = confluent_kafka.Consumer({"bootstrap.servers": "localhost:9092", "group.id": "b"})
    return KeyShared.wrap(plain, conf={"group.id": "b"}, topics=["orders"])


def members() -> None:
    with split(Consumer({"group.id": "billing"}), 4) as parts:
        for part in parts:
            message = part.poll(1.0)
            assert_type(message, confluent_kafka.Message | None)
            part.commit()
    member = app.join("mine")
    with member:
        pulled = member.receive(timeout=1.0)
        if pulled is not None:
            assert_type(pulled.offset(), int)
            try:
                pulled.ack()
            except LeaseOverError:
                pulled.nack(delay=2.0)


# --- tests of a user's own ---


def test_a_handler() -> None:
    results = run_handler(handle, [("a", "1"), ("a", None), record(b"b", b"2")], dlq=True)
    assert_type(results, list[Result])
    assert [each.outcome for each in results] == ["done", "dropped", "done"]
    assert results[0].dead_letter is None
    with HandlerTest(PerWorker, workers=2) as test:
        test.run([(None, "x")])
        assert_type(test.calls, list[ReceivedRecord])
    run_handler(app, [record(headers={"trace": "7"}, timestamp=0)])


def test_with_kafka(keyshared_cluster: EmbeddedKafka, keyshared_topic: str) -> None:
    places = keyshared_cluster.produce(keyshared_topic, [("a", b"1"), (None, None)])
    assert_type(places, list[tuple[int, int]])
    request: Request = "commit"
    keyshared_cluster.fail_next(request, "NOT_COORDINATOR", times=2)
    keyshared_cluster.fail_next("fetch", confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION)
    mine = KeyShared(keyshared_cluster.conf("mine", {"client.id": "test"}), [keyshared_topic])
    mine.handler(handle)
    with running(mine, timeout=60) as seen:
        assert_type(seen, RunningApp)
        seen.wait_settled()
    assert_type(keyshared_cluster.lag("mine", keyshared_topic), int)


@pytest.fixture
def keyshared_brokers() -> int:
    return 3


with Reader({}, ["orders"], [(0, 10_000)], start={0: 120}, until="latest", keyless=True) as reader:
    for each in reader:
        assert_type(each, Record)
        assert_type(reader.slot(each), int | None)
    assert_type(reader.read(timeout=1.0), list[Record])
    assert_type(reader.counts.read, int)
Reader({}, ["orders"], "0-10000", start=datetime.now(UTC), until=-1, slot_function="pulsar").stop()

assert_type(kafka_keyshared.__version__, str)
