"""Commit texts that were mirrored, copied or restored are of another log, and are not believed."""

from __future__ import annotations

import logging

import pytest

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried, hash_of, topic_id_in
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.topic_ids import ID_UNTOLD_WAIT, ID_WAIT, IDS_ASKED_LEAST
from tests.support.commit_texts import here
from tests.support.loop_ports import Stage
from tests.support.records import ERROR, P0, P1, record

ONE, OTHER = "QwxnKJjnSJOv0Oyrd6vZoA", "3iGJijykR5SJPf-wdNEjKQ"


def text_for(position: int, partition: TopicPartition = P0, topic_id: str | None = ONE) -> str:
    """At the position one record is unsettled; those behind it are settled, tried, archived."""
    notes = {
        "default": LaneNotes(
            frozenset({hash_of(lane_of(record(0, "a")))}),
            {position: Tried(4, archived=True), position + 4: Tried(4)},
        )
    }
    runs = {"default": ((position + 1, position + 4),)}
    return encode(here(position, partition, topic_id), runs, notes=notes).text


def begun(position: int, text: str, ids: dict[str, str] | None) -> Stage:
    settings = SubscriptionSettings(retry=RetryPolicy(attempts=5, backoff=0.0), dlq=True)
    stage = Stage(settings)
    stage.client.stored[P0] = CommittedOffset(position, text)
    stage.client.ids = ids
    stage.fill(*(record(offset, f"k{offset}") for offset in range(40)))
    stage.accept()
    stage.assign()
    stage.step(3)
    return stage


@pytest.mark.parametrize(
    ("text", "ids", "why"),
    [
        (text_for(17), {"orders": ONE}, "position 17"),
        (text_for(33), {"orders": ONE}, "position 33"),
        (text_for(30), {"orders": OTHER}, f"topic id {ONE} (this topic has {OTHER})"),
        (text_for(30, P1), {"orders": ONE}, "partition 1"),
        (text_for(30, TopicPartition("source", 0)), {"orders": ONE}, "another topic than orders"),
        (text_for(17, topic_id=None), {}, "position 17"),
        (text_for(17, topic_id=None), {"orders": ONE}, "position 17"),
    ],
)
def test_all_from_the_position_on_runs_beside_the_text_of_another_log(
    text: str, ids: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        stage = begun(30, text, ids)
    said = [each.getMessage() for each in caplog.records if "metadata" in each.getMessage()]
    assert len(said) == 1, "one line for the partition"
    assert said[0].startswith(
        "orders-0: commit metadata ignored, everything from offset 30 on runs"
    )
    assert f"written for {why}" in said[0]
    assert stage.work() == list(range(30, 40))
    assert not stage.sub.carried, "no attempts and no archived copies are taken over either"
    assert not stage.sub.diverted


@pytest.mark.parametrize(
    ("topic_id", "ids"),
    [(ONE, {"orders": ONE}), (None, {"orders": ONE}), (None, {})],
)
def test_the_text_of_this_log_is_believed(topic_id: str | None, ids: dict[str, str]) -> None:
    stage = begun(30, text_for(30, topic_id=topic_id), ids)
    assert stage.work() == [30, *range(34, 40)]
    assert stage.sub.carried[P0][30] == Tried(4, archived=True)


def test_retention_that_has_passed_the_position_still_clips_what_is_believed() -> None:
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(30, text_for(30))
    stage.client.ids = {"orders": ONE}
    stage.fill(*(record(offset) for offset in range(32, 40)))
    stage.assign()
    stage.step(2)
    assert stage.work() == list(range(34, 40))


def test_a_partition_waits_for_the_id_of_its_topic_where_a_text_names_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = begun(30, text_for(30), None)
    assert stage.work() == [], "to read on without the set would run settled records again"
    assert "topic id unknown" in caplog.text
    stage.client.ids = {"orders": ONE}
    stage.now += 5.0
    stage.step(3)
    assert stage.work() == [30, *range(34, 40)]


def test_one_without_a_text_or_an_id_in_it_waits_for_no_id() -> None:
    for text in ("", text_for(30, topic_id=None)):
        stage = begun(30, text, None)
        assert stage.work()


@pytest.mark.parametrize(("ids", "wait"), [(None, ID_WAIT), ({}, ID_UNTOLD_WAIT)])
def test_an_id_that_nobody_tells_is_not_waited_for_for_ever(
    ids: dict[str, str] | None, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    stage = begun(30, text_for(30), ids)
    until = stage.now + wait
    while stage.now < until - 5.0:
        stage.now += 4.0
        stage.step(2)
        assert stage.work() == []
    for _ in range(IDS_ASKED_LEAST + 2):
        stage.now += 5.0
        stage.step(2)
    assert stage.work() == list(range(30, 40)), "a repeat is better than a loss, or than a halt"
    assert "no broker tells the id of this topic" in caplog.text


def test_an_owner_that_stood_still_has_not_waited() -> None:
    stage = begun(30, text_for(30), None)
    stage.now += 10 * ID_WAIT
    stage.step()
    stage.client.ids = {"orders": ONE}
    stage.now += 5.0
    stage.step(3)
    assert stage.work() == [30, *range(34, 40)]


def test_a_commit_names_the_topic_by_its_id_and_the_next_owner_believes_it() -> None:
    stage = begun(0, "", {"orders": ONE})
    for _ in range(3):
        stage.now += 1.0
        stage.step()
    stage.work({0: ERROR})
    stage.now += 2.0
    stage.step(3)
    entry = stage.client.commits[-1].entries[P0]
    assert topic_id_in(entry.metadata) == ONE
    again = begun(entry.position, entry.metadata, {"orders": ONE})
    assert again.work() == [0]
    moved = begun(entry.position, entry.metadata, {"orders": OTHER})
    assert moved.work() == list(range(40))
