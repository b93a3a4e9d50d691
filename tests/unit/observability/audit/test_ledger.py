"""Ledgers keep every event, by whichever thread, and a file one survives being killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from kafka_keyshared.observability.audit.judge import judge
from kafka_keyshared.observability.audit.ledger import (
    CommitAnswered,
    CommitSent,
    DeadLettered,
    Dropped,
    Ended,
    FileLedger,
    Ledger,
    LedgerError,
    MemoryLedger,
    OwnershipChanged,
    Produced,
    Started,
    read_ledger,
    read_ledgers,
)


def report_everything(ledger: Ledger) -> None:
    ledger.produced("t", 0, 5, b"\x00\xff\n")
    ledger.produced("t", 0, 6, None)
    ledger.assigned("t", 0)
    attempt = ledger.started("t", 0, 5, b"\x00\xff\n")
    ledger.ended(attempt, "failed")
    ledger.dropped("t", 0, 5)
    ledger.dead_letter_acknowledged("t", 0, 6)
    ledger.dead_lettered("t", 0, 6)
    commit = ledger.commit_sent("t", 0, 5, ((7, 8), (10, 10)))
    ledger.commit_answered(commit, accepted=False)
    ledger.revoked("t", 0)
    ledger.lost("t", 0)


def test_every_report_becomes_one_event_in_order() -> None:
    ledger = MemoryLedger("one")
    report_everything(ledger)
    assert [type(event) for event in ledger.events] == [
        Produced,
        Produced,
        OwnershipChanged,
        Started,
        Ended,
        Dropped,
        DeadLettered,
        DeadLettered,
        CommitSent,
        CommitAnswered,
        OwnershipChanged,
        OwnershipChanged,
    ]
    times = [at for event in ledger.events if (at := getattr(event, "at", None)) is not None]
    assert times == sorted(times)
    started = ledger.events[3]
    assert isinstance(started, Started)
    assert (started.key, started.worker) == (b"\x00\xff\n", threading.get_ident())
    assert isinstance(ledger.events[7], DeadLettered)
    assert ledger.events[7].at is None


def test_incarnations_differ_unless_named() -> None:
    assert MemoryLedger().incarnation != MemoryLedger().incarnation
    assert MemoryLedger("one").incarnation == "one"


def test_a_file_ledger_reads_back_what_was_written(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path, "one")
    report_everything(ledger)
    ledger.close()
    memory = MemoryLedger("one")
    report_everything(memory)
    (back,) = read_ledgers(tmp_path)
    assert back.incarnation == "one"
    assert [_timeless(event) for event in back.events] == [_timeless(e) for e in memory.events]


def _timeless(event: msgspec.Struct) -> msgspec.Struct:
    timed = getattr(event, "at", None) is not None
    return msgspec.structs.replace(event, at=0) if timed else event


def test_an_incarnation_has_one_file(tmp_path: Path) -> None:
    FileLedger(tmp_path, "one").close()
    with pytest.raises(FileExistsError):
        FileLedger(tmp_path, "one")


@pytest.mark.parametrize("cut", [1, 10, 15])
def test_a_torn_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    ledger = FileLedger(tmp_path, "one")
    ledger.ended(ledger.started("t", 0, 5, b"k"), "ok")
    ledger.close()
    os.truncate(ledger.path, ledger.path.stat().st_size - cut)
    events = read_ledger(ledger.path).events
    assert [type(event) for event in events] == [Started]


def test_an_empty_file_is_a_ledger_without_events(tmp_path: Path) -> None:
    FileLedger(tmp_path, "one").close()
    (back,) = read_ledgers(tmp_path)
    assert back.events == []


@pytest.mark.parametrize("line", [b"no ledger\n", b'["start",1]\n', b'["other",1,2]\n'])
def test_damage_before_the_end_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "one.ledger"
    path.write_bytes(line + b'["end",1,"ok",5]\n')
    with pytest.raises(LedgerError, match=r"one\.ledger: not a ledger, or damaged"):
        read_ledger(path)


def test_another_process_may_not_write_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = FileLedger(tmp_path, "one")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="open one in each process"):
        ledger.started("t", 0, 5, b"k")
    ledger.close()


def test_an_event_that_was_cut_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = FileLedger(tmp_path, "one")
    monkeypatch.setattr(os, "write", lambda file, data: len(data) - 1)
    with pytest.raises(LedgerError, match="the disk is full"):
        ledger.produced("t", 0, 5, b"k")
    ledger.close()


@pytest.mark.parametrize("backing", ["memory", "file"])
def test_threads_lose_and_mix_up_nothing(tmp_path: Path, backing: str) -> None:
    threads, each = 8, 500
    ledger = MemoryLedger("one") if backing == "memory" else FileLedger(tmp_path, "one")

    def work(partition: int) -> None:
        for offset in range(each):
            ledger.ended(ledger.started("t", partition, offset, b"%d" % partition), "ok")

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    if isinstance(ledger, FileLedger):
        ledger.close()
        ledger = read_ledger(ledger.path)
    assert isinstance(ledger, MemoryLedger)
    starts = [event for event in ledger.events if isinstance(event, Started)]
    assert len({event.attempt for event in starts}) == threads * each
    judgement = judge([ledger])
    assert judgement.clean, judgement.lines()
    assert judgement.totals.ok == threads * each


KILLED = """
import os, signal, sys
from pathlib import Path
from kafka_keyshared.observability.audit.ledger import FileLedger
ledger = FileLedger(Path(sys.argv[1]), "killed")
for offset in range(1000):
    ledger.ended(ledger.started("t", 0, offset, b"k"), "ok")
ledger.started("t", 0, 1000, b"k")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_all_its_events(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    (ledger,) = read_ledgers(tmp_path)
    totals = judge([ledger]).totals
    assert (totals.attempts, totals.ok, totals.unfinished_attempts) == (1001, 1000, 1)
