"""What an instance says of itself, and what it never does."""

from __future__ import annotations

import msgspec
import pytest

from kafka_keyshared.observability.web.group.report import (
    MOST_BYTES,
    UnreadableReportError,
    key_of,
    packed,
    report_of,
    unpacked,
)
from tests.support.doctor_survey import blocked, instance, worker
from tests.support.instance_reports import EVERY, report, who

SECRET = "customer-7"
AT = {"topic": "orders", "partition": 1, "offset": 17}


def test_neither_a_key_nor_what_an_error_says_of_a_record_is_in_a_report() -> None:
    run = AT | {"key": SECRET, "slot": 7, "seconds": 90.0, "where": "at app.py:14"}
    lane = AT | {
        "subscription": "default",
        "key": SECRET,
        "slot": 7,
        "state": "waiting",
        "attempts": 3,
        "archived": False,
        "waiting": 2,
        "due_seconds": 4.0,
        "seconds": 60.0,
        "error": f"ValueError at app.py:9: no such address: {SECRET}",
    }
    unread = AT | {"records": 4, "error": f"no JSON: {SECRET}", "seconds": 60.0}
    hot = {"slot": 7, "key": SECRET, "partitions": [["orders", 1]], "waiting": 9, "share": 1.0}
    hot |= {"rate": 9.0, "capacity": 1.0, "seconds": 9.0}
    apart = AT | {"worker": "worker-0", "seconds": 90.0, "waiting": 2, "key": SECRET, "slot": 7}
    shared = {"shards": 33, "ready": 1, "held": 1, "hot_keys": [hot], "detached": [apart]}
    told = instance(
        workers=[worker(0) | {"running": run, "runs": 1}],
        lanes={"blocked": 1, "waiting": 1},
        blocked=[blocked(7) | {"slot": 7, "error": f"KeyError at app.py:6: {SECRET}"}],
        own={
            "closed": [lane],
            "unreadable_keys": [unread],
            "hottest_key": SECRET,
            "shared": shared,
        },
    )
    assert SECRET.encode() in msgspec.json.encode(told)
    found = report_of(told, who("a"), EVERY)
    assert SECRET.encode() not in packed(found)
    assert found.text.startswith("the key of orders-1@17 cannot be read, for 60 s: an error;")
    assert (found.level, found.code, found.healthy) == ("fail", "key-unreadable", False)
    alone = instance(lanes={"blocked": 1}, blocked=[blocked(7) | {"slot": 7}])
    said = report_of(alone, who("a"), EVERY).text
    assert said.startswith("a key of slot 0x0007 is blocked by orders-1@7 for 12 min: KeyError at ")


def test_a_report_is_read_as_it_was_written() -> None:
    said = report("a", 0, 1)
    assert unpacked(packed(said)) == said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not a report"),
        (b"\xff", "not a report"),
        (b"[]", "not a report"),
        (b'{"version": 1}', "missing required field"),
        (b'{"version": 2}', "a report of version 2; this release reads version 1"),
        (b" " * (MOST_BYTES + 1), "a report of 262,145 bytes"),
    ],
)
def test_what_is_no_report_is_refused_with_the_reason(text: bytes, why: str) -> None:
    with pytest.raises(UnreadableReportError, match=why):
        unpacked(text)


def test_a_report_of_ten_thousand_partitions_is_read() -> None:
    said = report("a", partitions={"orders": tuple(range(10_000))})
    assert unpacked(packed(said)) == said


def test_a_key_names_group_and_instance() -> None:
    assert key_of("billing", "a-1-0") == b"billing/a-1-0"
