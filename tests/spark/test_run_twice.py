"""A task that Spark runs twice: nothing counts twice, and what is written twice is known as one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafka_keyshared import Output
from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.executors.handling.outputs import OutputTarget
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver import batch
from kafka_keyshared.spark.driver.run import SparkRunOutcome, run_batches
from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import PARTITIONS, an_app, produce, read_all, wanted
from tests.support.cli import in_process

RECORDS = 200
DIES_AT = 190
"""Its task has handed out most of what it will by then."""

POISON = {number for number in range(RECORDS) if number % 10 == 3}
OPTIONS = {"dlq": True, "dlq_create": True, "retry": {"attempts": 1}}


def handling(place: Path, dies_at: int = -1) -> Callable[[Record], Any]:
    """Answers each record and notes its call; the process dies that first has a certain one."""
    where = str(place)

    def handle(record: Record) -> Any:
        import os
        from contextlib import suppress
        from pathlib import Path

        number = int(record.value())
        with Path(where, "calls").open("a") as file:
            file.write(f"{number}\n")
        if number == dies_at:
            with suppress(FileExistsError):
                Path(where, "died").touch(exist_ok=False)
                os._exit(1)
        if number % 10 == 3:
            raise ValueError("no answer")
        return Output(record.value(), record.key())

    return handle


def run(session: Session, cluster: Cluster, topic: str, handler: Any) -> SparkRunOutcome:
    cluster.create_topic(topic, PARTITIONS)
    cluster.create_topic(f"{topic}.out", PARTITIONS)
    produce(cluster, topic, range(RECORDS))
    app = an_app(cluster, topic, handler, **OPTIONS)
    return run_batches(
        session.spark, replace(wanted(app), outputs=OutputTarget("topic", f"{topic}.out"))
    )


def written(cluster: Cluster, topic: str) -> tuple[list[Any], Counter[bytes]]:
    """Return the records of the dead letters, and how often there is an output of each name."""
    letters = [source_of(each.headers()) for each in read_all(cluster, f"{topic}.dlq")]
    outputs = read_all(cluster, f"{topic}.out")
    assert {int(each.value()) for each in outputs} == set(range(RECORDS)) - POISON
    return letters, Counter(dict(each.headers())["keyshared.output"] for each in outputs)


def test_what_an_attempt_that_died_had_handed_out_counts_for_nothing(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    done = run(session, real_cluster, topic, handling(tmp_path, DIES_AT))
    calls = Counter(map(int, (tmp_path / "calls").read_text().split()))
    assert max(calls.values()) == 2, "no task was run twice, so this has shown nothing"
    assert set(calls) == set(range(RECORDS))
    assert (done.records, done.dead_lettered, done.outputs) == (RECORDS, len(POISON), 180)
    assert (done.batches, done.left, sum(done.positions.values())) == (1, 0, RECORDS)
    letters, names = written(real_cluster, topic)
    assert len(letters) == len(set(letters)) == len(POISON)
    assert set(names.values()) == {1}
    assert len(names) == 180


def failing_behind_its_rows(place: Path) -> Callable[..., Iterator[Any]]:
    """Passes rows on; the task that first has some fails when it has passed on all of its own."""
    where = str(place)

    def passed(batches: Iterable[Any]) -> Iterator[Any]:
        from contextlib import suppress
        from pathlib import Path

        rows = 0
        for each in batches:
            rows += each.num_rows
            yield each
        if rows:
            with suppress(FileExistsError):
                Path(where).touch(exist_ok=False)
                raise ArithmeticError("the machine is gone")

    return passed


def test_letters_and_outputs_that_were_written_twice_are_known_as_one(  # noqa: PLR0917
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each of the two writes has one task that fails behind what it has sent, and runs again."""
    write, writes = batch._to_kafka, iter(range(2))

    def write_twice(rows: Any, source: batch.TopicSource) -> None:
        passed = failing_behind_its_rows(tmp_path / f"write-{next(writes)}")
        write(rows.mapInArrow(passed, rows.schema), source)

    monkeypatch.setattr(batch, "_to_kafka", write_twice)
    done = run(session, real_cluster, topic, handling(tmp_path))
    assert (done.records, done.dead_lettered, done.outputs) == (RECORDS, len(POISON), 180)
    assert sum(done.positions.values()) == RECORDS
    letters, names = written(real_cluster, topic)
    doubles = len(letters) - len(POISON)
    assert doubles > 0, "no letter was written twice, so this has shown nothing"
    assert len(set(letters)) == len(POISON)
    assert max(names.values()) == 2
    assert len(names) == 180
    asked = in_process(capsys, "dlq", "replay", "-b", real_cluster.bootstrap, "-t", topic, "--json")
    assert asked.status == 0, asked.err
    plan = json.loads(asked.out)
    assert (plan["to_replay"], plan["copies"]) == (len(POISON), doubles)
