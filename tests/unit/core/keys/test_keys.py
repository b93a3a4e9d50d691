"""Which key a record goes by, what a null key means, and what becomes of a key nobody can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.contract.commands import LaneAnswer
from kafka_keyshared.core.contract.events import LaneAction, LaneOrder
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.keys import key_cache
from kafka_keyshared.core.keys.extraction import DerivedKeys, NullKeys, UndecodablePolicy
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.notice_text import Level
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import Record, Retry, TopicPartition, Undecodable
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, record

FOUR = tuple(f"worker-{index}" for index in range(4))
BROKEN = b"\xff"


def headed(
    offset: int, key: bytes | None, own: bytes | None = b"own", at: TopicPartition = P0
) -> FakeRecord:
    """A record whose key is in a header, and whose own key says something else."""
    return FakeRecord(at, offset, own, headers=None if key is None else [("key", key)])


def from_header(item: Record) -> bytes | None:
    """The key function of these tests; one that begins with 0xff cannot be read."""
    found: bytes | None = dict(item.headers() or ()).get("key")
    if found is not None and found.startswith(BROKEN):
        raise Undecodable("it begins with 0xff")
    return found


def member(
    *,
    nulls: NullKeys = "any",
    undecodable: UndecodablePolicy | None = None,
    dlq: bool = False,
    key_of: Callable[[Record], bytes | None] | None = from_header,
    attempts: int = 5,
    window: int = 10_000,
    one_lease: bool = False,
) -> Harness:
    made = Harness(
        SubscriptionSettings(
            workers=FOUR,
            key_of=key_of,
            null_keys=nulls,
            undecodable=undecodable,
            dlq=dlq,
            on_exhausted="dead_letter" if dlq else "block",
            retry=RetryPolicy(attempts=attempts, backoff=0.1, jitter=0.0),
            window_records=window,
            one_in_flight_per_key=one_lease,
        )
    )
    made.assign(P0, P1)
    return made


# --- a key that is not the record's own ---


def test_records_of_one_derived_key_are_in_one_lane_whatever_their_own_keys_are() -> None:
    made = member()
    made.fetch(headed(0, b"a", own=b"x"), headed(1, b"a", own=b"y"), headed(2, b"a", own=None))
    started = made.work({0: [ERROR]})
    assert started == [0], "the others wait for the first one's second attempt"
    made.later(0.2)
    assert made.work() == [0, 1, 2]


def test_records_of_one_own_key_are_in_different_lanes_when_their_derived_keys_differ() -> None:
    made = member()
    made.fetch(headed(0, b"a"), headed(1, b"b"))
    assert sorted(made.work({0: [ERROR]})) == [0, 1]
    assert made.committed() == (0, [(1, 2)])


def test_the_slot_is_that_of_the_derived_key() -> None:
    made = member()
    keys = [b"key-%d" % number for number in range(40)]
    made.fetch(*(headed(offset, key) for offset, key in enumerate(keys)))
    owners = made.sub().table.owners
    leased = list(made.sub().unsettled.leases())
    assert leased
    for slice_ in (each.slice for each in leased):
        for item in slice_.records:
            assert owners[slot_of(keys[item.offset()])] == slice_.worker


@pytest.mark.parametrize("one_lease", [False, True])
def test_the_key_is_asked_for_once_for_each_record_whatever_happens_to_it(one_lease: bool) -> None:
    asked: list[int] = []

    def count(item: Record) -> bytes | None:
        asked.append(item.offset())
        return from_header(item)

    made = member(key_of=count, one_lease=one_lease)
    made.fetch(*(headed(offset, b"a") for offset in range(6)))
    made.work({0: [ERROR, ERROR]})
    made.later(0.2)
    made.work()
    made.later(0.4)
    made.work()
    assert made.committed() == (6, [])
    assert asked == [0, 1, 2, 3, 4, 5]


def test_keys_of_settled_records_are_forgotten_and_those_of_held_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_cache, "SPARE", 0)
    made = member(window=5, attempts=50)
    everything = [headed(offset, b"a" if offset == 0 else b"b") for offset in range(60)]
    made.fetch(everything[0])
    made.work({0: [ERROR]})
    for each in everything[1:]:
        made.fetch(each)
        made.work()
        made.seen.clear()  # they have the chunks
    keys = made.sub().keys
    assert isinstance(keys, DerivedKeys)
    assert len(keys._kept) <= 11
    assert keys.key(everything[0]) == b"a"


def test_events_of_the_client_are_no_records_whatever_the_key_function_makes_of_them() -> None:
    def fails(item: Record) -> bytes | None:
        if item.error() is not None:
            raise ValueError("no record")
        return b"a"

    for key_of in (from_header, fails):
        made = member(key_of=key_of, undecodable="drop")
        event = FakeRecord(P0, 7, None, error="all brokers are down")
        made.fetch(headed(0, b"a"), event, headed(1, b"a"))
        assert made.client_events == [event]
        assert made.work() == [0, 1]


def test_a_key_function_that_returns_no_bytes_makes_the_record_undecodable() -> None:
    answers: list[Any] = [b"a", 7]
    made = member(key_of=lambda item: answers[item.offset()])
    made.fetch(headed(0, b"a"), headed(1, b"a"))
    assert made.work() == [0]
    assert made.said("no readable key and is blocked: TypeError")


# --- null keys ---


@pytest.mark.parametrize("key_of", [from_header, None])
def test_any_a_null_key_is_a_lane_of_its_own_and_closes_no_other(
    key_of: Callable[[Record], bytes | None] | None,
) -> None:
    made = member(key_of=key_of)
    made.fetch(*(headed(offset, None, own=None) for offset in range(4)))
    assert sorted(made.work({0: [ERROR]})) == [0, 1, 2, 3]
    assert made.committed() == (0, [(1, 4)])


@pytest.mark.parametrize("key_of", [from_header, None])
def test_one_lane_null_keys_are_in_order_among_themselves(
    key_of: Callable[[Record], bytes | None] | None,
) -> None:
    made = member(nulls="one-lane", key_of=key_of)
    made.fetch(*(headed(offset, None, own=None) for offset in range(4)))
    assert made.work({1: [ERROR]}) == [0, 1]
    made.later(0.2)
    assert made.work() == [1, 2, 3]


@pytest.mark.parametrize("key_of", [from_header, None])
def test_one_lane_a_failure_without_a_key_does_not_close_the_lane_of_the_empty_key(
    key_of: Callable[[Record], bytes | None] | None,
) -> None:
    made = member(nulls="one-lane", key_of=key_of)
    made.fetch(headed(0, None, own=None), headed(1, b"", own=b""), headed(2, None, own=None))
    assert made.work({0: [ERROR]}) == [0, 1], "the empty key goes on, the null keys wait"
    made.later(0.2)
    assert made.work() == [0, 2]


def test_one_lane_null_keys_go_to_the_owner_of_the_empty_keys_slot() -> None:
    made = member(nulls="one-lane", key_of=None)
    made.fetch(*(record(offset, None) for offset in range(8)))
    assert {leased.slice.worker for leased in made.sub().unsettled.leases()} == {
        made.sub().table.owners[slot_of(b"")]
    }


@pytest.mark.parametrize("key_of", [from_header, None])
def test_reject_a_null_key_is_undecodable(
    key_of: Callable[[Record], bytes | None] | None,
) -> None:
    made = member(nulls="reject", key_of=key_of, dlq=True)
    made.fetch(headed(0, None, own=None), headed(1, b"a", own=b"a"))
    assert made.work() == [1]
    letter = made.dead_letter()
    assert (letter.record.offset(), letter.attempts) == (0, 0)
    assert letter.last.message == "its key is null"
    assert made.committed() == (2, [])


# --- undecodable ---


@pytest.mark.parametrize("action", LaneAction)
def test_no_order_hands_an_undecodable_record_to_a_handler(action: LaneAction) -> None:
    made = member(undecodable="block", dlq=True)
    made.fetch(headed(0, BROKEN), headed(1, b"a"))
    assert made.work() == [1]
    made.tell(LaneOrder("default", action, None, P0, 0))
    (answer,) = [each for each in made.seen if isinstance(each, LaneAnswer)]
    refused = "orders-0@0 (no key), blocked: its key cannot be read, so no handler may have"
    assert answer.refused.startswith(refused) is (action is LaneAction.UNBLOCK)
    for _ in made.publishes[:]:
        made.dead_letter()
    assert made.work() == []
    assert made.committed() == ((0, [(1, 2)]) if answer.refused else (2, []))


def test_an_undecodable_record_goes_to_the_dead_letter_topic_unrun_with_the_reason() -> None:
    made = member(dlq=True)
    bad = headed(0, BROKEN)
    made.fetch(bad, headed(1, b"a"))
    assert made.work() == [1]
    assert made.committed() == (0, [(1, 2)]), "not settled until the broker has acknowledged it"
    letter = made.dead_letter()
    assert letter.record is bad
    assert letter.attempts == 0
    assert (letter.first.error_type, letter.first.message) == ("Undecodable", "it begins with 0xff")
    assert made.committed() == (2, [])
    counts = made.sub().counts
    assert counts.processed.counts["orders"] == {"ok": 1, "dead_lettered": 1}
    assert counts.undecodable == {"orders": 1}


def test_the_time_of_an_undecodable_record_is_that_of_the_wall_clock() -> None:
    made = member(dlq=True)
    made.now = 200.0
    made.core.meters.wall_offset = 1_000_000.0
    made.fetch(headed(0, BROKEN))
    assert made.publishes[0].first.at_ms == 1_000_200_000


def test_a_refused_dead_letter_of_an_undecodable_record_is_sent_again_and_settles_nothing() -> None:
    made = member(dlq=True)
    made.fetch(headed(0, BROKEN))
    made.dead_letter("not enough replicas")
    assert made.committed() == (0, [])
    made.later(1.1)
    made.dead_letter()
    assert made.committed() == (1, [])


def test_without_a_dead_letter_topic_it_is_blocked_and_nothing_else_waits_for_it() -> None:
    made = member()
    made.fetch(headed(0, BROKEN), headed(1, BROKEN), headed(2, b"a"), headed(3, b"b"))
    assert sorted(made.work()) == [2, 3]
    assert made.committed() == (0, [(2, 4)])
    assert made.said("orders-0@0 has no readable key and is blocked: it begins with 0xff")
    assert [closed.state for closed in made.sub().closed.lanes.values()] == [LaneState.BLOCKED] * 2


@pytest.mark.parametrize("dlq", [True, False])
def test_who_has_a_dead_letter_topic_is_not_told_to_give_one(dlq: bool) -> None:
    made = member(undecodable="block", dlq=dlq)
    made.fetch(headed(0, BROKEN))
    assert made.said("choose undecodable='dead_letter' or 'drop'") is dlq
    assert made.said("give a dead-letter topic (dlq=True)") is not dlq


def test_drop_settles_it_and_says_so() -> None:
    made = member(undecodable="drop", dlq=True)
    made.fetch(headed(0, BROKEN), headed(1, b"a"))
    assert made.work() == [1]
    assert not made.publishes
    assert made.committed() == (2, [])
    assert made.said("orders-0@0 is dropped: it begins with 0xff")
    assert made.sub().counts.processed.counts["orders"]["dropped"] == 1
    assert made.sub().counts.dropped == 1


@pytest.mark.parametrize("nulls", ["any", "one-lane"])
def test_null_key_lets_the_handler_have_it(nulls: NullKeys) -> None:
    made = member(undecodable="null_key", nulls=nulls)
    made.fetch(headed(0, BROKEN), headed(1, None), headed(2, BROKEN))
    started = made.work({0: [ERROR]})
    assert sorted(started) == ([0] if nulls == "one-lane" else [0, 1, 2])
    made.later(0.2)
    assert made.committed() == (0, [] if nulls == "one-lane" else [(1, 3)])
    assert made.said("orders-0@0 counts as without a key")


def test_thousands_of_them_make_a_few_lines_in_the_log() -> None:
    made = member(undecodable="drop")
    made.fetch(*(headed(offset, BROKEN) for offset in range(2_000)))
    assert len(made.notices) == 1
    made.beat(21)
    assert len(made.notices) == 2
    assert made.said("1,999 more records had no readable key")


def test_blocked_ones_that_fill_a_quarter_of_the_window_stop_their_partition_only() -> None:
    made = member(window=40)
    made.fetch(*(headed(offset, BROKEN) for offset in range(10)))
    assert made.paused == {P0}
    made.fetch(headed(0, b"a", at=P1))
    assert made.work() == [0]


def test_a_revoke_forgets_them_and_a_late_dead_letter_settles_nothing() -> None:
    made = member(dlq=True)
    made.fetch(headed(0, BROKEN), headed(1, b"a"))
    made.work()
    made.revoke(P0)
    made.assign(P0, position=0)
    made.fetch(headed(0, BROKEN))
    assert len(made.publishes) == 2
    made.dead_letter()  # of the epoch before
    assert made.committed()[0] == 0
    made.dead_letter()
    assert made.committed()[0] == 1


def test_policies_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="undecodable='dead_letter' needs a dead-letter topic"):
        SubscriptionSettings(undecodable="dead_letter").check()
    with pytest.raises(ConfigError, match="from one to the other"):
        SubscriptionSettings(undecodable="null_key", null_keys="reject").check()


# --- not readable yet ---


class Registry:
    """A key function that cannot read new keys while it is down, and one of them never."""

    def __init__(self) -> None:
        self.down = True
        self.down_for: bytes | None = None
        self.unknown: bytes | None = None
        self.asked: list[int] = []
        self.after: float | None = 3.0

    def __call__(self, item: Record) -> bytes | None:
        key = from_header(item)
        if key is not None and key.startswith(b"new") and (self.down or key == self.down_for):
            self.asked.append(item.offset())
            raise Retry(self.after) from ConnectionError("registry: no route")
        if key is not None and key == self.unknown:
            raise Undecodable("schema 7: the registry knows no such schema")
        return key


def test_its_partition_waits_from_there_on_and_others_go_on() -> None:
    registry = Registry()
    made = member(key_of=registry)
    made.fetch(headed(0, b"a"), headed(1, b"new"), headed(2, b"a"), headed(5, b"a", at=P1))
    assert sorted(made.work()) == [0, 5]
    assert made.paused == {P0}
    assert made.committed() == (1, []), "nothing past it counts as settled"
    assert made.said(
        "the key of orders-0@1 cannot be read yet: ConnectionError: registry: no route"
    )
    assert made.notices[0].level is Level.ERROR


def test_it_is_asked_again_when_it_said_and_what_waited_runs_in_order() -> None:
    registry = Registry()
    made = member(key_of=registry)
    made.fetch(headed(0, b"new"), headed(1, b"new"), headed(2, b"new"))
    assert registry.asked == [0], "what is behind it is not even asked for"
    assert made.core.next_due() == pytest.approx(made.now + 3.0)
    made.later(2.9)
    assert registry.asked == [0]
    made.later(0.2)
    assert registry.asked == [0, 0]
    registry.down = False
    made.later(3.0)
    assert made.paused == set()
    assert made.work() == [0, 1, 2]
    assert made.committed() == (3, [])


def test_the_heartbeat_asks_again_too_and_one_second_is_the_default() -> None:
    registry = Registry()
    registry.after = None
    made = member(key_of=registry)
    made.fetch(headed(0, b"new"))
    made.beat()
    assert registry.asked == [0]
    registry.down = False
    made.beat()
    assert made.work() == [0]


def test_records_that_arrive_meanwhile_wait_behind_it() -> None:
    registry = Registry()
    made = member(key_of=registry)
    made.fetch(headed(0, b"new"))
    made.fetch(headed(1, b"a"))
    made.fetch(headed(2, b"new"))
    assert made.work() == []
    registry.down = False
    made.later(3.0)
    assert sorted(made.work()) == [0, 1, 2]
    assert made.committed() == (3, [])


def test_when_only_a_later_one_cannot_be_read_the_first_ones_go_on() -> None:
    registry = Registry()
    made = member(key_of=registry)
    made.fetch(headed(0, b"new-1"), headed(1, b"a"), headed(2, b"new-2"))
    registry.down = False
    registry.down_for = b"new-2"
    made.later(3.0)
    assert sorted(made.work()) == [0, 1]
    assert made.paused == {P0}
    made.later(3.0)
    assert made.committed()[0] == 2


def test_a_revoke_forgets_what_waits_for_its_key() -> None:
    registry = Registry()
    made = member(key_of=registry)
    made.fetch(headed(0, b"new"), headed(1, b"a"))
    made.revoke(P0)
    assert made.core.unsettled_count() == 0
    assert made.core.next_due() is None
    made.assign(P0, position=0)
    registry.down = False
    made.fetch(headed(0, b"new"), headed(1, b"a"))
    assert sorted(made.work()) == [0, 1]
    assert made.committed() == (2, [])


def test_one_that_turns_out_to_be_undecodable_goes_to_its_policy() -> None:
    registry = Registry()
    made = member(key_of=registry, dlq=True)
    made.fetch(headed(0, b"new"))
    registry.down, registry.unknown = False, b"new"
    made.later(3.0)
    assert made.publishes[0].last.message == "schema 7: the registry knows no such schema"
    made.dead_letter()
    assert made.committed() == (1, [])


def test_two_partitions_that_turn_out_so_at_once_forget_no_key_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys of what is not held are forgotten when the second one is routed; the first waits yet."""
    monkeypatch.setattr(key_cache, "KEPT", 0)
    monkeypatch.setattr(key_cache, "SPARE", 0)
    registry = Registry()
    made = member(key_of=registry, dlq=True)
    made.fetch(headed(0, b"new"), headed(0, b"new", at=P1))
    registry.down, registry.unknown = False, b"new"
    made.later(3.0)
    assert [publish.record.partition() for publish in made.publishes] == [0, 1]


class KeysAtOnce:
    """A key function that tells a chunk's keys at once, unless one of them cannot be read."""

    def __init__(self) -> None:
        self.singly = 0

    def __call__(self, item: Record) -> bytes | None:
        self.singly += 1
        return from_header(item)

    def of_all(self, items: Sequence[Record]) -> list[bytes | None]:
        return [from_header(each) for each in items]


@pytest.mark.parametrize("nulls", ["any", "one-lane", "reject"])
@pytest.mark.parametrize("broken", [False, True])
def test_keys_told_at_once_route_as_keys_told_singly(nulls: NullKeys, broken: bool) -> None:
    at_once = KeysAtOnce()
    made = [member(nulls=nulls, key_of=each) for each in (at_once, from_header)]
    keys = [b"a", None, b"b", BROKEN if broken else b"c", None, b"a", b""]
    for each in made:
        each.fetch(*[headed(offset, key) for offset, key in enumerate(keys)])
        each.fetch(FakeRecord(P0, 7, None, error="an event"), headed(8, b"a"))
    backlogs = [
        [
            [item.offset() for item in leased.slice.records]
            for leased in each.sub().unsettled.leases()
        ]
        for each in made
    ]
    assert backlogs[0] == backlogs[1]
    assert at_once.singly == (len(keys) if broken else 0), "asked singly only where one is broken"
    assert [len(each.client_events) for each in made] == [1, 1]
