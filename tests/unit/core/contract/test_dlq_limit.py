"""The dead-letter limit stops a partition of which too much is dead-lettered."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.events import DlqLimitLifted
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.simulator.handlers import Ending
from tests.support.core_harness import Harness
from tests.support.records import ERROR, GIVE_UP, P0, P1, record

SMALL = DlqLimit(share=0.5, records=10, consecutive=4)
TWO = ("worker-0", "worker-1")


def limited(limit: DlqLimit | None = SMALL, **more: object) -> Harness:
    wanted = {
        "on_exhausted": "dead_letter",
        "dlq": True,
        "retry": RetryPolicy(attempts=1),
        "dlq_limit": limit,
        **more,
    }
    harness = Harness(SubscriptionSettings(**wanted))  # type: ignore[arg-type]
    harness.assign(P0, P1)
    return harness


def run(harness: Harness, offset: int, ending: Ending = None) -> None:
    """Have one record of P0 come and end so; a letter of it is acknowledged."""
    harness.fetch(record(offset, f"key-{offset}"))
    assert harness.work({offset: [ending]} if ending else {}) == [offset]
    if ending:
        harness.dead_letter()


def stopped(harness: Harness) -> bool:
    return P0 in harness.core.holds.held_back(Reason.DLQ_LIMIT)


# --- when ---


def test_by_default_it_is_off_and_when_on_half_of_5_000_or_1_000_in_a_row() -> None:
    assert SubscriptionSettings().dlq_limit is None
    assert DlqLimit() == DlqLimit(share=0.5, records=5_000, consecutive=1_000)


def test_so_many_in_a_row_stop_the_partition_and_one_that_is_done_begins_the_row_anew() -> None:
    harness = limited()
    for offset in (0, 1, 2):
        run(harness, offset, ERROR)
    run(harness, 3)
    for offset in (4, 5):
        run(harness, offset, ERROR)
    assert not stopped(harness)
    harness = limited()
    for offset in range(4):
        assert not stopped(harness)
        run(harness, offset, ERROR)
    assert stopped(harness)
    assert harness.paused == {P0}
    assert harness.said(
        "orders-0 is stopped: too many of its records went to the dead-letter topic "
        "(4 records in a row, dlq_limit). No further record of it starts"
    )


def test_records_that_are_lost_with_their_worker_do_not_count() -> None:
    """They neither begin the row anew nor lower the share: no handler has seen them."""
    harness = limited(on_evict="ack", workers=TWO)
    for offset in (0, 1, 2):
        run(harness, offset, ERROR)
    lost = record(3, "key-3")
    harness.fetch(lost)
    harness.owner_of(lost).die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.deliver()
    assert harness.sub().counts.written_off == 1
    assert not stopped(harness)
    run(harness, 4, ERROR)
    assert stopped(harness)


def test_more_than_the_share_of_the_last_records_stop_it() -> None:
    harness = limited(DlqLimit(share=0.5, records=10, consecutive=100))
    for offset in range(10):  # every other one
        run(harness, offset, ERROR if offset % 2 else None)
    assert not stopped(harness), "half is not more than half"
    run(harness, 10, ERROR)  # in the place of one that was done
    assert stopped(harness)
    assert harness.said("(6 of the last 10 records, dlq_limit)")


def test_what_is_longer_ago_than_the_last_records_does_not_count() -> None:
    harness = limited(DlqLimit(share=0.5, records=4, consecutive=100))
    for offset in range(40):
        run(harness, offset, ERROR if offset % 4 in (0, 1) else None)
    assert not stopped(harness)


def test_each_partition_has_a_limit_of_its_own() -> None:
    harness = limited()
    for offset in range(4):
        run(harness, offset, ERROR)
        harness.fetch(record(offset, f"other-{offset}", P1))
        harness.work()
    assert stopped(harness)
    assert harness.paused == {P0}


def test_a_letter_that_was_not_written_does_not_count() -> None:
    harness = limited()
    harness.fetch(record(0, "a"))
    harness.work({0: [ERROR]})
    for _ in range(10):
        harness.dead_letter("no leader")
        harness.later(60.0)
    assert not stopped(harness)


# --- what it does ---


def four_letters_and_more(harness: Harness) -> None:
    """Four records fail; what follows them is leased, waits in rows, or behind one of them."""
    harness.fetch(*[record(offset, f"key-{offset}") for offset in range(4)])
    harness.work({offset: [ERROR] for offset in range(4)})
    harness.fetch(
        *[record(offset, f"key-{offset % 4}") for offset in range(4, 12)],
        *[record(offset, f"key-{offset % 4}", P1) for offset in range(2)],
    )
    while harness.publishes:
        harness.dead_letter()


def test_nothing_more_of_it_starts_and_others_go_on_and_position_and_set_stay_committed() -> None:
    harness = limited()
    four_letters_and_more(harness)
    assert stopped(harness)
    assert harness.work() == [0, 1]  # of the other partition
    assert harness.committed() == (4, [])
    harness.fetch(record(12, "key-0"), record(2, "key-0", P1))
    assert harness.work() == [2]
    for _ in range(10):
        harness.beat()
        assert harness.work() == []


def test_when_it_is_lifted_all_runs_in_order_and_is_counted_anew() -> None:
    harness = limited()
    four_letters_and_more(harness)
    harness.fetch(record(12, "key-0"), record(13, "key-1"))
    harness.work()
    harness.tell(DlqLimitLifted([P0]))
    assert harness.paused == set()
    ran = harness.work()
    for key in range(4):
        assert [offset for offset in ran if offset % 4 == key] == list(range(4 + key, 14, 4))
    assert harness.committed() == (14, [])
    for offset in (20, 21, 22):
        run(harness, offset, ERROR)
    assert not stopped(harness)


def test_a_retry_waits_for_the_limit_too_and_is_first_in_its_lane_afterwards() -> None:
    harness = limited(retry=RetryPolicy(attempts=2, backoff=5.0))
    harness.fetch(record(0, "a"), record(1, "a"))
    harness.work({0: [ERROR]})
    harness.fetch(*[record(offset, None) for offset in (2, 3, 4, 5)])
    harness.work({offset: [GIVE_UP] for offset in (2, 3, 4, 5)})
    while harness.publishes:
        harness.dead_letter()
    assert stopped(harness)
    harness.later(60.0)
    assert harness.work() == []
    harness.tell(DlqLimitLifted([P0]))
    assert harness.work() == [0, 1]


def test_what_is_leased_comes_back_and_what_runs_ends() -> None:
    harness = limited(workers=("worker-0",))
    for offset in range(3):
        run(harness, offset, ERROR)
    harness.fetch(record(3, "x"), record(4, "y"), record(5, "y"))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    running = worker.start()
    harness.dead_letter()
    assert stopped(harness)
    assert running is not None
    worker.finish()
    assert harness.work() == []
    assert harness.committed() == (5, [])
    harness.tell(DlqLimitLifted([P0]))
    assert harness.work() == [5]


def test_with_one_lease_per_key_it_is_the_same() -> None:
    harness = limited(one_in_flight_per_key=True)
    four_letters_and_more(harness)
    harness.work()
    assert harness.committed() == (4, [])
    harness.tell(DlqLimitLifted([P0]))
    ran = harness.work()
    for key in range(4):
        assert [offset for offset in ran if offset % 4 == key] == [4 + key, 8 + key]


def test_a_diverted_lane_sends_nothing_more_until_it_is_lifted() -> None:
    harness = limited(on_exhausted="divert")
    harness.fetch(*[record(offset, "a") for offset in range(8)])
    harness.work({0: [ERROR]})
    written = []
    while harness.publishes:
        written.append(harness.dead_letter().record.offset())
    assert written == [0, 1, 2, 3]
    assert stopped(harness)
    harness.tell(DlqLimitLifted([P0]))
    assert [each.record.offset() for each in harness.publishes] == [4]


def test_a_diverted_lane_goes_on_with_whichever_partition_it_waited_for() -> None:
    harness = limited(on_exhausted="divert")
    harness.fetch(record(0, "a"))
    harness.work({0: [ERROR]})
    harness.fetch(*[record(offset, None, P1) for offset in range(4)])
    harness.work({offset: [ERROR] for offset in range(4)})
    harness.fetch(record(1, "a"), record(4, "a", P1))
    while harness.publishes:
        harness.dead_letter()
    assert harness.paused == {P1}
    harness.tell(DlqLimitLifted([P1]))
    assert harness.work() == []
    assert harness.dead_letter().record.offset() == 4
    assert harness.core.unsettled_count() == 0


def test_a_partition_that_goes_takes_its_limit_with_it() -> None:
    harness = limited()
    four_letters_and_more(harness)
    harness.revoke(P0)
    assert harness.paused == set()
    assert harness.sub().window.records == 2
    harness.assign(P0, position=4)
    harness.fetch(record(4, "key-0"))
    assert sorted(harness.work()) == [0, 1, 4]


def test_nobody_pays_for_it_who_has_not_asked() -> None:
    assert limited(None).sub().dlq_watch is None


# --- what is refused ---


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (DlqLimit(share=0.0), "dlq_limit_share=0.0: give a share above 0"),
        (DlqLimit(share=1.5), "dlq_limit_share=1.5: give a share above 0"),
        (DlqLimit(records=0), "dlq_limit_records=0: give at least 1"),
        (DlqLimit(consecutive=0), "dlq_limit_consecutive=0: give at least 1"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limit: DlqLimit, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SubscriptionSettings(dlq=True, dlq_limit=limit).check()


def test_a_limit_without_a_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="dlq_limit without a dead-letter topic limits nothing"):
        SubscriptionSettings(dlq_limit=SMALL).check()
