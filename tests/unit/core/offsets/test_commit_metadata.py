"""The commit metadata: what comes back, what is cut, and how runs are made."""

from __future__ import annotations

import random

import pytest

from kafka_keyshared.core.offsets.commit_metadata import (
    SET_BUDGET,
    TEXT_LIMIT,
    Decoded,
    Encoded,
    LogPosition,
    Runs,
    decode,
    encode,
    set_budget_of,
    set_rooms,
    settled_runs,
    size_bound,
)
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried, topic_id_in
from kafka_keyshared.core.offsets.settled_set_codec import MAX_OFFSET, bitmap_span
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import TopicPartition
from tests.support.commit_texts import here
from tests.support.records import P1

ONE, OTHER = "QwxnKJjnSJOv0Oyrd6vZoA", "3iGJijykR5SJPf-wdNEjKQ"
"""Ids of topics, as Kafka writes them."""


def every_second(position: int, count: int, step: int = 2) -> Runs:
    return tuple((position + 1 + step * i, position + 2 + step * i) for i in range(count))


def test_the_example_of_the_danube_dispatcher() -> None:
    # Of 10, 11, 12 and 13 all but 11 are settled.
    runs = settled_runs(11, 14, [11])
    assert runs == ((12, 14),)
    encoded = encode(here(11), {"default": runs})
    assert decode(encoded.text, here(11)) == Decoded({"default": ((12, 14),)})


def test_version_2_never_changes() -> None:
    runs = {"default": every_second(1_000_000, 20, step=3), "audit": ((1_000_000, 1_005_000),)}
    text = (
        "KS205aBUB{i0KkMj<uCp25JL=SD46F+ldsV1t9Pr}pao%dWNCB=0S3T?JphL%2V`YtVRdYD4gw6oggpUCk|arzBuN4"
    )
    assert encode(here(1_000_000, topic_id=ONE), runs).text == text
    assert decode(text, here(1_000_000, topic_id=ONE)).sections == runs
    small = "KS2026$2v^c01M?W{q6t<WMyVyb!>D60RsyG0R"
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


NOTED = {"s": LaneNotes(frozenset({b"x" * 16}), {107: Tried(2, archived=True)})}


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (here(150, topic_id=ONE), "position 100"),
        (here(99, topic_id=ONE), "position 100"),
        (here(100, P1, topic_id=ONE), "partition 0"),
        (here(100, TopicPartition("copy", 0), topic_id=ONE), "another topic than copy"),
        (here(100, topic_id=OTHER), f"topic id {ONE} (this topic has {OTHER})"),
        (here(150, TopicPartition("copy", 7), OTHER), "another topic than copy, partition 0, pos"),
    ],
)
def test_text_of_another_log_or_position_says_nothing_and_why(
    found: LogPosition, names: str
) -> None:
    """Mirrors, copying tools and backups store the text of a commit unchanged beside their own."""
    text = encode(here(100, topic_id=ONE), {"s": ((101, 105),)}, {"u": b"x"}, NOTED).text
    decoded = decode(text, found)
    assert decoded == Decoded(problem=decoded.problem), "sets, notes and blocks of others alike"
    assert decoded.problem is not None
    assert f"was written for {names}" in decoded.problem
    assert f"everything from offset {found.offset} on runs" in decoded.problem


@pytest.mark.parametrize("written", [None, ONE])
@pytest.mark.parametrize("read", [None, ONE])
def test_text_of_the_same_log_is_believed_unless_only_the_writer_knew_its_id(
    written: str | None, read: str | None
) -> None:
    text = encode(here(100, topic_id=written), {"s": ((101, 105),)}, notes=NOTED).text
    decoded = decode(text, here(100, topic_id=read))
    if written is not None and read is None:
        assert decoded.problem is not None
        assert "no broker tells the id" in decoded.problem
        assert not (decoded.sections or decoded.notes)
    else:
        assert (decoded.problem, decoded.notes) == (None, NOTED)
        assert decoded.sections == {"s": ((101, 105),)}
    assert topic_id_in(text) == written


def test_an_id_in_another_form_than_kafkas_is_compared_all_the_same() -> None:
    text = encode(here(100, topic_id="one"), {"s": ((101, 105),)}).text
    assert decode(text, here(100, topic_id="one")).sections
    assert decode(text, here(100, topic_id="two")).problem


def test_no_text_and_text_of_others_name_no_id() -> None:
    assert [topic_id_in(each) for each in (None, "", "KS1", "KS2junk", "x" * 99)] == [None] * 5


@pytest.mark.parametrize("limit", [0, 11, 40, 60, 89, 100, 160, 400, 1_000, 3_000, 4_095])
def test_text_keeps_to_the_limit_and_what_was_left_out_is_counted(limit: int) -> None:
    runs = every_second(10**6, 3_000, step=3)
    budget = set_budget_of(limit)
    at = here(10**6, topic_id=ONE)
    notes = {"s": LaneNotes(frozenset({b"x" * 16}), {at.offset + 7: Tried(2)})}
    encoded = encode(at, {"s": runs}, notes=notes, set_budget=budget, limit=limit)
    assert len(encoded.text) <= limit
    assert encoded.set_chars <= budget
    written = decode(encoded.text, at).sections.get("s", ())
    assert written == runs[: len(written)]
    assert encoded.left_out == len(runs) - len(written)


def test_sets_that_keep_to_their_room_fit_whatever_the_limit_is() -> None:
    for limit in range(0, 4_096, 7):
        room = set_rooms(["s"], set_budget_of(limit))["s"]
        if (span := bitmap_span(room)) <= 0:
            continue
        at = here(MAX_OFFSET - 10**6, topic_id=ONE)
        runs = every_second(at.offset, span // 2)
        notes = {"s": LaneNotes(frozenset({b"x" * 16}), {at.offset + 7: Tried(2)})}
        found = encode(at, {"s": runs}, notes=notes, set_budget=set_budget_of(limit), limit=limit)
        assert not found.truncated
        assert len(found.text) <= limit


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
