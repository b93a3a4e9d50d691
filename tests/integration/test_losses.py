"""A partition that is lost and comes straight back to its member goes on where it was.

Nothing may be committed at a loss, and nobody else has been there; so what had settled is settled.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_keyshared import Retry
from kafka_keyshared.observability.audit.ledger import MemoryLedger, OwnershipChanged
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    group_name,
    numbered,
    write,
)


def losses(member: Member) -> int:
    """How many partitions it has lost so far."""
    return sum(
        isinstance(event, OwnershipChanged) and event.change == "lost"
        for event in member.ledger.events.copy()
    )


def start(
    cluster: Cluster, topic: str, strategy: str, eventually: Eventually
) -> tuple[Member, MemoryLedger, threading.Event]:
    """Return a member with accepted commits and one record that waits until a partition is lost.

    So there is something settled beyond the position. The event lets records go on.
    """
    cluster.create_topic(topic, 2)
    conf = client_conf(cluster, group_name()) | {
        "partition.assignment.strategy": strategy,
        # On a busy machine a short session ends by itself, and that is a loss too many.
        "session.timeout.ms": 6_000,
    }
    written = MemoryLedger("producer")
    going = threading.Event()
    going.set()

    def handler(record: Any) -> Retry | None:
        if record.key() == b"late" and not losses(member):
            return Retry(after=3_600)
        assert going.wait(60)
        return None

    member = Member(conf, [topic], handler).start()
    write(cluster, topic, [(b"late", b""), *numbered(100)], written)
    eventually(lambda: member.done() == 100 and len(member.committed) == 2, 60.0)
    return member, written, going


def assert_goes_on(
    member: Member, cluster: Cluster, topic: str, written: MemoryLedger, eventually: Eventually
) -> None:
    """The member has everything again, does what is new, and nothing a second time."""
    eventually(lambda: losses(member) >= 2 and len(member.assigned) == 2, 60.0)
    write(cluster, topic, numbered(60), written)
    eventually(lambda: member.position() == len(written.events), 60.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_commit_of_an_old_generation_repeats_nothing(
    embedded_cluster: EmbeddedCluster, topic: str, eventually: Eventually, strategy: str
) -> None:
    """The client gives up all that it has when the broker refuses a commit so, and joins again."""
    member, written, _ = start(embedded_cluster, topic, strategy, eventually)
    embedded_cluster.fail_next("OffsetCommit", "ILLEGAL_GENERATION")
    write(embedded_cluster, topic, numbered(60), written)
    assert_goes_on(member, embedded_cluster, topic, written, eventually)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_what_ended_in_an_outage_is_not_done_again_after_it(
    topic: str, eventually: Eventually, strategy: str
) -> None:
    """The session ends while no broker is there; nobody else was alive to take the partitions."""
    with EmbeddedCluster() as cluster:
        member, written, going = start(cluster, topic, strategy, eventually)
        going.clear()
        write(cluster, topic, numbered(60), written)
        eventually(lambda: member.sub.window.records == 61, 60.0)
        cluster.broker_down()
        going.set()
        eventually(lambda: member.done() == 160, 60.0)
        eventually(lambda: losses(member) >= 2, 60.0)
        cluster.broker_up()
        assert_goes_on(member, cluster, topic, written, eventually)
