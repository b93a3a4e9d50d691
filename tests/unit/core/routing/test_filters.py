"""Filters: which keys a worker wants, whose a key is, and what is nobody's."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest

from kafka_keyshared.core.routing import (
    AutoSplit,
    Exclusive,
    Filters,
    OnUnmatched,
    Routing,
    StickyRanges,
    Unordered,
    Unowned,
    VnodeRing,
    check_filters,
    check_unmatched,
    filters_of,
)
from kafka_keyshared.core.routing.filters import KEYS_KNOWN, matches
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, slot_of
from tests.support.filtered_keys import owner_by

# --- patterns ---


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        (b"payment", [b"payment"], [b"payments", b"Payment", b"paymen", b""]),
        (b"ship*", [b"shipping", b"shipment", b"ship"], [b"shi", b"a ship"]),
        (b"eu-west-?", [b"eu-west-1", b"eu-west-2"], [b"eu-west-", b"eu-west-12"]),
        (b"*", [b"", b"x", b"*", b"*x", bytes(range(256))], []),
        (b"**", [b"", b"anything"], []),
        (b"?*", [b"x", b"xy"], [b""]),
        (b"", [b""], [b"x"]),
        (b"eu-*-order", [b"eu-west-1-order", b"eu--order"], [b"eu-west-1-payment", b"eu-order"]),
        (b"*-*-*", [b"a-b-c", b"--"], [b"a-b"]),
        (b"a*b*c", [b"abc", b"aXbYbZc", b"abcc"], [b"abcd", b"acb"]),
        (b"*ab", [b"ab", b"aab", b"abab"], [b"aba"]),
        (b"*?b", [b"ab", b"aab", b"?b", b"bb"], [b"b", b"a"]),
        (b"x?z*", ["x€z".encode()[:2] + b"z"], ["x€z".encode()]),
        (b"\xff?\x00*", [b"\xff\n\x00", b"\xff\xfe\x00\x00"], [b"\xff\x00"]),
        (b"[ab].+", [b"[ab].+"], [b"a.+", b"ax"]),
    ],
)
def test_a_pattern_takes_whole_keys_byte_for_byte(
    pattern: bytes, taken: list[bytes], left: list[bytes]
) -> None:
    assert [key for key in taken if not matches(pattern, key)] == []
    assert [key for key in left if matches(pattern, key)] == []


def test_a_pattern_made_to_be_slow_is_not() -> None:
    # What tries every way of dividing the key among the stars would not end in this life.
    assert not matches(b"*a" * 20 + b"b", b"a" * 2_000)


# --- who wants a key ---

FILTERS = Filters({"pay": ["payment", "invoice*"], "ship": [b"ship*", "invoice-??"], "rest": []})


@pytest.mark.parametrize(
    ("key", "takers"),
    [
        (b"payment", {"pay", "rest"}),
        (b"shipping", {"ship", "rest"}),
        (b"invoice-07", {"pay", "ship", "rest"}),
        (b"order", {"rest"}),
        (b"", {"rest"}),
        (None, {"rest"}),
    ],
)
def test_a_key_is_wanted_by_all_that_a_pattern_of_theirs_takes(
    key: bytes | None, takers: set[str]
) -> None:
    assert FILTERS.takers(key) == takers


def test_a_worker_without_patterns_or_with_a_star_takes_everything() -> None:
    filters = Filters({"a": [], "b": ["*"], "c": ["x", "**"], "d": ["?*"], "e": [""]})
    assert filters.catch_alls == {"a", "b", "c"}
    assert filters.takers(None) == {"a", "b", "c"}
    assert filters.takers(b"") == {"a", "b", "c", "e"}
    assert filters.takers(b"y") == {"a", "b", "c", "d"}


def test_a_null_key_is_of_no_pattern() -> None:
    assert Filters({"a": ["", "?*"]}).takers(None) == frozenset()


def test_one_plain_pattern_may_be_several_workers() -> None:
    filters = Filters({"a": ["x"], "b": ["x", "x"], "c": ["y"]})
    assert filters.takers(b"x") == {"a", "b"}
    assert filters.patterns == (("a", (b"x",)), ("b", (b"x",)), ("c", (b"y",)))


def test_text_is_taken_as_utf_8() -> None:
    assert Filters({"a": ["ключ-*"]}).takers("ключ-7".encode()) == {"a"}


def test_filters_are_values() -> None:
    assert pickle.loads(pickle.dumps(FILTERS)) == FILTERS
    assert pickle.loads(pickle.dumps(FILTERS)).takers(b"payment") == {"pay", "rest"}
    more = FILTERS.with_worker("late", ["order"])
    assert more.takers(b"order") == {"rest", "late"}
    assert FILTERS.takers(b"order") == {"rest"}
    assert FILTERS.with_worker("rest", ["x"]).catch_alls == frozenset()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ship*", "worker 'w': filters='ship.': give a list of patterns"),
        (b"ship*", "worker 'w': filters=b'ship.': give a list"),
        (["ok", 7], "worker 'w': filter 7: a pattern is text or bytes"),
    ],
)
def test_patterns_that_are_none_are_refused_by_name(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Filters({"w": given})  # type: ignore[dict-item]


def test_where_nobody_filters_there_is_nothing_to_ask() -> None:
    assert filters_of({}) is None
    assert filters_of({"a": [], "b": ["*"]}) is None
    assert filters_of({"a": [], "b": ["x"]}) == Filters({"a": [], "b": ["x"]})


# --- whose a key is ---


def test_a_key_goes_to_those_that_want_it_as_their_own_ring_would_send_it() -> None:
    names = [f"worker-{at}" for at in range(6)]
    filters = Filters({name: ["eu-*"] if at % 2 else ["us-*"] for at, name in enumerate(names)})
    owner = owner_by(VnodeRing(names), filters)
    europe, america = VnodeRing(names[1::2]), VnodeRing(names[0::2])
    for number in range(300):
        for prefix, ring in ((b"eu", europe), (b"us", america)):
            slot = slot_of(key := prefix + b"-%d" % number)
            assert owner(key, slot) == ring.owner(slot)


def test_what_only_an_absent_worker_wants_is_held_and_what_nobody_wants_is_nobodys() -> None:
    filters = Filters({"pay": ["payment"], "ship": ["ship*"]})
    owner = owner_by(VnodeRing(["ship"]), filters)
    assert owner(b"shipping", 7) == "ship"
    assert owner(b"payment", 7) is Unowned.AWAY
    assert owner(b"order", 7) is Unowned.UNASSIGNED


def test_while_one_that_wants_a_key_is_away_another_that_wants_it_gets_it() -> None:
    filters = Filters({"pay": ["payment"], "rest": []})
    assert owner_by(VnodeRing(["rest"]), filters)(b"payment", 7) == "rest"


def test_ranges_and_filters_both_have_to_take_a_key() -> None:
    ranges = StickyRanges({"a": [(0, 99)], "b": [(100, 199)]}, workers=["b"])
    owner = owner_by(ranges, Filters({"a": ["x*"], "b": ["x*", "y"]}))
    assert owner(b"x", 150) == "b"
    assert owner(b"x", 50) is Unowned.AWAY
    assert owner(b"y", 50) is Unowned.UNASSIGNED, "the slot is a's, and a does not want it"
    assert owner(b"x", 500) is Unowned.UNASSIGNED


def test_exclusive_takes_no_filters() -> None:
    with pytest.raises(ConfigError, match=r"Exclusive takes no filters: .* of a, b out"):
        check_filters(Exclusive(["a", "b"]), Filters({"a": ["x"], "b": []}))


def test_a_worker_that_has_declared_nothing_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="worker 'late' has not declared which keys it takes"):
        check_filters(VnodeRing(["a", "late"]), Filters({"a": ["x"]}))


def test_keys_that_are_known_take_no_more_room_than_is_said() -> None:
    names = [f"worker-{at}" for at in range(16)]
    owner = owner_by(VnodeRing(names), Filters({name: [f"*{name}*"] for name in names}))
    keys = (b"%064d" % at for at in range(4 * KEYS_KNOWN))
    long = (b"%d" % at + b"-" * 50_000 + b"worker-12" for at in range(20))
    tracemalloc.start()
    try:
        for key in keys:
            owner(key, 0)
        known = tracemalloc.get_traced_memory()[0]
        for key in long:
            assert owner(key, 0) in {"worker-1", "worker-12"}
        assert tracemalloc.get_traced_memory()[0] - known < 200_000, "long keys are not kept"
    finally:
        tracemalloc.stop()
    assert known < 1_000_000


# --- what is nobody's ---

ALL = [(0, SLOTS - 1)]


@pytest.mark.parametrize(
    ("routing", "filters"),
    [
        (VnodeRing(["a", "b"]), None),
        (AutoSplit(["a", "b"]), None),
        (Exclusive(["a", "b"]), None),
        (Unordered(["a", "b"]), None),
        (VnodeRing(["a", "b"]), Filters({"a": ["x"], "b": []})),
        (VnodeRing(["a"]), Filters({"a": ["x"], "b": []})),
        (StickyRanges({"a": ALL}), None),
        (StickyRanges({"a": [(0, 9)], "b": [(10, SLOTS - 1)]}, workers=["b"]), None),
        (StickyRanges({"a": ALL}, workers=["a", "b"]), Filters({"a": [], "b": ["x"]})),
    ],
)
def test_where_every_record_is_somebodys_nothing_need_be_said(
    routing: Routing, filters: Filters | None
) -> None:
    check_unmatched(routing, filters, None)
    check_unmatched(routing, filters, "skip")


@pytest.mark.parametrize(
    ("routing", "filters", "said"),
    [
        (
            VnodeRing(["a", "b"]),
            Filters({"a": ["x"], "b": ["y*"]}),
            "no worker takes every key, each of a, b has filters: give on_unmatched='skip'",
        ),
        (
            StickyRanges({"a": [(0, 9), (20, 29)], "b": [(40, SLOTS - 1)]}),
            None,
            r"no worker has the slots 10\.\.19 and 1 more: give on_unmatched=.*, or assign them",
        ),
        (
            StickyRanges({"a": [(0, 9)], "b": [(10, SLOTS - 1)]}),
            Filters({"a": [], "b": ["x"]}),
            r"no worker without filters has the slots 10\.\.65535: give on_unmatched",
        ),
    ],
)
def test_where_a_record_may_be_nobodys_it_must_be_said_what_becomes_of_it(
    routing: Routing, filters: Filters | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_unmatched(routing, filters, None)
    choices: tuple[OnUnmatched, ...] = ("skip", "hold", "error")
    for choice in choices:
        check_unmatched(routing, filters, choice)


def test_what_is_no_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="on_unmatched='drop': give one of 'skip', 'hold', 'err"):
        check_unmatched(VnodeRing(["a"]), None, "drop")  # type: ignore[arg-type]
