"""Members that come and go in the middle of a stream: nothing reordered, lost, repeated."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from kafka_keyshared import lease_of
from kafka_keyshared.lab.demo.sabotage import HastyClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import CommitSent, MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    group_name,
    judged,
    numbered,
    sets_before_the_revoke,
    settled_sets,
    write,
)

PARTITIONS = 4
AHEAD = 500
PAUSE = threading.Event()


def slow(record: Any) -> None:
    """Take 5 to 20 ms, by the record's value."""
    PAUSE.wait(0.005 + int(record.value()) % 16 / 1_000)


stream = partial(numbered, keys=97)


def covered(*members: Member) -> int:
    """Return the sum of the highest positions that the broker accepted from any of them."""
    highest: dict[TopicPartition, int] = {}
    for member in members:
        for partition, position in member.committed.copy().items():
            highest[partition] = max(highest.get(partition, 0), position)
    return sum(highest.values())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_joins_and_leaves_in_the_middle_of_a_stream(
    any_cluster: Cluster, topic: str, eventually: Eventually, strategy: str
) -> None:
    conf = client_conf(any_cluster, group_name()) | {"partition.assignment.strategy": strategy}
    check_join_and_leave(any_cluster, topic, conf, eventually)


def test_members_come_and_go_under_the_protocol_of_kip_848(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    conf = client_conf(real_cluster, group_name()) | {"group.protocol": "consumer"}
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):  # the broker's to say
        del conf[name]
    check_join_and_leave(real_cluster, topic, conf, eventually)


def check_join_and_leave(
    cluster: Cluster, topic: str, conf: dict[str, Any], eventually: Eventually
) -> None:
    """A second member takes its share of the stream, gives it back, and everything is judged."""
    cluster.create_topic(topic, PARTITIONS)
    written = MemoryLedger("producer")
    first = Member(conf, [topic], slow, name="first", workers=8)
    second = Member(conf, [topic], slow, name="second", workers=8)

    def enough(member: Member) -> bool:
        """Whether the member has done its share; until then the stream goes on."""
        if len(written.events) - first.done() - second.done() < AHEAD:
            write(cluster, topic, stream(AHEAD), written)
        return member.done() >= 150

    first.start()
    eventually(lambda: enough(first), 30.0)
    second.start()
    eventually(lambda: enough(second), 60.0)
    assert len(first.assigned) < PARTITIONS
    assert second.stop() == 0
    write(cluster, topic, stream(200), written)
    eventually(lambda: covered(first, second) == len(written.events), 60.0)
    assert first.stop() == 0

    verdict = judged(written, first.ledger, second.ledger)
    found = {name: count for name, count in verdict.counts().items() if count}
    if cluster.kind == "embedded":
        # librdkafka's mock refuses every commit while its group rebalances, that of a revoke too.
        found.pop("duplicates", None)
    assert not found, "\n".join(verdict.lines())
    assert verdict.duplicates_after_commit.count == 0


def test_a_stop_commits_the_settled_set_with_the_position(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """One key hangs back at offset 0: what others did beyond it goes along with the position."""
    any_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(any_cluster, topic, [(b"bad", b"0"), *stream(40, keys=5)], written)
    group = group_name()
    conf = client_conf(any_cluster, group)
    mended = threading.Event()

    def handler(record: Any) -> None:
        if record.key() == b"bad" and not mended.is_set():
            raise ValueError("not yet")

    first = Member(conf, [topic], handler, commit_interval=3600.0).start()
    eventually(lambda: first.done() == 40, 30.0)
    assert first.stop() == 0

    assert settled_sets(any_cluster, group, topic) == (0, {"default": ((1, 41),)})
    mended.set()
    second = Member(conf, [topic], handler, name="second").start()
    eventually(lambda: second.position() == 41, 30.0)
    assert second.stop() == 0
    assert_clean(written, first.ledger, second.ledger)


def test_a_revoke_commits_position_and_settled_set(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Nothing else commits here, so that nothing runs again is the work of the revoke alone."""
    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    for partition in range(2):
        slow_key = b"slow-%d" % partition
        records = [(slow_key, b"") if at % 3 == 0 else (b"key-%d" % at, b"") for at in range(200)]
        write(real_cluster, topic, records, written, partition=partition)
    hurry = threading.Event()

    def handler(record: Any) -> None:
        if record.key().startswith(b"slow"):
            hurry.wait(0.3)

    conf = client_conf(real_cluster, group_name())
    first = Member(conf, [topic], handler, workers=8, commit_interval=3_600.0).start()
    eventually(lambda: first.done() >= 120, 30.0)
    second = Member(conf, [topic], handler, name="second", workers=8).start()
    eventually(lambda: len(second.assigned) == 1, 30.0)
    hurry.set()
    eventually(lambda: covered(first, second) == 400, 60.0)
    assert second.stop() == 0
    assert first.stop() == 0

    assert_clean(written, first.ledger, second.ledger)
    assert any(sets_before_the_revoke(first.ledger)), "a set went with a position"


def test_what_outlasts_the_revoke_deadline_runs_again_and_is_named(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafka_keyshared")
    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    for partition in range(2):
        # Without keys, so that each goes to a worker of its own.
        write(real_cluster, topic, [(None, b"0")], written, partition=partition)
    conf = client_conf(real_cluster, group_name())
    release = threading.Event()
    begun = threading.Semaphore(0)
    over: list[tuple[bool, bool]] = []

    def hangs(record: Any) -> None:
        lease = lease_of(record)
        before = lease.over()
        begun.release()
        release.wait(60)
        over.append((before, lease.over()))

    first = Member(conf, [topic], hangs, revoke_deadline=0.3).start()
    assert begun.acquire(timeout=30)
    assert begun.acquire(timeout=30)
    second = Member(conf, [topic], lambda record: None, name="second").start()
    eventually(lambda: second.done() >= 1, 30.0)
    release.set()
    eventually(lambda: first.position() + second.position() >= 2, 30.0)
    assert second.stop() == 0
    assert first.stop() == 0

    assert over.count((False, True)) == 2, "a handler that asks is told"
    verdict = judged(written, first.ledger, second.ledger)
    assert verdict.lost.count == 0
    assert verdict.duplicates.count + verdict.overlaps.count >= 1, "it outlasted the deadline"
    assert verdict.commits_past_unsettled.count == 0
    assert "past the deadline, may run again: 2 running" in caplog.text


def test_a_lost_assignment_is_not_committed(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """A member that does not poll in time loses its partitions; it goes on when it has others.

    What it had done is done, when they come straight back: if it has ever committed anything, it
    can tell that nobody else has been there.
    """
    real_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(real_cluster, topic, stream(50), written)
    conf = client_conf(real_cluster, group_name()) | {"max.poll.interval.ms": 6_000}
    stalled = threading.Event()
    committed_before: list[int] = []
    sent_before: list[bool] = []

    class Stalling(Member):
        def _stepped(self, loop: Any) -> None:
            super()._stepped(loop)
            if self.done() >= 50 and not stalled.is_set():
                committed_before.append(self.position())
                sent_before.append(any(isinstance(e, CommitSent) for e in self.ledger.events))
                stalled.set()
                threading.Event().wait(7.5)

    member = Stalling(
        conf, [topic], lambda record: None, revoke_deadline=1.0, commit_interval=3_600.0
    ).start()
    eventually(stalled.is_set, 30.0)
    write(real_cluster, topic, stream(10), written)
    eventually(lambda: member.position() == 60, 60.0)
    assert member.stop() == 0
    changes = [event.change for event in member.ledger.events if hasattr(event, "change")]
    assert changes[:3] == ["assigned", "lost", "assigned"]
    verdict = judged(written, member.ledger)
    assert committed_before[0] < 50, "there was nothing left to commit when it was lost"
    assert verdict.duplicates.count == (0 if sent_before[0] else 50)
    assert verdict.lost.count == 0
    assert verdict.commits_without_ownership.count == 0
    assert verdict.commits_past_unsettled.count == 0
    assert verdict.duplicates_after_commit.count == 0


def test_the_oracle_finds_a_client_that_commits_too_much(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(embedded_cluster, topic, stream(300), written)
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], slow, client=HastyClient, commit_interval=0.05).start()
    eventually(lambda: member.done() == 300, 30.0)
    member.stop()
    assert judged(written, member.ledger).commits_past_unsettled.count > 0
