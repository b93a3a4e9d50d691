"""Which positions are asked for behind a chunk: all of a few, of many those that it has moved."""

from __future__ import annotations

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.partition_ends import ALL_EVERY, AT_ONCE
from tests.support.loop_ports import Stage
from tests.support.records import FakeRecord, record


def staged(count: int) -> tuple[Stage, list[TopicPartition]]:
    stage = Stage()
    partitions = [TopicPartition("orders", number) for number in range(count)]
    stage.assign(*partitions)
    stage.accept()
    return stage, partitions


def fetched(stage: Stage, *records: FakeRecord) -> None:
    stage.fill(*records)
    stage.step(2)
    stage.work()
    stage.step(2)


def ends(stage: Stage) -> dict[TopicPartition, int | None]:
    return {each: state.received_end for each, state in stage.core.partitions.items()}


def test_of_few_partitions_all_are_asked_for() -> None:
    stage, partitions = staged(AT_ONCE)
    fetched(stage, record(0, "a", partitions[3]))
    fetched(stage, record(1, "a", partitions[3]))
    assert stage.client.made("positions") == []
    assert ends(stage)[partitions[3]] == 2


def test_of_many_those_are_asked_for_that_the_chunk_has_records_of() -> None:
    stage, partitions = staged(AT_ONCE + 1)
    fetched(stage, record(0, "a", partitions[3]))
    assert stage.client.made("positions") == [], "the first time all of them"
    fetched(stage, record(1, "a", partitions[3]), record(0, "b", partitions[7]))
    fetched(stage, record(1, "b", partitions[7]))
    asked = stage.client.made("positions")
    assert set().union(*asked) == {partitions[3], partitions[7]}
    assert asked[-1] == {partitions[7]}
    assert (ends(stage)[partitions[3]], ends(stage)[partitions[7]]) == (2, 2)
    stage.now += 1.0
    stage.step(2)
    assert stage.core.commits.committed(partitions[3]) == 2


def test_of_several_topics_each_record_asks_for_the_partition_of_its_own() -> None:
    stage = Stage()
    ours, others = (
        [TopicPartition(topic, number) for number in range(AT_ONCE)]
        for topic in ("bills", "orders")
    )
    stage.assign(*ours, *others)
    stage.accept()
    fetched(stage, record(0, "a", ours[3]), record(0, "b", others[7]))
    fetched(stage, record(1, "a", ours[3]), record(1, "b", others[7]))
    assert set().union(*stage.client.made("positions")) == {ours[3], others[7]}
    assert (ends(stage)[ours[3]], ends(stage)[others[7]]) == (2, 2)


def test_one_that_moved_without_a_record_is_seen_when_all_are_asked_for_again() -> None:
    stage, partitions = staged(AT_ONCE + 1)
    fetched(stage, record(0, "a", partitions[3]))
    stage.fill(record(8, "b", partitions[5]))
    assert stage.client.consume(1), "it moves without a record for the loop, as behind a marker"
    fetched(stage, record(1, "a", partitions[3]))
    assert ends(stage)[partitions[5]] != 9
    stage.now += ALL_EVERY
    fetched(stage, record(2, "a", partitions[3]))
    assert ends(stage)[partitions[5]] == 9
