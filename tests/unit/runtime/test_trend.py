"""What the last minute was like, from the statuses of it."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.runtime.trend import GAP_MOST, MINUTE, Minute
from tests.support.doctor_survey import instance, partition, worker


def seen(
    backlog: int | None,
    *others: int | None,
    busy: int = 0,
    settled: int = 0,
    full: float = 0.0,
) -> Any:
    workers = [worker(at) | {"runs": int(at < busy)} for at in range(2)]
    own = {
        "processed": {"orders": {"ok": settled}},
        "attempts": {"orders": {"ok": settled, "failed": 1_000}},
        "undecodable": {"orders": 1_000},
        "full_seconds": full,
    }
    return instance(
        partitions=[
            partition(at) | {"backlog": each} for at, each in enumerate((backlog, *others))
        ],
        workers=workers,
        own=own,
        fetched={"orders": settled * 2},
    )


def test_nothing_is_known_before_a_whole_minute_has_been_seen() -> None:
    minute = Minute()
    for at in range(int(MINUTE)):
        minute.note(seen(10), at * 1.0)
        assert minute.shown() is None
    minute.note(seen(30, settled=12), MINUTE)
    found = minute.shown()
    assert found is not None
    assert (found.seconds, found.backlog) == (MINUTE, 10), "the backlog at its beginning"
    assert (found.settled, found.fetched) == (12, 24), "failures settle nothing"


def test_shares_are_of_the_looks_of_the_minute_alone() -> None:
    minute = Minute()
    for at in range(200):
        # Busy and full in the last 60 s, which are all that is remembered.
        late = at >= 139
        minute.note(seen(10, busy=2 * late, full=float(late)), at * 1.0)
    found = minute.shown()
    assert found is not None
    assert (found.busy, found.full, found.seconds) == (1.0, 1.0, MINUTE)


def test_a_look_that_does_not_know_or_comes_late_begins_anew() -> None:
    for spoiled in (lambda minute: minute.note(seen(None), 61.0), lambda minute: None):
        minute = Minute()
        for at in range(61):
            minute.note(seen(10), at * 1.0)
        assert minute.shown() is not None
        spoiled(minute)
        minute.note(seen(10), 62.0 + GAP_MOST)
        assert minute.shown() is None


def test_a_partition_of_which_nothing_is_known_is_left_out() -> None:
    minute = Minute()
    for at in range(61):
        minute.note(seen(10, None), at * 1.0)
    found = minute.shown()
    assert found is not None
    assert (found.backlog, found.partitions) == (10, 1)
    minute.note(seen(10, 5_000), 61.0)
    assert minute.shown() is None, "it has not grown by what is known by now"
