"""Auto-split: the largest range is halved, what is given up goes to a neighbour, as in Pulsar."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.routing import AutoSplit, Move, Unowned, moves
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS


def shown(routing: AutoSplit) -> str:
    return " ".join(f"{owner}:{first}-{last}" for first, last, owner in routing.spans())


# Taken from Pulsar 4.0.0: its HashRangeAutoSplitStickyKeyConsumerSelector was given w0 to w5 in
# this order, and asked for the consumer of each of the 65,536 slots after every step.
PULSAR = [
    ("+w1", "w1:0-32768 w0:32769-65535"),
    ("+w2", "w2:0-16384 w1:16385-32768 w0:32769-65535"),
    ("+w3", "w2:0-16384 w1:16385-32768 w3:32769-49152 w0:49153-65535"),
    ("+w4", "w4:0-8192 w2:8193-16384 w1:16385-32768 w3:32769-49152 w0:49153-65535"),
    ("-w0", "w4:0-8192 w2:8193-16384 w1:16385-32768 w3:32769-65535"),
    ("-w2", "w4:0-8192 w1:8193-32768 w3:32769-65535"),
    ("-w4", "w1:0-32768 w3:32769-65535"),
    ("+w5", "w5:0-16384 w1:16385-32768 w3:32769-65535"),
    ("-w1", "w5:0-16384 w3:16385-65535"),
    ("-w3", "w5:0-65535"),
]


def test_each_worker_has_the_slots_that_pulsar_gives_it() -> None:
    routing = AutoSplit(["w0"])
    assert shown(routing) == "w0:0-65535"
    for step, expected in PULSAR:
        change, name = step[0], step[1:]
        routing = routing.with_worker(name) if change == "+" else routing.without_worker(name)
        assert shown(routing) == expected, step


def test_workers_given_at_once_have_joined_in_that_order() -> None:
    joined = AutoSplit(["w0"]).with_worker("w1").with_worker("w2").with_worker("w3")
    assert AutoSplit(["w0", "w1", "w2", "w3"]) == joined
    assert shown(AutoSplit(["w1", "w0", "w2", "w3"])) != shown(joined)


def test_a_worker_that_joins_takes_from_one_and_from_no_other() -> None:
    before = AutoSplit(["w0", "w1", "w2"])
    assert list(moves(before, before.with_worker("w3"))) == [Move(32769, 49152, "w0", "w3")]


def test_a_worker_that_leaves_gives_to_one_and_to_no_other() -> None:
    before = AutoSplit(["w0", "w1", "w2"])
    assert list(moves(before, before.without_worker("w2"))) == [Move(0, 16384, "w2", "w1")]
    highest = before.without_worker("w0")
    assert list(moves(before, highest)) == [Move(32769, 65535, "w0", "w1")]


def test_among_some_workers_a_slot_goes_where_it_would_if_the_others_left() -> None:
    routing = AutoSplit([f"w{at}" for at in range(6)])
    for some in ("w0", "w5"), ("w1", "w2", "w4"), ("w3",):
        left = routing
        for name in routing.workers:
            if name not in some:
                left = left.without_worker(name)
        for slot in [0, SLOTS - 1, *range(7, SLOTS, 1021)]:
            assert routing.owner_among(slot, frozenset(some)) == left.owner(slot)
    assert routing.owner_among(0, frozenset(["z"])) is Unowned.AWAY


def test_more_workers_than_can_have_a_slot_are_refused() -> None:
    with pytest.raises(ConfigError, match="65,536 workers: there are 65,536 slots to split"):
        AutoSplit([f"w{at}" for at in range(SLOTS)])


@pytest.mark.parametrize(("names", "said"), [([], "no workers"), (["a", "a"], "'a'")])
def test_what_cannot_be_split_is_refused(names: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AutoSplit(names)
