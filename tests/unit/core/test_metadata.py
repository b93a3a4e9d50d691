"""The commit metadata: what comes back, what is cut, and how runs are made."""

from __future__ import annotations

import random

import pytest

from kafka_keyshared.core.metadata import (
    SET_BUDGET,
    TEXT_LIMIT,
    Decoded,
    Encoded,
    Runs,
    decode,
    encode,
    settled_runs,
    size_bound,
)
from kafka_keyshared.errors import InvariantError
from tests.support.texts import here


def every_second(position: int, count: int, step: int = 2) -> Runs:
    return tuple((position + 1 + step * i, position + 2 + step * i) for i in range(count))


def test_the_example_of_the_danube_dispatcher() -> None:
    # Of 10, 11, 12 and 13 all but 11 are settled.
    runs = settled_runs(11, 14, [11])
    assert runs == ((12, 14),)
    encoded = encode(here(11), {"default": runs})
    assert decode(encoded.text, here(11)) == Decoded({"default": ((12, 14),)})


def test_version_1_never_changes() -> None:
    runs = {"default": every_second(1_000_000, 20, step=3), "audit": ((1_000_000, 1_005_000),)}
    text = "KS103bKi;(11z~k$X><qy2Ec?p0EZ_BWMyVyb!>DF0t~=}JpoCQBuSDaNdf"
    assert encode(here(1_000_000), runs).text == text
    assert decode(text, here(1_000_000)).sections == runs
    small = "KS101d5L&fP2V`YtVRdYD1pxyK0Ra"
    assert encode(here(11), {"default": ((12, 14),)}).text == small
    assert decode(small, here(11)).sections == {"default": ((12, 14),)}


def test_nothing_to_say_is_an_empty_text() -> None:
    assert encode(here(5), {}) == Encoded("")
    assert encode(here(5), {"default": ()}, {}) == Encoded("")
    assert decode("", here(5)) == decode(None, here(5)) == Decoded()
    assert decode(None, here(-1001)) == Decoded()


def test_a_run_may_start_at_the_position_and_reach_the_last_offset() -> None:
    top = 2**63 - 1
    for runs in (((0, top),), ((0, 1), (2, top))):
        assert decode(encode(here(0), {"s": runs}).text, here(0)).sections == {"s": runs}
    assert decode(encode(here(top - 1), {"s": ((top - 1, top),)}).text, here(top - 1)).sections


def test_ids_of_subscriptions_are_any_text() -> None:
    sections = dict.fromkeys(("", "ä" * 50, "a\nb", "\ud800", "default"), ((7, 9),))
    assert decode(encode(here(5), sections).text, here(5)).sections == sections
    assert encode(here(5), sections).text.isascii()


def test_2000_runs_of_a_full_window_fit() -> None:
    runs = every_second(10**9, 2000, step=5)
    encoded = encode(here(10**9), {"default": runs})
    assert not encoded.truncated
    assert encoded.set_chars <= SET_BUDGET
    assert decode(encoded.text, here(10**9)).sections["default"] == runs


def test_a_set_that_does_not_fit_is_cut_to_its_lowest_offsets() -> None:
    rng = random.Random(5)
    runs, at = [], 100
    for _ in range(3000):
        at += rng.randint(1, 900)
        runs.append((at, at + 200))
        at += 200
    encoded = encode(here(99), {"default": tuple(runs)})
    assert encoded.truncated == ("default",)
    assert SET_BUDGET - 5 <= encoded.set_chars <= SET_BUDGET
    got = decode(encoded.text, here(99)).sections["default"]
    assert got[:-1] == tuple(runs[: len(got) - 1])
    assert got[-1][0] == runs[len(got) - 1][0]
    assert got[-1][1] <= runs[len(got) - 1][1]


def test_a_bitmap_is_cut_too() -> None:
    runs = every_second(0, 20_000)
    encoded = encode(here(0), {"default": runs})
    assert encoded.truncated == ("default",)
    got = decode(encoded.text, here(0)).sections["default"]
    assert got == runs[: len(got)]
    assert len(got) > 8000


def test_a_share_that_one_leaves_goes_to_the_others() -> None:
    big = every_second(0, 20_000)
    sections: dict[str, Runs] = {"small": ((5, 6),), "a": big, "b": big}
    encoded = encode(here(0), sections)
    assert encoded.truncated == ("a", "b")
    assert encoded.set_chars == SET_BUDGET
    got = decode(encoded.text, here(0)).sections
    assert got["small"] == ((5, 6),)
    assert abs(len(got["a"]) - len(got["b"])) <= 12
    alone = decode(encode(here(0), {"a": big}).text, here(0)).sections["a"]
    assert len(alone) - 200 < len(got["a"]) + len(got["b"]) < len(alone)


def test_the_limit_of_a_stricter_broker_is_kept() -> None:
    runs = every_second(10**6, 20_000)
    for limit in (-1, 0, 10, 11, 12, 27, 28, 30, 64, 1000, 4094, 4095, 10**9):
        encoded = encode(here(10**6), {"default": runs}, {"gone": bytes(9)}, limit=limit)
        assert len(encoded.text) <= min(max(limit, 0), TEXT_LIMIT)
        decoded = decode(encoded.text, here(10**6), known=["default"])
        assert decoded.problem is None
        got = decoded.sections.get("default", ())
        assert got == runs[: len(got)]
        assert encoded.truncated == ("default",)


def test_a_set_budget_above_the_limit_is_bounded_by_the_limit() -> None:
    for limit in (TEXT_LIMIT, 10**9):
        runs = {"default": every_second(0, 30_000)}
        encoded = encode(here(0), runs, set_budget=10**9, limit=limit)
        assert TEXT_LIMIT - 5 <= len(encoded.text) <= TEXT_LIMIT
        assert decode(encoded.text, here(0)).problem is None


def test_the_bound_says_zero_for_nothing_and_grows_with_the_id() -> None:
    assert size_bound(0, 0) == size_bound(100, 0) == 0
    assert size_bound(100, 3, "x" * 40) > size_bound(100, 3, "x")
    # A full window in which every second record is outstanding is known to fit without encoding.
    assert size_bound(10_000, 5000) <= SET_BUDGET


def test_unknown_subscriptions_are_handed_on_verbatim_and_readable_later() -> None:
    sections = {"mine": ((102, 110), (120, 121)), "theirs": ((105, 130),)}
    first = decode(encode(here(100), sections).text, here(100), known={"mine"})
    assert first.sections == {"mine": sections["mine"]}
    assert list(first.unknown) == ["theirs"]
    again = encode(here(112), {"mine": ((120, 121),)}, first.unknown)
    assert again.dropped_unknown == 0
    later = decode(again.text, here(112))
    assert later.sections == {"mine": ((120, 121),), "theirs": ((112, 130),)}


def test_unknown_subscriptions_are_dropped_first_largest_first_and_counted() -> None:
    unknown = {"a": bytes(900), "b": bytes(600), "c": bytes(10), "d": bytes(4000)}
    encoded = encode(here(0), {"default": every_second(0, 20_000)}, unknown)
    assert encoded.dropped_unknown == 2
    assert encoded.set_chars > SET_BUDGET - 5
    kept = decode(encoded.text, here(0), known=["default"]).unknown
    assert kept == {"b": bytes(600), "c": bytes(10)}


def test_a_subscription_that_is_known_again_speaks_for_itself() -> None:
    stale = decode(encode(here(5), {"s": ((7, 9),)}).text, here(5), known=()).unknown
    assert decode(encode(here(6), {"s": ()}, stale).text, here(6)) == Decoded()
    encoded = encode(here(6), {"s": ((10, 11),)}, stale)
    assert decode(encoded.text, here(6)).sections == {"s": ((10, 11),)}
    assert encoded.dropped_unknown == 0


def test_a_set_for_a_later_position_is_not_used() -> None:
    # Somebody set the group back to see those records again.
    text = encode(here(100), {"s": ((101, 105),)}).text
    decoded = decode(text, here(99))
    assert not decoded.sections
    assert decoded.problem is not None
    assert "written for position 100, not for 99" in decoded.problem


def test_a_later_position_clips_the_set() -> None:
    # Retention removed what lies before it.
    decoded = decode(encode(here(100), {"s": ((101, 105), (110, 120), (130, 131))}).text, here(112))
    assert decoded.sections == {"s": ((112, 120), (130, 131))}
    assert decode(encode(here(100), {"s": ((101, 105),)}).text, here(10**6)) == Decoded()


@pytest.mark.parametrize(
    ("position", "runs"),
    [
        (-1, ()),
        (10, ((9, 12),)),
        (10, ((12, 12),)),
        (10, ((12, 11),)),
        (10, ((12, 14), (14, 15))),
        (10, ((12, 14), (13, 15))),
        (10, ((20, 21), (12, 14))),
        (10, ((12, 2**63),)),
    ],
)
def test_runs_that_do_not_belong_to_the_position_are_never_written(
    position: int, runs: Runs
) -> None:
    with pytest.raises(InvariantError, match="position"):
        encode(here(position), {"default": runs})


@pytest.mark.parametrize(
    ("position", "end", "unsettled", "restored", "expected"),
    [
        (14, 14, [], [], ()),
        (11, 14, [11, 12, 13], [], ()),
        (10, 20, [10, 12, 19], [], ((11, 12), (13, 19))),
        (10, 20, [12], [], ((10, 12), (13, 20))),
        (10, 20, [], [], ((10, 20),)),
        (10, 12, [10], [(15, 18)], ((11, 12), (15, 18))),
        (10, 12, [10], [(11, 18)], ((11, 18),)),
        (10, 12, [10, 11], [(5, 18)], ((12, 18),)),
        (10, 12, [10, 11], [(5, 11)], ()),
        (10, 10, [], [(5, 8), (9, 12), (20, 22)], ((10, 12), (20, 22))),
        (10, 5, [], [(12, 13)], ((12, 13),)),
        (10, 5, [], [(3, 13)], ((10, 13),)),
    ],
)
def test_runs_are_what_is_not_outstanding(
    position: int,
    end: int,
    unsettled: list[int],
    restored: list[tuple[int, int]],
    expected: Runs,
) -> None:
    assert settled_runs(position, end, unsettled, restored) == expected


@pytest.mark.parametrize("unsettled", [[9], [10, 10], [12, 11], [20], [10, 25]])
def test_an_unsettled_record_outside_the_snapshot_stops_the_commit(unsettled: list[int]) -> None:
    with pytest.raises(InvariantError, match="unsettled offset"):
        settled_runs(10, 20, unsettled)
