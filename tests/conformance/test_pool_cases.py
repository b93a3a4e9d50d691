"""What else every pool has to stand: odd exceptions, a full worker, state, idleness, resizes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.core.contract.events import Failed
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.handling.failure import MESSAGE_CHARS_MAX, STACK_CHARS_MAX
from tests.conformance.pool_rules import At
from tests.conformance.pool_sides import FAILING, WORKER, Heard, Raising, Returning, Side
from tests.support import odd_exceptions
from tests.support.core_harness import Harness
from tests.support.records import record

ERRORS = (
    *(
        odd_exceptions.keyboard_interrupt,
        odd_exceptions.system_exit,
        odd_exceptions.generator_exit,
        odd_exceptions.no_exception,
    ),
    *(odd_exceptions.huge, odd_exceptions.unpicklable, odd_exceptions.unsaid),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_whatever_a_handler_raises_is_a_failed_attempt_and_its_worker_goes_on(
    side: Any, error: Callable[[], BaseException]
) -> None:
    side.submit(record(1, "a"), record(2, "a"), record(3, "b"))
    side.start()
    side.end(Raising(error))
    assert side.work() == [3]
    assert (side.rules.at(At.FAILED), side.rules.at(At.ASIDE)) == ([1], [2])
    (failed,) = [each for each in side.rules.reports if isinstance(each, Failed)]
    assert failed.failure.error_type == type(error()).__qualname__
    assert len(failed.failure.message) <= MESSAGE_CHARS_MAX
    assert len(failed.failure.stack) <= 2 * STACK_CHARS_MAX
    assert side.lost() == []


@pytest.mark.parametrize("way", [Raising, Returning])
def test_what_a_handler_has_raised_is_freed_at_once(side: Any, way: type[Any]) -> None:
    """Not by the cyclic collector: a traceback holds frames, and these hold records."""
    try:
        side.submit(*(record(offset, f"key-{offset}") for offset in range(4)))
        side.work(lambda _: way(odd_exceptions.counted))
    finally:
        gc.enable()
    failed = [each.failure for each in side.rules.reports if isinstance(each, Failed)]
    assert [(each.error_type, each.message) for each in failed] == [("CountedError", "0")] * 4


def test_what_a_handler_leaves_behind_no_other_record_sees(side: Any) -> None:
    """Neither the next of its key, nor of another one, nor the same one when it is tried again."""
    side.submit(*(record(offset, f"key-{offset % 2}") for offset in range(4)))
    ran = side.work(lambda _: Raising(odd_exceptions.what_is_left))
    side.fence(record(0, "key-0"), record(1, "key-1"))
    again = [record(offset, f"key-{offset}") for offset in range(4)]
    side.submit(*again)
    ran += side.work(lambda _: Raising(odd_exceptions.what_is_left))
    failed = [each.failure for each in side.rules.reports if isinstance(each, Failed)]
    assert [(each.error_type, each.message) for each in failed] == [("ValueError", "nothing")] * 6
    assert ran == [0, 1, 0, 1, 2, 3]


def test_of_a_key_a_record_starts_when_the_one_before_it_has_ended(side: Side) -> None:
    side.submit(record(1, "a"), record(2, "a"), record(3, "b"), record(4, "a"))
    ran = []
    while (first := side.start()) is not None:
        ran.append(first.offset())
        # Where several run at once, those of other keys do.
        beside = None if side.serial else side.start()
        for each in (beside, first):
            if each is not None:
                ran += [] if each is first else [each.offset()]
                side.end(None, each)
    assert sorted(ran) == [1, 2, 3, 4]
    assert [each for each in ran if each != 3] == [1, 2, 4]


def test_a_worker_has_no_more_in_hand_than_it_is_leased_and_the_rest_waits_in_the_window(
    side: Side,
) -> None:
    settings = SubscriptionSettings(
        individually=not side.serial, prefetch_records=3, window_records=8
    )
    core = Harness(settings)
    core.pool = Heard(side)  # type: ignore[assignment]
    core.assign()
    core.fetch(*(record(offset, f"key-{offset}") for offset in range(8)))
    assert core.core.room() == 0
    ran = []
    while (item := side.start()) is not None:
        assert sum(len(each.records) for each in side.rules.given_now()) <= 3
        ran.append(item.offset())
        side.end(None, item)
        core.mailbox.extend(side.heard())
        core.deliver()
    core.mailbox.extend(side.heard())
    core.deliver()
    assert sorted(ran) == [*range(8)]
    assert (core.core.room(), core.core.outstanding()) == (8, 0)


def test_who_is_to_go_gives_back_what_waits_ends_what_runs_and_others_go_on(side: Side) -> None:
    side.add(1)
    side.submit(record(1, "a"))
    side.start()
    (waits,) = side.submit(record(2, "a"))
    assert side.recall() == {waits.id: [0]}
    side.end()
    assert side.start() is None
    assert side.rules.all_over()
    side.dismiss()
    side.whose = WORKER
    side.submit(record(2, "a"))
    assert side.work() == [2]
    assert [each for each in side.rules.said if "start" in each] == ["start 1", "start 2"]
    assert side.lost() == []


# --- state ---


def test_state_is_given_up_behind_what_a_worker_has_and_there_before_what_it_gets(
    side: Side,
) -> None:
    side.submit(record(1, "a"))
    side.start()
    side.release(3, 4)
    assert side.released() == []
    side.end()
    side.work()
    (released,) = side.released()
    assert (released.number, released.state, released.error) == (7, {"of": [3, 4]}, None)
    side.adopt(released.state, 3, 4)
    side.submit(record(2, "a"))
    assert side.start().offset() == 2
    assert [tuple(each) for each in side.adopted] == [([3, 4], {"of": [3, 4]})]
    side.end()


def test_state_that_comes_does_not_wait_for_what_is_to_be_given_up(side: Side) -> None:
    """Of other slots; what follows of the slots that have come may start before that is over."""
    side.submit(record(1, "a"))
    side.start()
    side.release(3)
    side.adopt("of 5", 5)
    side.submit(record(2, "b"))
    if (second := None if side.serial else side.start()) is None:
        side.end()
        second = side.start()
    assert second is not None
    assert second.offset() == 2
    assert [tuple(each) for each in side.adopted] == [([5], "of 5")]


def test_state_that_cannot_be_given_up_is_answered_with_the_reason(side: Side) -> None:
    side.release(FAILING)
    side.submit(record(1, "a"))
    assert side.work() == [1]
    (released,) = side.released()
    assert released.state is None
    assert "Error" in (released.error or "")


def test_who_is_asked_for_state_answers_once(side: Side) -> None:
    side.submit(record(1, "a"))
    side.work()
    side.release(3)
    side.release(4)
    assert side.work() == []
    assert [each.number for each in side.released()] == [3, 4]
