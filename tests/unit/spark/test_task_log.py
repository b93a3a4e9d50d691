"""What a task writes into the processed log, and what it leaves to be written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Record
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.observability.audit.processed import ProcessedRow
from kafka_keyshared.spark.task import Drive, SparkJob
from kafka_keyshared.spark.task_log import LogRow, TaskLedger, open_lines, write_whole
from tests.support.processed_rows import read_rows
from tests.unit.spark.test_task import P0, of, share


def fails_at_one(each: Record) -> None:
    if each.offset() == 1:
        raise ValueError("no such customer")


def ran(
    place: str, *records: Record, handler: Any = fails_at_one, **given: Any
) -> list[ProcessedRow]:
    """Run the records as one task; return the rows that it hands out."""
    given.setdefault("retry", RetryPolicy(attempts=2, backoff=0.0))
    settings = SubscriptionSettings(workers=worker_names(1), **given)
    # As it travels to an executor.
    ledger = pickle.loads(pickle.dumps(TaskLedger()))
    specs = [WorkerSpec("default", 0, "worker-0", maker(audited(handler, ledger)))]
    job = SparkJob(
        settings, specs, {P0: share(0, len(records))}, "g", {"t": "t.dlq"}, audit_log=place
    )
    out = list(Drive(job, 0).run_all([records]))
    rows = [each for each in out if isinstance(each, LogRow)]
    assert out[-1].rows == len(rows)  # type: ignore[union-attr]
    return read_rows(b"".join(each.line + b"\n" for each in rows))


def written(folder: Path) -> list[ProcessedRow]:
    return [row for file in folder.glob("*.jsonl") for row in read_rows(file.read_bytes())]


def told(rows: list[ProcessedRow]) -> list[tuple[str, int, str | None]]:
    return [(row.event, row.offset, row.outcome) for row in rows]


FAILED_TWICE = [("handled", 0, "ok"), *[("handled", 1, "failed")] * 2]


def test_calls_are_in_the_folder_and_a_letter_is_told_once_it_is_written(tmp_path: Path) -> None:
    """Its time is before that of what follows it in its key, or an audit would call it overtaken"""
    given = {"on_exhausted": "dead_letter", "dlq": True}
    [letter] = ran(str(tmp_path / "log"), of(0), of(1), of(2), **given)
    rows = written(tmp_path / "log")
    assert told(rows) == [*FAILED_TWICE, ("handled", 2, "ok")]
    assert told([letter]) == [("dead_lettered", 1, None)]
    assert rows[2].ended <= letter.ended <= rows[3].started
    assert [row.attempt for row in rows] == [1, 1, 2, 1]
    assert {(row.worker, row.key, row.incarnation) for row in rows} == {
        ("worker-0", b"k", letter.incarnation)
    }


def test_what_goes_to_a_topic_is_handed_out_with_its_key() -> None:
    rows = ran("topic:log", of(0), of(1), of(2), on_exhausted="drop")
    assert told(rows) == [*FAILED_TWICE, ("dropped", 1, None), ("handled", 2, "ok")]
    assert [row.key for row in rows if row.event == "handled"] == [b"k"] * 4


def test_the_key_is_the_one_that_order_goes_by() -> None:
    [alone] = ran("topic:log", of(0, None))
    assert alone.key is None
    [row] = ran("topic:log", of(0, None), null_keys="one-lane")
    assert row.key is not None
    assert row.key != b""


def test_a_handler_class_reports_too() -> None:
    class Counting:
        def handle(self, each: Record) -> None:
            fails_at_one(each)

    rows = ran("topic:log", of(0), of(1), handler=Counting, on_exhausted="drop")
    assert told(rows) == [*FAILED_TWICE, ("dropped", 1, None)]


def test_outside_a_task_a_wrapped_handler_is_refused() -> None:
    with pytest.raises(InvariantError, match="outside a task"):
        audited(fails_at_one, TaskLedger())(of(0))


def test_rows_of_letters_are_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def cut() -> Any:
        yield b"one"
        raise OSError("the executor is gone")

    write_whole(tmp_path / "log", "none", [])
    assert not (tmp_path / "log").exists()
    with pytest.raises(OSError, match="gone"):
        write_whole(tmp_path, "rows", cut())
    assert list(tmp_path.glob("*.jsonl")) == []
    for _ in range(2):
        write_whole(tmp_path, "rows", [b"one", b"two"])
    (file,) = tmp_path.glob("*.jsonl")
    assert file.read_text() == "one\ntwo\n"


def test_a_folder_that_an_executor_cannot_write_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="on every executor"):
        open_lines(tmp_path / "file", "x")
