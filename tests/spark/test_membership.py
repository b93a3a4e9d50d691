"""The driver as the group's only member: who comes meanwhile, and what it costs them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.batch_plan import BatchPlan
from kafka_keyshared.spark.driver.group import GroupActiveError, GroupLostError, SoleMember
from kafka_keyshared.spark.driver.run import SparkRunOutcome, run_batches
from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import (
    PARTITIONS,
    Eventually,
    an_app,
    filled,
    folders,
    noted,
    noting,
    wanted,
)

# A member hears of who joins with its next heartbeat.
SOON = {"heartbeat.interval.ms": 300}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": SOON,
    "cooperative": {**SOON, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


def conf_of(cluster: Cluster, topic: str, protocol: str = "eager") -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **PROTOCOLS[protocol],
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_has_every_partition_and_says_where_the_group_stands(
    real_cluster: Cluster, topic: str, protocol: str
) -> None:
    filled(real_cluster, topic, 100)
    first = TopicPartition(topic, 0)
    with SoleMember(conf_of(real_cluster, topic, protocol), [topic]) as member:
        starts, untold = member.starts()
        assert untold == {TopicPartition(topic, number) for number in range(PARTITIONS)}
        assert {point.position for point in starts.values()} == {0}
        assert sum(point.log_end or 0 for point in starts.values()) == 100
        assert member.begin()
        member.commit({first: CommitEntry(3, "text")})
        member.end()
        starts, untold = member.starts()
        assert (starts[first].position, starts[first].metadata) == (3, "text")
        assert first not in untold


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_joins_waits_for_the_batch_and_goes_on_behind_its_commit(
    real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually, protocol: str
) -> None:
    filled(real_cluster, topic, 90)
    conf = conf_of(real_cluster, topic, protocol)
    app = an_app(real_cluster, topic, noting(tmp_path), conf=conf)
    with SoleMember(conf, [topic]) as member:
        starts, _ = member.starts()
        assert member.begin()
        pod = threading.Thread(target=app.run)
        pod.start()
        try:
            eventually(lambda: member.contested, 60)
            assert noted(tmp_path) == []
            ends = {each: point.log_end or 0 for each, point in starts.items()}
            half = {each: end // 2 for each, end in ends.items()}
            member.commit({each: CommitEntry(at, "") for each, at in half.items()})
            member.end()
            assert not member.begin()
            member.close()
            rest = sum(ends[each] - half[each] for each in ends)
            eventually(lambda: len(noted(tmp_path)) >= rest, 60)
        finally:
            app.stop()
            pod.join()
    ran = {(partition, offset) for _, _, partition, offset in noted(tmp_path)}
    assert ran == {
        (each.partition, offset) for each in ends for offset in range(half[each], ends[each])
    }
    assert len(noted(tmp_path)) == rest


def test_a_run_ends_after_its_batch_when_a_pod_joins(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    filled(real_cluster, topic, 600)
    pods, spark = folders(tmp_path)
    app = an_app(real_cluster, topic, noting(pods))
    pod = threading.Thread(target=app.run)

    def watch(what: str, plan: BatchPlan, done: SparkRunOutcome) -> None:
        if what == "begun" and not pod.ident:
            pod.start()

    other = an_app(real_cluster, topic, noting(spark), conf=SOON)
    try:
        outcome = run_batches(session.spark, wanted(other, most=100), watch)
        eventually(lambda: len(noted(pods)) + len(noted(spark)) >= 600, 60)
    finally:
        app.stop()
        pod.join()
    assert outcome.ended == "member_joined"
    assert outcome.batches < 3
    both = sorted(each[1] for each in noted(pods) + noted(spark))
    assert both == list(range(600)), "each once"


def test_a_second_driver_is_refused_and_one_that_has_left_commits_nothing(
    real_cluster: Cluster, topic: str
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    conf = conf_of(real_cluster, topic)
    with SoleMember(conf, [topic]) as member:
        second = SoleMember(conf, [topic])
        with pytest.raises(GroupActiveError, match="has 1 member"):
            second.__enter__()
    with pytest.raises(GroupLostError):
        member.commit({TopicPartition(topic, 0): CommitEntry(1, "")})


@pytest.mark.timeout(300)
def test_a_batch_that_is_late_for_a_pod_is_given_up_and_its_handlers_end(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """The pod runs its records again; nothing is committed over what it does."""
    filled(real_cluster, topic, 240)
    pods, spark = folders(tmp_path)
    note = noting(spark)

    def slowly(record: Any) -> None:
        from threading import Event

        Event().wait(0.5)
        note(record)

    short = {"session.timeout.ms": 6_000, "max.poll.interval.ms": 6_000}
    app = an_app(real_cluster, topic, noting(pods))
    pod = threading.Thread(target=app.run)

    def watch(what: str, plan: BatchPlan, done: SparkRunOutcome) -> None:
        if what == "begun":
            pod.start()

    late = wanted(an_app(real_cluster, topic, slowly, conf=short, revoke_deadline=2.0))
    try:
        with pytest.raises(GroupLostError, match="not ended within 5 s"):
            run_batches(session.spark, late, watch)
        eventually(lambda: len(noted(pods)) >= 240, 60)
    finally:
        app.stop()
        pod.join()
    assert sorted(each[1] for each in noted(pods)) == list(range(240))
    assert len(noted(spark)) < 240, "its handlers went on"
