"""Batches on a real Spark over a real Kafka, and pods that go on where they end."""

from __future__ import annotations

import fcntl
import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from kafka_keyshared.cli.audit_log import audit_log
from kafka_keyshared.cli.run import write_down
from kafka_keyshared.cli.spark_run import SparkProgressLog
from kafka_keyshared.cli.spark_tools import spans_of
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.spark.audit import audit
from kafka_keyshared.spark.driver import batch
from kafka_keyshared.spark.driver.group import GroupActiveError
from kafka_keyshared.spark.driver.run import SparkRunOutcome, run_batches
from kafka_keyshared.spark.driver.stop import Stop
from kafka_keyshared.spark.logs import processed_log, source_records
from kafka_keyshared.spark.session import Session
from kafka_keyshared.spark.task import BatchShare, SparkJob
from kafka_keyshared.spark.task_log import TaskLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import (
    PARTITIONS,
    Eventually,
    an_app,
    by_key,
    filled,
    folders,
    noted,
    noting,
    produce,
    read_all,
    run_pod,
    wanted,
)


def test_pods_go_on_where_a_batch_has_ended(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """Nothing is lost, nothing repeated, and each key stays in order."""
    filled(real_cluster, topic, 900)
    pods, spark = folders(tmp_path)
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, noting(spark))))
    assert (outcome.records, outcome.batches, outcome.ended) == (900, 1, "caught_up")
    assert sorted(each[1] for each in noted(spark)) == list(range(900))
    assert all(numbers == sorted(numbers) for numbers in by_key(spark).values())
    produce(real_cluster, topic, range(900, 1_000))
    app = an_app(real_cluster, topic, noting(pods))
    assert run_pod(app, lambda: len(noted(pods)) >= 100, eventually) == 0
    assert sorted(each[1] for each in noted(pods)) == list(range(900, 1_000))


def test_dead_letters_are_those_that_pods_would_write(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    filled(real_cluster, topic, 300)
    handler = noting(tmp_path, lambda number: number % 10 == 3)
    options = {"dlq": True, "dlq_create": True, "retry": {"attempts": 2, "backoff": 0.01}}
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, handler, **options)))
    assert (outcome.handled, outcome.dead_lettered, outcome.ended) == (270, 30, "caught_up")
    letters = read_all(real_cluster, f"{topic}.dlq")
    assert sorted(int(each.value()) for each in letters) == list(range(3, 300, 10))
    for letter in letters:
        told = dict(letter.headers())
        assert told["n"] == letter.value()
        assert told["keyshared.error.message"] == b"poison " + letter.value()
        assert told["keyshared.attempts"] == b"2"
        assert told["keyshared.source.topic"] == topic.encode()
        assert told["keyshared.source.group"] == f"g-{topic}".encode()
        assert int(told["keyshared.first.failure"]) > 1_600_000_000_000


def test_a_blocked_key_is_handed_over_with_everything_else_settled(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    filled(real_cluster, topic, 400)
    pods, spark = folders(tmp_path)
    handler = noting(spark, lambda number: number % 20 == 7 and number >= 107)
    options = {"retry": {"attempts": 2, "backoff": 0.01}}
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, handler, **options)))
    left = list(range(107, 400, 20))
    left = [each for each in left if each % 50 != 49]
    assert outcome.ended == "held_up"
    assert sorted(each[1] for each in noted(spark)) == sorted(set(range(400)) - set(left))
    app = an_app(real_cluster, topic, noting(pods), **options)
    assert run_pod(app, lambda: len(noted(pods)) >= len(left), eventually) == 0
    assert [each[1] for each in noted(pods)] == left, "each once, and in order"


def test_an_active_group_is_refused(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    filled(real_cluster, topic, 10)
    app = an_app(real_cluster, topic, noting(tmp_path))

    def refused() -> bool:
        if len(noted(tmp_path)) < 10:
            return False
        with pytest.raises(GroupActiveError, match="has 1 member"):
            run_batches(session.spark, wanted(an_app(real_cluster, topic, noting(tmp_path))))
        return True

    assert run_pod(app, refused, eventually) == 0
    assert len(noted(tmp_path)) == 10


def test_batches_follow_one_another_until_all_is_done(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    filled(real_cluster, topic, 300)
    told: list[tuple[str, int]] = []

    def watch(what: str, plan: Any, done: SparkRunOutcome) -> None:
        told.append((what, done.records))

    app = an_app(real_cluster, topic, noting(tmp_path))
    outcome = run_batches(session.spark, wanted(app, most=60), watch)
    assert outcome.records == 300
    assert outcome.batches > 1
    assert told[-1] == ("committed", 300)
    assert sorted(each[1] for each in noted(tmp_path)) == list(range(300))
    assert json.loads(json.dumps(outcome.told()))["left"] == 0


def test_a_handler_class_goes_on_with_its_state_from_batch_to_batch(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    where = str(tmp_path)

    class Counting:
        def __init__(self) -> None:
            self.seen: dict[str, list[int]] = {}

        def handle(self, record: Any) -> None:
            if record.key() is not None:
                self.seen.setdefault(record.key().decode(), []).append(int(record.value()))

        def release(self, slots: Any) -> Any:
            from kafka_keyshared.hashing import slot_of

            gone = [key for key in self.seen if slot_of(key.encode()) in set(slots)]
            return {key: self.seen.pop(key) for key in gone}

        def adopt(self, slots: Any, state: Any) -> None:
            self.seen.update(state)

        def close(self) -> None:
            import json
            import uuid
            from pathlib import Path

            Path(where, f"{uuid.uuid4().hex}.json").write_text(json.dumps(self.seen))

    filled(real_cluster, topic, 300)
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, Counting), most=60))
    assert outcome.batches > 1
    told: dict[str, list[int]] = {}
    for file in tmp_path.glob("*.json"):
        for key, numbers in json.loads(file.read_text()).items():
            assert key not in told, "two workers have told of one key"
            told[key] = numbers
    assert {key: len(numbers) for key, numbers in told.items()} == {
        f"k{key}": len([n for n in range(key, 300, 20) if n % 50 != 49]) for key in range(20)
    }
    assert all(numbers == sorted(numbers) for numbers in told.values())


def test_a_batch_whose_letters_are_not_written_commits_nothing(
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run does all of it once more; a letter that is there twice says of which record."""
    filled(real_cluster, topic, 100)
    handler = noting(tmp_path, lambda number: number % 10 == 3)
    options = {"dlq": True, "dlq_create": True, "retry": {"attempts": 1}}
    app = an_app(real_cluster, topic, handler, **options)
    written = batch.write_letters

    def write_and_fail(*given: Any) -> None:
        written(*given)
        raise KeySharedError("the cluster is gone")

    with monkeypatch.context() as patched, pytest.raises(KeySharedError, match="cluster is gone"):
        patched.setattr(batch, "write_letters", write_and_fail)
        run_batches(session.spark, wanted(app))
    outcome = run_batches(session.spark, wanted(app))
    assert (outcome.records, outcome.dead_lettered) == (100, 10)
    letters = read_all(real_cluster, f"{topic}.dlq")
    places = [source_of(each.headers()) for each in letters]
    assert len(places) == 20
    assert len(set(places)) == 10


def test_a_stream_goes_on_with_what_comes_until_it_is_stopped(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """A key that blocks is not run again and again while nothing comes."""
    filled(real_cluster, topic, 100)
    stop = Stop()
    left: list[int] = []

    def watch(what: str, plan: Any, done: SparkRunOutcome) -> None:
        if what != "committed":
            return
        left.append(done.left)
        if len(left) == 1:
            produce(real_cluster, topic, range(100, 150))
        else:
            stop.ask()

    handler = noting(tmp_path, lambda number: number == 7)
    app = an_app(real_cluster, topic, handler, retry={"attempts": 1})
    outcome = run_batches(session.spark, wanted(app), watch, stop, streams=True)
    behind = [number for number in range(7, 150, 20) if number % 50 != 49]
    assert (outcome.ended, outcome.batches) == ("stopped", 2)
    assert sorted(each[1] for each in noted(tmp_path)) == sorted(set(range(150)) - set(behind))
    assert left[1] >= len(behind)


def test_pods_then_spark_then_pods_with_failures_at_each_change(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """Each record is run to its end once, and each key in order, whoever had it.

    And an audit of what all three have written says so.
    """
    real_cluster.create_topic(topic, PARTITIONS)
    options = {"retry": {"attempts": 2, "backoff": 0.01}}
    log = str(tmp_path / "log")

    def pod(handler: Any, until: Callable[[], bool]) -> None:
        app = an_app(real_cluster, topic, handler, **options)
        with audit_log(log) as rows:
            write_down(app, handler, rows)
            assert run_pod(app, until, eventually) == 0

    places = [tmp_path / each for each in ("first", "spark", "last")]
    for place in places:
        place.mkdir()
    first, spark, last = places

    def blocked(*keys: int) -> set[int]:
        return {n for n in range(50, 600) if n % 20 in keys and n % 50 != 49}

    produce(real_cluster, topic, range(200))
    one, two = blocked(3, 7), blocked(7, 11)
    done = set(range(200)) - one
    pod(noting(first, one.__contains__), lambda: len(noted(first)) >= len(done))
    produce(real_cluster, topic, range(200, 400))
    handler = audited(noting(spark, two.__contains__), TaskLedger())
    app = an_app(real_cluster, topic, handler, **options)
    logged = replace(wanted(app), audit_log=log)
    assert run_batches(session.spark, logged).ended == "held_up"
    assert {each[1] for each in noted(first)} == done
    assert {each[1] for each in noted(spark)} == set(range(400)) - done - two
    produce(real_cluster, topic, range(400, 600))
    rest = 600 - len(noted(first)) - len(noted(spark))
    pod(noting(last), lambda: len(noted(last)) >= rest)
    everything = sorted(each[1] for place in places for each in noted(place))
    assert everything == list(range(600)), "each once"
    for place in places:
        assert all(numbers == sorted(numbers) for numbers in by_key(place).values())
    spans = spans_of(app.conf, [topic], None)
    rows = processed_log(session.spark, log, {})
    found = audit(rows, source_records(session.spark, app.conf, spans))
    assert found.clean, found.findings
    assert (found.totals["produced"], found.totals["ok"]) == (600, 600)
    assert found.totals["incarnations"] == 2 + 4, "two pods, and a task for each worker"


def test_records_of_a_task_are_sorted_by_topic_partition_and_offset(session: Session) -> None:
    topics = {"a": (2, 0), "b": (1,), "c": (0, 30)}
    shares = {
        TopicPartition(topic, partition): BatchShare(StartPoint(0), 0, 1_000)
        for topic, partitions in topics.items()
        for partition in partitions
    }
    rows = [(*each, offset) for each in shares for offset in (999, 0, 7, 512)]
    frame = session.spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    for end in (1_000, 1 << 60):
        wide = {each: BatchShare(StartPoint(0), 0, end) for each in shares}
        job = SparkJob(SubscriptionSettings(), [], wide, "g")
        found = frame.sort(batch.number_of(job)).collect()
        assert [tuple(each) for each in found] == sorted(rows), end


def test_records_that_retention_removes_behind_the_plan_are_told_and_the_rest_is_run(
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a pod, it goes on where the log begins by then."""
    real_cluster.create_topic(topic, 1)
    produce(real_cluster, topic, range(100))
    gone = 40

    def watch(what: str, plan: Any, done: SparkRunOutcome) -> None:
        if what == "begun":
            admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
            (deleted,) = admin.delete_records([ClientPartition(topic, 0, gone)]).values()
            deleted.result(30)

    outcome = run_batches(
        session.spark, wanted(an_app(real_cluster, topic, noting(tmp_path))), watch
    )
    assert (outcome.records, outcome.batches, outcome.ended) == (60, 1, "caught_up")
    assert outcome.positions == {f"{topic}-0": 100}
    assert sorted(each[1] for each in noted(tmp_path)) == list(range(gone, 100))
    assert "retention has removed records of the batch since it was planned" in caplog.text


def test_a_line_says_how_far_a_batch_is_and_another_what_came_of_it(
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    filled(real_cluster, topic, 60)
    gate = tmp_path / "gate"

    def handle(_record: Any) -> None:
        import fcntl

        with gate.open() as shut:
            fcntl.flock(shut, fcntl.LOCK_SH)

    caplog.set_level(logging.INFO, "kafka_keyshared")
    telling = SparkProgressLog(session.spark)
    app = an_app(real_cluster, topic, handle)
    how_far = re.compile(r"batch 1: 60 offsets of \d partitions, \d+ s: \d+ of \d+ tasks")
    with gate.open("w") as shut:
        fcntl.flock(shut, fcntl.LOCK_EX)
        run = Aside(lambda: run_batches(session.spark, wanted(app), telling.watch), name="batches")
        while not any(map(how_far.fullmatch, caplog.messages)):
            assert not run.over
            telling.tick()
    assert run.wait(120)
    assert run.result().ended == "caught_up"
    (line,) = [each for each in caplog.messages if each.startswith("batch 1 committed")]
    assert re.fullmatch(
        r"batch 1 committed: 60 records in [\d.]+ s \(\d+ a second\), 0 dead letters so far, "
        r"0 offsets left",
        line,
    )
