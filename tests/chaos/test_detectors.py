"""What each scenario of this folder would find: the same scene with something broken in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.observability.audit.ledger import CommitAnswered, CommitSent, read_ledger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.processes import (
    PARTITIONS,
    RANGE,
    RECORDS,
    WORKERS,
    Incarnation,
    Scene,
    gated_keys,
    stream,
)
from tests.chaos.repeats import repeats
from tests.support.commits import falls, stored_commits


@pytest.fixture
def scene(real_cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    real_cluster.create_topic(topic, PARTITIONS)
    made = Scene(real_cluster, topic, tmp_path, RANGE | {"session.timeout.ms": 2_000})
    yield made
    made.close()


def set_accepted(member: Incarnation) -> bool:
    """Whether the broker has accepted a settled set of 100 records and more from it."""
    events = read_ledger(member.ledger_path).events if member.ledger_path.exists() else []
    accepted = {e.commit for e in events if isinstance(e, CommitAnswered) and e.accepted}
    return any(
        isinstance(e, CommitSent)
        and e.commit in accepted
        and sum(last - first + 1 for first, last in e.settled) >= 100
        for e in events
    )


def test_commits_that_come_too_early_are_found(scene: Scene) -> None:
    """Committed 500 beyond what is settled, then killed: the restart skips records."""
    scene.write(stream(RECORDS))
    # So slow that most is still to be done when it is seen to have committed.
    options = {"commit_interval": 0.05}
    hasty = scene.start("hasty", fault="hasty", options=options, pause=0.05)
    scene.until(lambda: hasty.ended() >= 200, hasty)
    scene.until(lambda: any(position > 0 for position in scene.committed()), hasty)
    hasty.kill()
    scene.drain(scene.start("last"))
    verdict = scene.verdict()
    assert verdict.commits_past_unsettled.count > 0
    assert verdict.lost.count > 0


@pytest.mark.parametrize(
    ("fault", "rule"), [("losing", "lost"), ("reordering", "order_violations")]
)
def test_a_member_that_loses_or_reorders_is_found(scene: Scene, fault: str, rule: str) -> None:
    scene.write(stream(RECORDS, keys=7))
    scene.drain(scene.start("broken", fault=fault, pause=0.0))
    assert scene.verdict().counts()[rule] > 0


def test_a_start_without_the_settled_set_is_found(scene: Scene) -> None:
    """One key hangs at the front, all behind it is settled; the next one knows nothing of that."""
    scene.write([(b"hang", b""), *stream(600)])
    first = scene.start("first", hangs="hang")
    scene.until(lambda: set_accepted(first), first)
    first.kill()
    scene.drain(scene.start("forgetful", fault="forgetful"))
    verdict = scene.verdict()
    assert verdict.duplicates_after_commit.count > 0
    again = repeats(scene.ledgers(), {"first"})
    assert again.stragglers["first"] > WORKERS
    assert not again.unexcused


def test_a_revoke_without_its_commit_is_found(scene: Scene) -> None:
    scene.write(stream(1_000))
    silent = scene.start("silent", fault="silent", options={"commit_interval": 3_600.0}, pause=0.02)
    scene.until(lambda: silent.ended() >= 100, silent)
    guest = scene.start("guest")

    def has_begun() -> bool:
        scene.keep_busy()  # one that idles commits, and nothing would run again
        return guest.ended() >= 1

    scene.until(has_begun, silent, guest)
    scene.drain(guest, silent)
    assert scene.verdict().duplicates.count > 0
    assert repeats(scene.ledgers(), ()).unexcused


def test_a_revoke_that_does_not_wait_is_found(scene: Scene) -> None:
    """Nothing is planted here but a deadline of 0: what runs then runs beside its new owner."""
    for number, key in enumerate(gated_keys()):
        scene.write([(key, b"")], partition=number)
    giver = scene.start("giver", options={"revoke_deadline": 0.0})
    scene.until(giver.said("at the gate", PARTITIONS), giver)
    taker = scene.start("taker")
    scene.until(taker.said("at the gate"), giver, taker)
    scene.open("handler")
    scene.drain(giver, taker)
    assert "past the deadline, may run again: 4 running" in giver.log()
    assert scene.verdict().overlaps.count > 0


def test_a_stored_commit_that_falls_is_found(scene: Scene) -> None:
    scene.write(stream(100))
    consumer = Consumer({"bootstrap.servers": scene.cluster.bootstrap, "group.id": scene.group})
    try:
        for position in (5, 10, 7, 7):
            at = ClientPartition(scene.topic, 0, position)
            consumer.commit(offsets=[at], asynchronous=False)
    finally:
        consumer.close()
    stored = stored_commits(scene.cluster, scene.group)
    assert [commit.position for commit in stored] == [5, 10, 7, 7]
    assert falls(stored) == [f"{stored[0].partition}: 7 was stored after 10"]
