"""Which letters a replay sends, and which of them must wait for which."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from kafka_keyshared.dlq.letter import Letter, LetterForm, LetterPlace
from kafka_keyshared.dlq.replay_plan import BYTES_PER_LETTER, ReplayPlan, digest_of, mark_of
from kafka_keyshared.errors import ConfigError
from tests.support.letters import a_letter, planned


def lane_from(plan: ReplayPlan, first: int) -> list[LetterPlace]:
    """The places of a lane from a letter on."""
    places, at = [], first
    while True:
        places.append(plan.place(at))
        behind = plan.behind(at)
        if behind is None:
            return places
        assert plan.before(behind) == at
        at = behind


def lanes(plan: ReplayPlan) -> list[list[LetterPlace]]:
    """The places of the letters, lane by lane, in the order in which they are sent."""
    firsts = [index for index in range(len(plan.rows)) if plan.before(index) is None]
    return [lane_from(plan, first) for first in firsts]


def test_letters_of_a_key_go_in_the_order_of_their_source() -> None:
    plan = planned(
        [
            a_letter((0, 0), ("t", 0, 30)),
            a_letter((0, 1), ("t", 0, 10)),
            a_letter((1, 0), ("t", 0, 20)),
            a_letter((1, 1), ("t", 0, 256), key=b"other"),
            a_letter((1, 2), ("t", 0, 255), key=b"other"),
        ]
    )
    assert sorted(lanes(plan)) == [
        [LetterPlace(0, 1), LetterPlace(1, 0), LetterPlace(0, 0)],
        [LetterPlace(1, 2), LetterPlace(1, 1)],
    ]


def test_a_lane_is_a_key_of_one_topic() -> None:
    plan = planned([a_letter((0, 0), ("t", 0, 2)), a_letter((0, 1), ("u", 0, 1))])
    assert sorted(lanes(plan)) == [[LetterPlace(0, 0)], [LetterPlace(0, 1)]]
    assert plan.targets() == plan.lanes() == {"t": 1, "u": 1}


def test_letters_without_a_key_wait_for_none() -> None:
    letters = [a_letter((0, n), ("t", 0, 9 - n), key=None) for n in range(3)]
    plan = planned(letters)
    assert len(lanes(plan)) == 3
    assert (plan.keyless(), plan.lanes(), plan.keys()[0]) == ({"t": 3}, {}, 0)
    # The empty key is a key.
    assert len(lanes(planned([a_letter((0, n), ("t", 0, n), key=b"") for n in range(3)]))) == 1


def test_by_partition_all_of_a_source_partition_is_one_lane() -> None:
    letters = [
        a_letter((0, 0), ("t", 1, 3), key=None),
        a_letter((0, 1), ("t", 1, 1), key=b"a"),
        a_letter((0, 2), ("t", 1, 2), key=b"b"),
        a_letter((0, 3), ("t", 2, 0), key=b"a"),
    ]
    assert sorted(lanes(planned(letters, order="partition"))) == [
        [LetterPlace(0, 1), LetterPlace(0, 2), LetterPlace(0, 0)],
        [LetterPlace(0, 3)],
    ]


@pytest.mark.parametrize(("replays", "sent"), [(0, 1), (2, 1), (3, 0), (9, 0)])
def test_the_loop_guard_refuses_what_was_replayed_too_often(replays: int, sent: int) -> None:
    plan = planned([a_letter((0, 7), ("t", 0, 1), replays=replays)])
    assert (len(plan.rows), plan.refused.guarded) == (sent, 1 - sent)
    assert plan.refused.examples.get("guarded", []) == [LetterPlace(0, 7)] * (1 - sent)


def test_what_the_guard_refuses_stops_nobody() -> None:
    plan = planned([a_letter((0, 0), ("t", 0, 1), replays=3), a_letter((0, 1), ("t", 0, 2))])
    assert lanes(plan) == [[LetterPlace(0, 1)]]


def test_what_is_no_letter_is_counted_and_not_sent() -> None:
    unreadable = Letter(LetterPlace(0, 1), 5, LetterForm.UNREADABLE, b"k", b"v", problem="damaged")
    plan = planned([a_letter((0, 0), None), unreadable])
    assert (plan.rows, plan.letters) == ([], 0)
    assert (plan.refused.foreign, plan.refused.unreadable) == (1, 1)


def test_of_two_letters_of_one_record_one_is_sent() -> None:
    """A crash between a dead letter and the commit gives a record two."""
    twice = [a_letter((0, 0), ("t", 0, 1), attempts=5), a_letter((1, 5), ("t", 0, 1), attempts=3)]
    plan = planned(twice)
    assert (lanes(plan), plan.refused.copies) == ([[LetterPlace(0, 0)]], 1)
    # When one of them was replayed before, the other is not sent either.
    again = planned(twice, already=frozenset([LetterPlace(0, 0)]))
    assert (again.rows, again.refused.already, again.refused.copies) == ([], 1, 1)


def test_a_copy_is_done_with_when_the_letter_that_was_sent_is() -> None:
    """Or it would be outstanding for ever, and never sent."""
    twice = [a_letter((0, 0), ("t", 0, 1), attempts=5), a_letter((1, 5), ("t", 0, 1), attempts=3)]
    marks = [(each.at, mark_of(each, digest_of(each))) for each in twice]
    plan = planned(twice)
    assert (plan.settled_with(0), plan.settled_before()) == (marks, [])
    later = planned(twice, already=frozenset([LetterPlace(0, 0)]))
    assert later.settled_before() == marks[1:]


@pytest.mark.parametrize("differs", [{"key": b"x"}, {"value": None}, {"timestamp": 2}])
def test_another_record_at_the_same_offset_is_no_copy(differs: dict[str, Any]) -> None:
    """The source topic was made anew, so its offsets came again."""
    plan = planned([a_letter((0, 0), ("t", 0, 1)), a_letter((0, 1), ("t", 0, 1), **differs)])
    assert (len(plan.rows), plan.refused.copies) == (2, 0)


def test_a_tombstone_is_not_an_empty_value() -> None:
    one, other = (a_letter((0, 0), ("t", 0, 1), value=value) for value in (None, b""))
    assert digest_of(one) != digest_of(other)


def test_what_was_replayed_is_left_out_and_what_follows_does_not_wait_for_it() -> None:
    letters = [a_letter((0, n), ("t", 0, n)) for n in range(3)]
    plan = planned(letters, already=frozenset([LetterPlace(0, 0), LetterPlace(0, 1)]))
    assert (lanes(plan), plan.refused.already) == ([[LetterPlace(0, 2)]], 2)


def test_a_mark_is_of_the_letter_and_of_its_place() -> None:
    letter = a_letter((0, 0), ("t", 0, 1))
    elsewhere = a_letter((0, 1), ("t", 0, 1))
    another = a_letter((0, 0), ("t", 0, 1), value=b"w")
    marks = {mark_of(each, digest_of(each)) for each in (letter, elsewhere, another)}
    assert len(marks) == 3
    assert mark_of(letter, digest_of(letter)) in marks


def test_letters_are_found_by_their_place() -> None:
    order = list(range(300))
    random.Random(3).shuffle(order)
    plan = planned([a_letter((n % 3, n), ("t", 0, order[n]), b"%d" % (n % 7)) for n in range(300)])
    for n in range(300):
        index = plan.find(n % 3, n)
        assert index is not None
        assert plan.place(index) == LetterPlace(n % 3, n)
    assert [plan.find(0, 1), plan.find(0, 300), plan.find(9, 0)] == [None] * 3


def test_more_letters_than_memory_was_given_for_are_refused() -> None:
    plan = ReplayPlan(3, "key", 2)
    with pytest.raises(ConfigError, match=r"more than 2 letters.*--max-letters"):
        for n in range(3):
            plan.add(a_letter((0, n), ("t", 0, n)), ())


def test_the_memory_of_a_letter_is_what_the_help_says() -> None:
    count = 5_000
    letters = [a_letter((0, n), ("t", 0, count - n), b"%d" % (n % 500)) for n in range(count)]
    tracemalloc.start()
    plan = ReplayPlan(3, "key", count)
    for letter in letters:
        plan.add(letter, ())
    plan.close()
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan.rows) == count
    assert held / count < 150
    assert most / count < BYTES_PER_LETTER + 100  # while it is put in order


def test_the_plan_names_the_keys_with_the_most_letters() -> None:
    letters = [a_letter((0, n), ("t", 0, n), b"hot" if n % 3 else b"%d" % n) for n in range(12)]
    count, most = planned(letters).keys()
    assert (count, most[0]) == (5, (b"hot", 8))


def test_the_highest_partition_of_each_source_is_known() -> None:
    letters = [a_letter((0, n), ("t", n, 0), b"%d" % n) for n in (1, 5, 2)]
    assert planned(letters).highest_partitions() == {"t": 5}
