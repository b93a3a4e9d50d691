"""The audit finds what was planted, and nothing in a clean log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.spark.audit import RULES, audit
from kafka_keyshared.spark.logs import processed_log
from kafka_keyshared.spark.session import Session
from tests.support.planted_log import FAULTS, clean_log, planted

RECORDS = 20_000
PLANTED = {"swapped": "order", "lost": "lost", "duplicate": "duplicates", "overlap": "overlaps"}
AFTER = 125
"""The next record of a key is so many offsets on."""


@pytest.fixture(scope="module")
def clean(session: Session) -> Iterator[DataFrame]:
    rows = clean_log(session.spark, RECORDS).coalesce(2).localCheckpoint()
    yield rows


def test_there_is_nothing_in_a_clean_log(clean: DataFrame) -> None:
    found = audit(clean, None)
    assert found.clean, found.findings
    assert found.totals["produced"] == RECORDS
    assert found.totals["dead_lettered"] == 19
    assert found.totals["failed_calls"] > 200
    assert found.totals["keyless"] > 300
    assert found.totals["incarnations"] == 2
    assert sum(each["calls"] for each in found.timeline) == found.totals["calls"]
    assert sum(each["calls"] for each in found.workers) == found.totals["calls"]


def test_each_planted_fault_is_found_as_what_it_is_and_where(clean: DataFrame) -> None:
    rows = clean
    for partition, fault in enumerate(FAULTS, start=3):
        rows = planted(rows, fault, partition)
    found = audit(rows.coalesce(2).localCheckpoint(), None)
    assert {rule: found.findings[rule].count for rule in RULES} == dict.fromkeys(RULES, 1)
    for partition, fault in enumerate(FAULTS, start=3):
        (case,) = found.findings[PLANTED[fault]].examples
        # Of two that overlap, it is the second that should not have started.
        offset = 5 + AFTER if fault == "overlap" else 5
        assert (case["partition"], case["offset"]) == (partition, offset)
        assert case["key"] == f"k{40 + partition}"


def test_a_source_says_what_was_produced_and_a_record_that_waited_was_overtaken(
    session: Session,
) -> None:
    def call(
        offset: int, at: int, outcome: str, process: str = "a", key: bytes = b"k"
    ) -> tuple[object, ...]:
        end = at + 10
        return ("handled", "t", 0, offset, process, at, end, key, "w", 1, outcome)

    columns = (
        "event string, topic string, partition int, offset bigint, incarnation string, "
        "started bigint, ended bigint, key binary, worker string, attempt int, outcome string"
    )
    spark = session.spark
    rows = spark.createDataFrame(
        [
            # 0 failed, and 1 ran before its next attempt.
            *(call(0, 100, "failed"), call(1, 120, "ok"), call(0, 140, "ok")),
            # 2 and 3 in two processes, whose clocks differ by less than the tolerance.
            *(call(2, 300, "ok", "b"), call(3, 295, "ok", "c")),
            # 4 failed and was tried no more; 5 never started.
            call(4, 400, "failed"),
            # 6 failed and was tried no more, 7 ran; 8 failed, and its letter went out before 9.
            *(call(6, 500, "failed", key=b"l"), call(7, 520, "ok", key=b"l")),
            *(call(8, 500, "failed", key=b"m"), call(9, 520, "ok", key=b"m")),
            ("dead_lettered", "t", 0, 8, "a", 515, 515, None, None, None, None),
        ],
        columns,
    )
    source = spark.createDataFrame(
        [("t", 0, offset, b"k") for offset in range(1, 10)],
        "topic string, partition int, offset bigint, key binary",
    )
    found = audit(rows, source, tolerance=1e-6)
    places = {rule: [case["offset"] for case in found.findings[rule].examples] for rule in RULES}
    assert places == {"lost": [4, 5, 6], "duplicates": [], "order": [0, 6], "overlaps": []}
    assert found.totals["not_in_source"] == 1
    told = [case["why"] for case in found.findings["lost"].examples]
    failed = "it failed 1 times and nothing settled it"
    assert told == [failed, "it never started", failed]


def test_what_is_no_processed_log_is_refused_in_a_line(session: Session, tmp_path: object) -> None:
    from pathlib import Path

    place = Path(str(tmp_path))
    spark = session.spark
    with pytest.raises(ConfigError, match="no file that ends in"):
        processed_log(spark, str(place), {})
    with pytest.raises(ConfigError, match="not there"):
        processed_log(spark, str(place / "nowhere"), {})
    file = place / "one.jsonl"
    file.write_text("")
    with pytest.raises(KeySharedError, match="not one row"):
        processed_log(spark, str(place), {})
    row = '{"event":"handled","topic":"t","partition":0,"offset":1,"incarnation":"a",'
    whole = row + '"started":1,"ended":2,"key":"aw==","outcome":"ok"}\n'
    file.write_text(whole + "no row\n" + "nor this\n")
    with pytest.raises(ConfigError, match=r"2 lines are no rows of a processed log"):
        processed_log(spark, str(place), {})
    file.write_text(whole + row + '"started":1,"outcome":"ok"}\n')
    with pytest.raises(ConfigError, match=r"rows without ended"):
        processed_log(spark, str(place), {})
    # A kill cut the last line short: that is no damage.
    file.write_text(whole + row)
    (read,) = processed_log(spark, str(place), {}).collect()
    assert (read["offset"], bytes(read["key"]), read["worker"]) == (1, b"k", None)
    other = place / "other"
    spark.range(3).write.parquet(str(other))
    with pytest.raises(ConfigError, match=r"rows without event, topic"):
        processed_log(spark, str(other), {})
