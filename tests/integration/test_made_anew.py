"""A topic that is deleted and made anew under its reader: everything in it is new, and runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.runtime import topic_ids
from kafka_keyshared.testing.clusters.broker import RealCluster
from tests.chaos.processes import MORTAL_BROKER
from tests.conftest import Eventually
from tests.support.live_cluster import Member, client_conf, committed, group_name, made_anew, write

OLD = [(b"key", b"old-%d" % at) for at in range(200)]


class Held(AuditedClient):
    """Brings nothing, and says nothing, unless it is free to."""

    free = threading.Event()

    def poll(self, timeout: float) -> Record | None:
        return super().poll(timeout) if self.free.wait(timeout) else None

    def consume(self, count: int) -> list[Record]:
        return super().consume(count) if self.free.is_set() else []


class Story:
    """A member that has done all of a topic, and hears of nothing while that is made anew."""

    def __init__(self, cluster: RealCluster, topic: str, eventually: Eventually) -> None:
        self.cluster, self.topic, self.eventually = cluster, topic, eventually
        self.group = group_name()
        self.ran: list[bytes] = []
        cluster.create_topic(topic, 1)
        write(cluster, topic, OLD, partition=0)
        # Longer than a broker needs to come back.
        conf = client_conf(cluster, self.group, session_timeout_ms=30_000) | MORTAL_BROKER
        Held.free.set()
        self.member = Member(conf, [topic], self.handle, client=Held).start()
        eventually(lambda: self.member.position() == len(OLD), 60.0)
        eventually(self.knows_the_id, 60.0)
        Held.free.clear()
        made_anew(cluster, topic, 1, eventually)

    def handle(self, record: Any) -> None:
        self.ran.append(record.value())

    def knows_the_id(self) -> bool:
        instance, partition = self.member.app.instance, TopicPartition(self.topic, 0)
        assert instance is not None
        return instance.core.partitions[partition].topic_id is not None

    def assert_goes_on(self, count: int) -> list[bytes]:
        """Write so many, and see that all have run at last, in order, and are committed."""
        expected = [b"new-%d" % at for at in range(count)]
        write(self.cluster, self.topic, [(b"key", value) for value in expected], partition=0)
        Held.free.set()
        self.eventually(lambda: self.ran[-count:] == expected, 60.0)
        assert self.member.stop() == 0
        assert committed(self.cluster, self.group, self.topic, 0)[0] == count
        return expected


def test_a_topic_made_anew_is_read_from_its_start_also_where_the_epoch_of_its_leader_has_risen(
    broker_of_my_own: RealCluster,
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the epoch alone it is taken for one that was cut off, and its records are left out."""
    story = Story(broker_of_my_own, topic, eventually)
    broker_of_my_own.restart()
    expected = story.assert_goes_on(30)
    assert story.ran[len(OLD) :] == expected, "once"
    assert "its topic has another id" in caplog.text


def test_a_topic_made_anew_that_has_outgrown_the_old_one_is_noticed_by_its_id(
    broker_of_my_own: RealCluster,
    topic: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fetches go on in it as if nothing had happened."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY", 1.0)
    story = Story(broker_of_my_own, topic, eventually)
    expected = story.assert_goes_on(300)
    assert len(story.ran) >= len(OLD) + len(expected), "what was read of it before may run again"
