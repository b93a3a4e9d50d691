"""One contract for every way of leasing: fences, one lease of a key, and settling one by one.

Each test is told to all of them. What starts, how much is in hand and what a commit says is held to
the rules at every step (:class:`tests.unit.core.leasing.leasing_rules.Books`).
"""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_keyshared.core.contract.outcomes import Disposition
from tests.support.records import ERROR, P0, P1, failure, record
from tests.support.seeds import seeds
from tests.unit.core.leasing.leasing_rules import LEASES, MODES, Leasing, Mode, Telling, history

SEEDS = seeds(12)

GIVEN_BACK = failure(Disposition.GIVEN_BACK)


@pytest.fixture(params=[*MODES.values()], ids=[*MODES])
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


def member(mode: Mode, **how: object) -> Leasing:
    leasing = Leasing(mode, **how)  # type: ignore[arg-type]
    leasing.assign(P0, P1)
    return leasing


# --- order ---


def test_records_of_a_key_start_in_order_and_those_of_others_go_on(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, "abc"[offset % 3]) for offset in range(30)])
    assert sorted(leasing.work()) == list(range(30))
    for key in (b"a", b"b", b"c"):
        assert leasing.books.order[key] == sorted(leasing.books.order[key])
    assert leasing.position() == 30


def test_a_key_is_in_the_hands_of_one_worker(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, "same") for offset in range(10)])
    started = leasing.start_all()
    assert started == list(range(LEASES if mode.several else 1))
    assert len({each.worker for each in leasing.books.in_hand}) == 1


def test_records_without_a_key_wait_for_nobody(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, None) for offset in range(9)])
    assert len(leasing.start_all()) >= len(leasing.workers)
    last = leasing.endable()[-1]
    leasing.end(last, ERROR)
    leasing.mail()
    assert sorted({*leasing.work(), *range(9)}) == list(range(9))


def test_who_settles_one_by_one_has_as_many_at_once_with_or_without_a_key() -> None:
    for mode in (mode for mode in MODES.values() if mode.individually):
        leasing = member(mode)
        leasing.fetch(*[record(offset, None) for offset in range(20)])
        assert len(leasing.start_all()) == LEASES * len(leasing.workers)
        leasing.end(leasing.endable()[0], None)
        leasing.mail()
        assert len(leasing.start_all()) == 1


def test_one_by_one_what_has_no_key_comes_between_the_others_as_it_was_received() -> None:
    for mode in (mode for mode in MODES.values() if mode.individually):
        leasing = member(mode, workers=1)
        keys = [None, "a", None, "b", None, "c", None, "d", None]
        leasing.fetch(*[record(offset, key) for offset, key in enumerate(keys)])
        assert leasing.start_all() == list(range(LEASES))
        assert leasing.work() == list(range(LEASES, len(keys)))


# --- failures ---


def test_behind_a_failure_nothing_of_its_key_starts_and_others_do(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(12)])
    assert {1, 3, 5, 7, 9, 11} <= set(leasing.work({0: [ERROR]}))
    assert leasing.books.settled[P0] == {1, 3, 5, 7, 9, 11}, "0 waits, and all of its key"
    leasing.later(1.0)
    assert leasing.work()[:2] == [0, 2]
    assert leasing.books.order[b"a"] == [0, 2, 4, 6, 8, 10]
    assert leasing.position() == 12


def test_each_failure_is_an_attempt_and_the_last_one_blocks_the_key_alone(mode: Mode) -> None:
    leasing = member(mode, attempts=3)
    leasing.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(8)])
    leasing.work({0: [ERROR] * 9})
    for _ in range(5):
        leasing.later(5.0)
        leasing.books.blocked |= {(P0, 0)} if leasing.books.starts[P0, 0] == 3 else set()
        leasing.work({0: [ERROR] * 9})
    assert leasing.books.starts[P0, 0] == 3
    assert leasing.books.settled[P0] == {1, 3, 5, 7}
    assert leasing.position() == 0


def test_a_key_goes_on_in_the_step_in_which_its_dead_letter_is_acknowledged(mode: Mode) -> None:
    leasing = member(mode, attempts=1, on_exhausted="dead_letter")
    leasing.fetch(*[record(offset, "a") for offset in range(4)])
    leasing.work({0: [ERROR]})
    assert leasing.books.settled[P0] == set()
    leasing.harness.dead_letter("no such topic")
    assert leasing.work() == [], "a letter that was not written settles nothing"
    leasing.later(2.0)
    leasing.books.settled[P0].add(0)
    leasing.harness.dead_letter()
    assert leasing.work() == [1, 2, 3]
    assert leasing.position() == 4


def test_what_is_given_back_untried_costs_no_attempt(mode: Mode) -> None:
    leasing = member(mode, attempts=1)
    leasing.fetch(*[record(offset, "a") for offset in range(3)])
    leasing.work({0: [GIVEN_BACK, GIVEN_BACK]})
    for _ in range(3):
        leasing.later(1.0)
        leasing.work({0: []})
    assert leasing.books.order[b"a"] == [0, 1, 2]


# --- what comes back ---


def test_what_is_recalled_starts_again_in_its_order(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(20)])
    for worker in leasing.workers:
        leasing.start(worker)
        leasing.recall(worker)
        leasing.recall(worker)
    assert leasing.harness.sub().window.records == 20
    leasing.work()
    assert leasing.books.order[b"a"] == list(range(0, 20, 2))
    assert leasing.books.order[b"b"] == list(range(1, 20, 2))


def test_what_is_recalled_behind_a_failure_stays_behind_it(mode: Mode) -> None:
    leasing = member(mode, workers=1)
    leasing.fetch(*[record(offset, "a") for offset in range(6)])
    first = leasing.start(0)
    assert first is not None
    leasing.end(first, ERROR)
    leasing.recall(0)
    leasing.mail()
    assert leasing.work() == []
    leasing.later(1.0)
    assert leasing.work()[0] == 0
    assert leasing.books.order[b"a"] == list(range(6))


# --- what a commit says ---


def test_a_commit_says_what_has_settled_out_of_order(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(record(0, "slow"), *[record(offset, f"k{offset}") for offset in range(1, 9)])
    leasing.start_all()
    for _ in range(20):
        for it in leasing.endable():
            if it.record.key() != b"slow":
                leasing.end(it)
        leasing.mail()
        leasing.start_all()
    assert leasing.position() == 0, "and the books have seen what the set says"
    done = leasing.books.settled[P0]
    assert done and 0 not in done
    leasing.work()
    assert leasing.position() == 9


def test_what_failed_is_not_committed_until_it_has_settled(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, f"k{offset}") for offset in range(5)])
    leasing.work({2: [ERROR]})
    assert leasing.position() == 2
    leasing.later(1.0)
    leasing.work()
    assert leasing.position() == 5


# --- partitions that go ---


def test_what_has_not_settled_starts_again_where_its_partition_comes_back(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, "abc"[offset % 3]) for offset in range(12)])
    leasing.start_all()
    for it in leasing.endable()[:2]:
        leasing.end(it)
    leasing.revoke(P0)
    done = set(leasing.books.settled[P0])
    assert len(done) == 2
    leasing.work()  # what still runs ends, and settles nothing
    assert leasing.books.settled[P0] == done
    leasing.assign(P0)
    start = leasing.position_stored(P0)
    leasing.fetch(*[record(offset, "abc"[offset % 3]) for offset in range(start, 12)])
    assert sorted(leasing.work()) == sorted(set(range(12)) - done)
    assert leasing.position() == 12


def test_a_lane_that_waits_for_a_record_of_a_gone_partition_goes_on(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(record(0, "k"), record(0, "k", P1), record(1, "k", P1))
    leasing.work({0: [ERROR]})
    leasing.revoke(P0)
    leasing.later(1.0)
    leasing.work()
    assert leasing.books.settled[P1] == {0, 1}


# --- bounds ---


def test_no_worker_holds_more_than_its_leases(mode: Mode) -> None:
    leasing = member(mode)
    leasing.fetch(*[record(offset, f"k{offset}") for offset in range(60)])
    for _ in range(5):
        leasing.start_all()
        assert all(each.leased <= LEASES for each in leasing.harness.sub().workers.values())
        for it in leasing.endable():
            leasing.end(it, ERROR if it.record.offset() % 3 == 0 else None)
        leasing.later(0.3)


# --- the same histories ---


def test_the_same_history_comes_to_the_same_end_however_it_is_leased() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        ends = {}
        for name, mode in MODES.items():
            telling = Telling(mode, seed)
            try:
                telling.go(history(seed))
                books = telling.leasing.books
                for at, log in telling.log.items():
                    assert books.settled[at] == {each.offset() for each in log}, f"{at} never ended"
                    assert telling.leasing.position_stored(at) == len(log)
                for place, starts in books.starts.items():
                    expected = telling.plan[place] + 1 + telling.in_vain[place]
                    assert starts == expected, f"{place} started {starts} times, not {expected}"
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {name}: {error}") from error
            ends[name] = dict(books.order)
            met["failed"] += telling.failed.total()
            met["in vain"] += telling.in_vain.total()
        first, *others = ends.values()
        assert all(each == first for each in others), f"seed {seed}: {ends}"
    assert met["failed"] > 100 * len(SEEDS)
    assert met["in vain"] > len(SEEDS)
