"""An app that is paused by hand, on a real cluster: what runs, what does not, and until when."""

from __future__ import annotations

import pytest

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    committed,
    group_name,
    numbered,
    write,
)

PARTITIONS = 4
PART = 200
WAIT = 60.0


def beats(member: Member) -> int:
    assert member.app.instance is not None
    return member.app.instance.loop.stats.beats


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_pause_outlives_a_rebalance_and_after_a_resume_everything_runs_once_in_order(
    real_cluster: Cluster, topic: str, eventually: Eventually, strategy: str
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    conf = client_conf(real_cluster, group_name()) | {"partition.assignment.strategy": strategy}
    written = MemoryLedger("producer")
    first = Member(conf, [topic], lambda _: None, name="first").start()
    second = Member(conf, [topic], lambda _: None, name="second")
    write(real_cluster, topic, numbered(PART), written)
    eventually(lambda: first.done() == PART, WAIT)
    assert first.app.pause() == [TopicPartition(topic, each) for each in range(PARTITIONS)]

    def more() -> None:
        write(real_cluster, topic, numbered(PART), written)

    more()
    second.start()
    eventually(lambda: bool(second.assigned) and second.done() > 0, WAIT)  # there was something
    assert len(first.assigned) < PARTITIONS
    assert second.stop() == 0
    eventually(lambda: len(first.assigned) == PARTITIONS, WAIT)
    more()
    before = beats(first)
    eventually(lambda: beats(first) > before + 4, WAIT)  # longer than a fetch takes
    assert first.done() == PART, "nothing ran where it is paused"
    status = first.app.status()
    assert status is not None
    assert {each.held_back for each in status.partitions} == {("it is paused by hand",)}
    assert all(each.paused for each in status.partitions)

    assert first.app.resume(partitions=[(topic, 0)]) == [
        TopicPartition(topic, each) for each in range(1, PARTITIONS)
    ]
    assert first.app.resume() == []
    eventually(lambda: first.done() + second.done() == len(written.events), WAIT)
    assert first.stop() == 0
    verdict = assert_clean(written, first.ledger, second.ledger)
    assert verdict.totals.attempts == 3 * PART


def test_a_stop_while_it_is_paused_is_quick_and_has_committed_what_is_done(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, 1)
    group = group_name()
    conf = client_conf(real_cluster, group)
    member = Member(conf, [topic], lambda _: None, commit_interval=3_600.0).start()
    write(real_cluster, topic, numbered(PART))
    eventually(lambda: member.done() == PART, WAIT)
    member.app.pause(topics=[topic])
    write(real_cluster, topic, numbered(PART))
    assert member.stop() == 0
    assert committed(real_cluster, group, topic)[0] == PART
