"""When a record of an unknown format is broken, and when its reader is at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.failures.undecodable import reason_of
from kafka_keyshared.core.keys.unknown_formats import LATELY, NOTHING_BEHIND
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import Record, Retry, TopicPartition, Undecodable, UnknownFormat
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, FakeRecord

GOOD, BROKEN, NEW, OTHER, ANY = b"a", b"\xff", b"new", b"other", b"any"


class Reader:
    """A key function of a registry that does not know some schemas, and of no other formats.

    A key is what its value says. ``registered`` are schemas that the registry knows by now.
    """

    def __init__(self) -> None:
        self.registered: set[bytes] = set()
        self.away = False
        self.patience = 0.0

    def __call__(self, item: Record) -> bytes | None:
        value: bytes | None = item.value()
        if value is None:
            return None
        if value == BROKEN:
            raise Undecodable("it begins with 0xff")
        if value in (NEW, OTHER) and value not in self.registered:
            if self.away:
                raise Retry(1.0) from ConnectionError("no route")
            kind = f"schema {value!r}"
            raise UnknownFormat(kind, f"{kind}: no such schema", 1.0, patience=self.patience)
        if value == ANY:
            raise UnknownFormat("bytes", "no schema id", 1.0, vague=True)
        return value


def member(key_of: Callable[[Record], bytes | None] | None = None) -> Harness:
    made = Harness(
        SubscriptionSettings(
            workers=("worker-0", "worker-1"),
            key_of=key_of or Reader(),
            dlq=True,
            on_exhausted="dead_letter",
            retry=RetryPolicy(backoff=0.1, jitter=0.0),
            window_records=20_000,
        )
    )
    made.assign(P0, P1)
    return made


def fetch(
    made: Harness, values: Iterable[bytes | None], at: TopicPartition = P0, *, first: int = 0
) -> None:
    records = []
    for index, value in enumerate(values):
        records.append(FakeRecord(at, first + index, b"own"))
        records[-1].set_value(value)
    made.fetch(*records)


def letters(made: Harness) -> list[int]:
    return [each.record.offset() for each in made.publishes]


def test_one_record_of_an_unknown_format_among_readable_ones_is_broken() -> None:
    made = member()
    fetch(made, [GOOD, NEW, GOOD, GOOD])
    assert letters(made) == [1]
    assert made.publishes[0].last.message == f"schema {NEW!r}: no such schema"
    assert sorted(made.work()) == [0, 2, 3]
    assert made.paused == set()


@pytest.mark.parametrize(
    "values", [[NEW] * 4, [GOOD, NEW, NEW, GOOD], [GOOD, NEW, GOOD, GOOD, NEW]]
)
def test_two_of_one_unknown_format_hold_their_partition_and_none_becomes_a_letter(
    values: list[bytes],
) -> None:
    reader = Reader()
    made = member(reader)
    fetch(made, values)
    first = values.index(NEW)
    assert made.work() == list(range(first))
    assert made.paused == {P0}
    for _ in range(200):
        made.later(1.1)
    assert letters(made) == []
    assert made.said(f"the key of orders-0@{first} cannot be read yet: schema {NEW!r}: no such")
    reader.registered.add(NEW)
    made.later(1.1)
    assert made.paused == set()
    assert sorted(made.work()) == list(range(first, len(values)))
    assert made.committed() == (len(values), [])


def test_a_topic_of_which_nothing_was_ever_read_is_held_however_long() -> None:
    made = member()
    fetch(made, [NEW])
    fetch(made, [NEW, OTHER], P1)
    for _ in range(200):
        made.later(1.1)
    assert letters(made) == []
    assert made.paused == {P0, P1}


def test_an_unknown_schema_is_waited_for_before_its_record_is_judged() -> None:
    reader = Reader()
    reader.patience = 0.5
    made = member(reader)
    fetch(made, [GOOD, NEW, GOOD])
    assert letters(made) == []
    assert made.core.next_due() == pytest.approx(made.now + 0.5), "the patience ends first"
    reader.patience = 0.0
    made.later(0.6)
    assert letters(made) == [1]


def test_behind_the_last_record_received_nothing_can_tell_so_it_is_held_for_a_minute() -> None:
    made = member()
    fetch(made, [GOOD, NEW])
    made.later(NOTHING_BEHIND - 1)
    assert letters(made) == []
    made.later(2)
    assert letters(made) == [1]
    assert made.paused == set(), "then the partition goes on"


def test_a_kind_that_comes_again_soon_is_no_exception_any_more() -> None:
    made = member()
    fetch(made, [GOOD, NEW, *[GOOD] * 30])
    assert letters(made) == [1]
    fetch(made, [NEW, GOOD, GOOD], first=32)
    for _ in range(100):
        made.later(1.1)
    assert letters(made) == [1]
    assert made.paused == {P0}


def test_a_kind_that_comes_again_much_later_is_an_exception_again() -> None:
    made = member()
    fetch(made, [GOOD, NEW, *[GOOD] * LATELY, NEW, GOOD])
    assert letters(made) == [1], "so many were not received between them"
    made = member()
    fetch(made, [GOOD, NEW, GOOD])
    fetch(made, [GOOD] * LATELY, first=3)
    fetch(made, [NEW, GOOD], first=LATELY + 3)
    assert letters(made) == [1, LATELY + 3]


def test_many_exceptions_of_different_kinds_hold_nobody() -> None:
    made = member()
    fetch(made, [GOOD, NEW, GOOD, OTHER, GOOD, BROKEN, GOOD])
    assert letters(made) == [1, 3, 5]
    assert made.paused == set()


def test_bytes_of_no_known_format_are_broken_once_anything_of_the_topic_was_read() -> None:
    made = member()
    fetch(made, [ANY, ANY, GOOD, ANY])
    assert letters(made) == [0, 1, 3]
    fetch(made, [ANY], P1)
    assert letters(made) == [0, 1, 3, 0]
    fresh = member()
    fetch(fresh, [ANY, ANY, ANY])
    for _ in range(100):
        fresh.later(1.1)
    assert letters(fresh) == [], "a topic of another format"
    alone = member()
    fetch(alone, [ANY])
    alone.later(NOTHING_BEHIND - 1)
    assert letters(alone) == []
    alone.later(2)
    assert letters(alone) == [0]


def test_tombstones_tell_nothing_of_a_format() -> None:
    made = member()
    fetch(made, [None, NEW, None, None])
    for _ in range(100):
        made.later(1.1)
    assert letters(made) == []


def test_a_registry_that_goes_away_meanwhile_judges_nothing() -> None:
    reader = Reader()
    reader.patience = 0.5
    made = member(reader)
    fetch(made, [GOOD, NEW, OTHER, GOOD])
    reader.away, reader.patience = True, 0.0
    for _ in range(10):
        made.later(1.1)
    assert letters(made) == []
    assert reason_of(made.sub().keys.unread[P0].cause) == "ConnectionError: no route"
    reader.away = False
    reader.registered |= {NEW, OTHER}
    made.later(1.1)
    assert sorted(made.work()) == [0, 1, 2, 3]


def test_a_key_that_is_unreadable_for_an_hour_makes_one_line_a_minute() -> None:
    made = member()
    fetch(made, [NEW, NEW])
    for _ in range(3_600 // 5):
        made.now += 4.5
        made.beat()
    assert len([each for each in made.notices if "cannot be read yet" in each.text]) <= 61


def test_a_revoke_forgets_since_when_a_record_was_held() -> None:
    made = member()
    fetch(made, [GOOD, NEW])
    made.work()
    made.later(NOTHING_BEHIND - 1)
    made.revoke(P0)
    made.assign(P0, position=1)
    fetch(made, [NEW], first=1)
    made.later(2)
    assert letters(made) == []
