"""What handlers hand out, by pods and by Spark, with the batch and by names that say of what."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from kafka_keyshared import Output
from kafka_keyshared.cli.output_sinks import checked_place, outputs_to
from kafka_keyshared.errors import KeySharedError, TopicMissingError
from kafka_keyshared.executors.handling.outputs import OutputTarget, outputs_taken
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver import batch
from kafka_keyshared.spark.driver.group import SoleMember
from kafka_keyshared.spark.driver.run import run_batches
from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import (
    PARTITIONS,
    Eventually,
    an_app,
    filled,
    produce,
    read_all,
    run_pod,
    wanted,
)

NO_RETRY = {"dlq": True, "dlq_create": True, "retry": {"attempts": 1}}


def answering() -> Callable[[Record], Any]:
    """A handler that hands out what it reads, and gives up one record of ten."""

    def handle(record: Record) -> Any:
        if int(record.value()) % 10 == 3:
            raise ValueError("no answer")
        return [Output(record.value(), record.key(), [("n", str(record.offset()))])]

    return handle


def answers(numbers: range) -> list[int]:
    return [number for number in numbers if number % 10 != 3]


@pytest.mark.timeout(600)
def test_pods_and_spark_write_the_same_topic_each_key_in_order(
    session: Session, real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    real_cluster.create_topic(f"{topic}.dlq", 8)
    out = f"{topic}.out"
    app = an_app(real_cluster, topic, answering(), **NO_RETRY)
    with pytest.raises(TopicMissingError, match=r"--outputs topic:.* create it first"):
        checked_place(f"topic:{out}", app.conf, [topic])
    real_cluster.create_topic(out, PARTITIONS)
    place = checked_place(f"topic:{out}", app.conf, [topic])
    produce(real_cluster, topic, range(100))
    with outputs_to(place, app.conf) as take:
        taken: list[Record] = []

        def noting(record: Record, outputs: Sequence[Output]) -> None:
            take(record, outputs)
            taken.append(record)

        app.handler(outputs_taken(answering(), noting))
        assert run_pod(app, lambda: len(taken) >= 90, eventually) == 0
    produce(real_cluster, topic, range(100, 300))
    app = an_app(real_cluster, topic, answering(), **NO_RETRY)
    done_here = run_batches(session.spark, replace(wanted(app), outputs=place))
    assert done_here.outputs == 180
    found = read_all(real_cluster, out)
    assert sorted(int(each.value()) for each in found) == answers(range(300))
    by_key = defaultdict(list)
    partitions = defaultdict(set)
    for each in sorted(found, key=lambda each: each.offset()):
        headers = dict(each.headers())
        name = headers["keyshared.output"].decode()
        assert name.rpartition("@")[2] == f"{headers['n'].decode()}/0"
        if each.key() is not None:
            by_key[each.key()].append(int(each.value()))
            partitions[each.key()].add(each.partition())
    assert len({dict(each.headers())["keyshared.output"] for each in found}) == len(found)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert {len(each) for each in partitions.values()} == {1}, "pods and Spark agree whose a key is"
    letters = read_all(real_cluster, f"{topic}.dlq")
    assert sorted(int(each.value()) for each in letters) == list(range(3, 300, 10))
    of_letters = {(each.key(), each.partition()) for each in letters}
    assert len(of_letters) == len({each.key() for each in letters}) == 2, "and of whom a letter is"


def produce_to(cluster: Cluster, topic: str, partition: int, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, b"%d" % number, f"k{number % 5}", partition)
    assert producer.flush(30) == 0


def lines_in(place: Path) -> list[dict[str, Any]]:
    """Return the outputs in all batches of a folder."""
    return [
        json.loads(line)
        for file in place.glob("batch=*/*.txt")
        for line in file.read_text().splitlines()
    ]


@pytest.mark.timeout(600)
def test_outputs_are_there_once_whatever_the_group_gets_before_the_second_attempt(
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record in another partition, then a partition, then a lost answer to the commit."""
    real_cluster.create_topic(topic, PARTITIONS)
    produce_to(real_cluster, topic, 0, range(40))
    app = an_app(real_cluster, topic, lambda record: Output(record.value()))
    lines = replace(wanted(app), outputs=OutputTarget("json", str(tmp_path)))
    commit = SoleMember.commit

    def killed(member: SoleMember, entries: Any, *, first: bool = False) -> None:
        if first:
            commit(member, entries)
        raise KeySharedError("the driver is killed")

    def attempt(*, commits: bool = False) -> None:
        with monkeypatch.context() as patched, pytest.raises(KeySharedError, match="is killed"):
            patched.setattr(SoleMember, "commit", partialmethod(killed, first=commits))
            run_batches(session.spark, lines)

    attempt()
    assert len(lines_in(tmp_path)) == 40
    produce_to(real_cluster, topic, 1, range(40, 41))
    attempt()
    assert len(lines_in(tmp_path)) == 41
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(30)
    produce_to(real_cluster, topic, PARTITIONS, range(41, 43))
    attempt(commits=True)
    produce_to(real_cluster, topic, 2, range(43, 44))
    assert run_batches(session.spark, lines).outputs == 1
    told = lines_in(tmp_path)
    assert sorted(int(each["value"]["text"]) for each in told) == list(range(44))
    assert len({each["output"] for each in told}) == 44
    assert list((tmp_path / "_uncommitted").glob("*.json")) == []


@pytest.mark.timeout(600)
def test_outputs_in_files_are_there_once_also_where_a_batch_is_run_again(
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled(real_cluster, topic, 100)
    app = an_app(real_cluster, topic, answering(), **NO_RETRY)
    lines = replace(wanted(app), outputs=OutputTarget("json", str(tmp_path / "lines")))
    written = batch.write_outputs

    def write_and_fail(*given: Any) -> None:
        written(*given)
        raise KeySharedError("the cluster is gone")

    with monkeypatch.context() as patched, pytest.raises(KeySharedError, match="cluster is gone"):
        patched.setattr(batch, "write_outputs", write_and_fail)
        run_batches(session.spark, lines)
    produce(real_cluster, topic, range(100, 150))
    assert run_batches(session.spark, lines).outputs == 135
    told = lines_in(tmp_path / "lines")
    assert sorted(int(each["value"]["text"]) for each in told) == answers(range(150))
    assert len({each["output"] for each in told}) == 135

    produce(real_cluster, topic, range(150, 200))
    columns = replace(lines, outputs=OutputTarget("parquet", str(tmp_path / "columns")))
    assert run_batches(session.spark, columns).outputs == 45
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "columns")
    assert sorted(map(int, table["value"].to_pylist())) == answers(range(150, 200))
    assert table["output"][0].as_py().startswith(f"{topic}-")
