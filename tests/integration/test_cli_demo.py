"""`keyshared demo`: what it prints and what it notices."""

from __future__ import annotations

import json
import logging
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.lab.demo import run
from kafka_keyshared.lab.demo.data import RECORDS
from kafka_keyshared.lab.demo.run import Demo, count
from tests.support.cli import Running, in_process
from tests.support.processed_rows import read_rows

PART = 20_000
FAULTS = {
    "order_violations": 0,
    "lost": 0,
    "duplicates": 0,
    "overlaps": 0,
    "commits_past_unsettled": 0,
}


def test_a_part_of_the_year_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "demo", "--json", "--records", PART)
    result = json.loads(ended.out)
    assert ended.status == 0, ended.err
    assert len(ended.out.splitlines()) == 1
    assert result | FAULTS == result
    assert result["records"] == PART == result["flights"] + result["weather"]
    assert result["oracle_match"] is True
    assert result["dead_lettered"] == 174
    assert result["elapsed_s"] > 0
    assert result["records_per_s"] > 0
    assert ended.err.startswith("A year of flights: 20,000 records in a topic of 4 partitions")


@pytest.mark.parametrize("workers", ["4", "thread:4", "asyncio:4"])
def test_the_table_says_which_workers_there_were(
    capsys: pytest.CaptureFixture[str], workers: str
) -> None:
    ended = in_process(capsys, "demo", "--records", 3_000, "--workers", workers)
    assert ended.status == 0, ended.err
    (row,) = [line for line in ended.out.splitlines() if "workers" in line.split()]
    assert workers in row.split()


def test_an_audit_log_has_what_was_written_and_what_became_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended = in_process(capsys, "demo", "--json", "--records", 3_000, "--audit-log", tmp_path)
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    (file,) = tmp_path.iterdir()
    rows = read_rows(file.read_bytes())
    counts = Counter((row.event, row.outcome) for row in rows)
    assert counts["produced", None] == result["records"] == 3_000
    assert counts["dead_lettered", None] == result["dead_lettered"] > 0
    assert counts["handled", "ok"] == 3_000 - result["dead_lettered"]
    refused = in_process(capsys, "demo", "--audit-log", "topic:flights.log")
    assert refused.status == 2
    assert "give a folder; the Kafka of the demo ends with the demo" in refused.err


def test_many_more_handlers_wait_at_once_than_there_are_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That is what the package is for, so it is what the demo shows."""
    ended = in_process(capsys, "demo", "--json", "--records", PART)
    result = json.loads(ended.out)
    assert ended.status == 0, ended.err
    assert (result["partitions"], result["workers"]) == (4, 16)
    assert result["partitions"] < result["at_once"] <= result["workers"]
    assert result["calls"] == 925
    assert result["one_by_one_s"] == round(925 * 0.005, 1)
    # One consumer for each partition waits at least a quarter of that, and less than all of it.
    assert 925 * 0.005 / 4 - 0.05 <= result["per_partition_s"] < result["one_by_one_s"]


def test_announced_failures_are_not_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "demo", "--records", PART)
    assert ended.status == 0
    assert "CancelledFlight" not in ended.err
    assert "174 flights were cancelled: they fail 3 times" in ended.err
    assert logging.getLogger("kafka_keyshared").level == logging.NOTSET


def test_the_table_is_in_words_and_whole_on_a_terminal_of_80_columns() -> None:
    with Running.on_terminal("demo", "--records", PART, columns=80) as demo:
        assert demo.process.wait(240) == 0
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", demo.whole())
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    table = [line for line in lines if re.match(r"[┌│└]", line)]
    assert len(table) > 15
    assert {len(line) for line in table} == {len(table[0])}
    assert {(line[0], line[-1]) for line in table} == {("┌", "┐"), ("│", "│"), ("└", "┘")}
    assert not [line for line in table if "_" in line], "a name of the program, and not a word"
    assert re.search(r"partitions +│ +4 │", shown)
    assert re.search(r"workers +│ +16 │", shown)
    assert re.search(r"contract kept +│ +yes │", shown)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("reorder", "order_violations"),
        ("drop", "lost"),
        ("duplicate", "duplicates"),
        ("commit-early", "commits_past_unsettled"),
    ],
)
def test_sabotage_is_noticed(capsys: pytest.CaptureFixture[str], kind: str, fault: str) -> None:
    ended = in_process(capsys, "demo", "--json", "--records", PART, "--sabotage", kind)
    result: dict[str, Any] = json.loads(ended.out)
    assert ended.status == 1
    assert result[fault] > 0
    assert result["ok"] is False
    # What the handlers computed is right only where every record ran once and in order.
    assert result["oracle_match"] is (kind == "commit-early")
    assert f"{fault}: {result[fault]}" in ended.err.replace(",", "")


def late(monkeypatch: pytest.MonkeyPatch, demo: Demo, reads: float) -> None:
    """Let the demo's reader of dead letters get nothing until so many reads after the end."""

    class Late(Consumer):
        left = reads

        def consume(self, *arguments: Any) -> list[Any]:
            if demo._finished.is_set():
                self.left -= 1
            if self.left > 0:
                demo._finished.wait(0.05)
                return []
            return super().consume(*arguments)

    monkeypatch.setattr(run, "Consumer", Late)


def test_dead_letters_are_read_back_however_late_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(lambda _: None, records=PART)
    late(monkeypatch, demo, 5)
    assert demo.run()["ok"] is True
    assert demo.progress.dead_letters_read == 174


def test_dead_letters_that_do_not_come_back_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "READ_BACK_SECONDS", 0.5)
    demo = Demo(lambda _: None, records=PART)
    late(monkeypatch, demo, float("inf"))
    with pytest.raises(KeySharedError, match="174 of 174 dead letters could not be read back"):
        demo.run()


def test_on_a_terminal_there_is_live_progress_and_a_table() -> None:
    with Running.on_terminal("demo", "--records", PART) as demo:
        assert demo.process.wait(240) == 0
        shown = demo.whole()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert shown.count("\x1b[2K") > 4, "the progress is drawn over itself"
    assert "A year of flights: 20,000 records" in plain
    for name in ("written", "done", "committed"):
        assert re.search(rf"{name} \S+ 20,000 of 20,000", plain), plain[-3000:]
    assert re.search(r"dead letters \S+ 174 of 174", plain)
    assert re.search(r"records out of order for their aircraft\s+│\s+0", plain)
    assert re.search(r"same result as from the file\s+│\s+yes", plain)


def test_a_demo_that_is_interrupted_judges_nothing() -> None:
    with Running("demo", "--json") as demo:
        demo.wait_for("done")
        assert demo.end(signal.SIGINT) == 1
        assert "stopped before the end" in demo.err
        assert "Traceback" not in demo.err
        assert demo.process.stdout is not None
        assert demo.process.stdout.read() == ""


def test_the_input_is_counted_from_the_records() -> None:
    demo = Demo(lambda _: None, records=PART)
    assert demo.totals == count(list(demo._year))
    assert demo.totals.records == PART
    assert demo.totals.keyless >= demo.totals.weather > 0
    with pytest.raises(ConfigError, match=f"from 1 to {RECORDS}"):
        Demo(lambda _: None, records=RECORDS + 1)
