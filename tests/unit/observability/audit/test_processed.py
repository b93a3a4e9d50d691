"""The processed log has a row for each call, and each row stands for itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_keyshared.observability.audit.ledger import LineFile, MemoryLedger, together
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.observability.audit.processed import (
    COLUMNS,
    ProcessedLog,
    ProcessedRow,
    to_lines,
)
from tests.support.processed_rows import read_rows


def message(offset: int = 5, key: bytes | None = b"k\xff") -> Any:
    return Message(topic="t", partition=2, offset=offset, key=key, value=b"v")


def rows_of(act: Any) -> list[ProcessedRow]:
    rows: list[ProcessedRow] = []
    act(ProcessedLog(lambda row, line: rows.append(row), "one", worker=lambda: "worker-3"))
    return rows


def test_a_call_is_one_row_with_calendar_times_in_the_order_of_what_happened() -> None:
    before = time.time_ns()

    def act(log: ProcessedLog) -> None:
        audited(lambda record: None, log)(message())

    (row,) = rows_of(act)
    assert (row.event, row.topic, row.partition, row.offset) == ("handled", "t", 2, 5)
    assert (row.key, row.worker, row.attempt, row.outcome) == (b"k\xff", "worker-3", 1, "ok")
    assert row.incarnation == "one"
    # A clock that is set back in between may take a second; an hour is a wrong epoch.
    assert abs(row.started - before) < 3_600 * 10**9
    assert row.started <= row.ended


def test_attempts_of_a_record_are_counted_until_it_is_settled() -> None:
    def act(log: ProcessedLog) -> None:
        outcomes: list[Any] = [ValueError("no"), ValueError("no"), None, None]

        def handle(record: Any) -> None:
            if (error := outcomes.pop(0)) is not None:
                raise error

        handler = audited(handle, log)
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                handler(message())
        handler(message())
        handler(message())

    found = [(row.attempt, row.outcome) for row in rows_of(act)]
    assert found == [(1, "failed"), (2, "failed"), (3, "ok"), (1, "ok")]


def test_what_settles_without_a_handler_and_what_was_written_have_rows() -> None:
    def act(log: ProcessedLog) -> None:
        log.produced("t", 0, 7, b"a")
        log.dropped("t", 0, 8)
        log.dead_letter_acknowledged("t", 0, 9)
        log.dead_lettered("t", 0, 9)  # read back: the row is there already
        log.commit_answered(log.commit_sent("t", 0, 10), accepted=True)
        log.assigned("t", 0)

    found = [(row.event, row.offset, row.key, row.started == row.ended) for row in rows_of(act)]
    assert found == [
        ("produced", 7, b"a", True),
        ("dropped", 8, None, True),
        ("dead_lettered", 9, None, True),
    ]


def test_the_key_is_what_the_order_goes_by() -> None:
    def act(log: ProcessedLog) -> None:
        log.key_of = lambda record: b"of " + (record.key() or b"")
        audited(lambda record: None, log)(message())

    assert rows_of(act)[0].key == b"of k\xff"


def test_rows_of_many_threads_come_back_from_a_file_and_a_torn_last_line_does_not(
    tmp_path: Path,
) -> None:
    file = LineFile(tmp_path / "rows.jsonl")
    log = ProcessedLog(to_lines(file))

    def nothing(record: Any) -> None: ...

    handler = audited(nothing, log)
    threads = [
        threading.Thread(target=lambda: [handler(message(n)) for n in range(50)], name=f"w-{name}")
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.write(b'{"event":"handled","to')
    whole = file.path.read_bytes()
    file.close()
    rows = read_rows(whole[:-1])
    assert len(rows) == 200
    assert {row.worker for row in rows} == {f"w-{name}" for name in range(4)}
    assert {row.incarnation for row in rows} == {log.incarnation}


def test_a_ledger_may_go_to_several_and_each_hears_all() -> None:
    rows: list[ProcessedRow] = []
    memory = MemoryLedger()
    log = ProcessedLog(lambda row, line: rows.append(row))
    audited(lambda record: None, together(memory.events.append, log.take))(message())
    assert len(memory.events) == 2
    assert [row.outcome for row in rows] == ["ok"]


def test_the_columns_are_those_that_were_promised() -> None:
    # They are read by other programs, from logs that are kept: a column may come, and none may go.
    assert COLUMNS[:11] == (
        *("event", "topic", "partition", "offset", "incarnation", "started", "ended"),
        *("key", "worker", "attempt", "outcome"),
    )
