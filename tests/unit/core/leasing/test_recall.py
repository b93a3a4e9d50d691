"""Recall: what is taken back, what comes with it, and what happens until the answer is there."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, failure, record


def slow(*, workers: int = 1) -> Harness:
    """A member whose workers answer a recall only when they get to it."""
    member = Harness(SubscriptionSettings(workers=worker_names(workers)))
    member.pool.answers_later = lambda: True
    member.assign(P0, P1)
    return member


def recalls(member: Harness) -> list[cmd.Recall]:
    return [each for each in member.seen if isinstance(each, cmd.Recall)]


def leased_of(member: Harness, at: TopicPartition) -> int:
    """How many records of the partition are leased."""
    return sum(
        leased.slice.came.partition_of(index) == at
        for leased in member.sub().unsettled.leases()
        for index in leased.indices()
    )


def test_a_revoke_takes_back_what_is_of_the_partition_and_what_is_behind_it() -> None:
    member = Harness()
    member.assign(P0, P1)
    member.fetch(record(0, b"a"), record(0, b"b", at=P1), record(1, b"c"))
    assert member.worker().start() is not None
    member.fetch(record(1, b"d", at=P1), record(2, b"e"))
    first, second = member.worker().given
    member.tell(ev.Revoking([P1]))
    (recall,) = recalls(member)
    assert recall.only == {first: [1, 2], second: [0, 1]}
    assert len(list(member.sub().unsettled.waiting())) == 4
    assert member.core.outstanding() == 1
    member.worker().finish()
    assert member.work() == [1, 2]


def test_a_worker_that_has_nothing_of_the_partition_is_left_alone() -> None:
    member = Harness()
    member.assign(P0, P1)
    member.fetch(record(0, b"a"), record(1, b"b"))
    member.tell(ev.Revoking([P1]))
    assert recalls(member) == []


def test_a_worker_that_has_not_answered_is_given_nothing() -> None:
    member = slow()
    member.fetch(record(0, b"a"), record(1, b"b", at=P1))
    member.worker().start()
    member.tell(ev.Revoking([P1]))
    member.fetch(record(1, b"a"), record(2, b"c"))
    assert member.core.outstanding() == 2
    member.worker().finish()
    member.worker().step()  # the answer
    member.deliver()
    assert member.work() == [1, 2]


def test_what_may_still_start_counts_as_running_until_the_answer() -> None:
    member = slow()
    member.fetch(record(0, b"a", at=P1), record(1, b"b", at=P1))
    member.tell(ev.Revoking([P1]))
    may_run, _ = member.core.under_way([P1], member.pool.progress())
    assert [each.offset() for each in may_run] == [0, 1]
    member.worker().step()
    member.deliver()
    assert member.core.under_way([P1], member.pool.progress()) == ([], 0)


def test_an_answer_that_comes_after_its_partition_has_gone_puts_nothing_back() -> None:
    member = slow()
    member.fetch(record(0, b"a", at=P1), record(0, b"b"))
    member.tell(ev.Revoking([P1]))
    member.tell(ev.Forget([P1]))
    member.worker().step()
    member.deliver()
    assert member.work() == [0]
    assert member.committed() == (1, [])
    assert member.core.unsettled_count() == 0


def test_with_one_lease_a_late_answer_hands_the_lane_on() -> None:
    """The lease of a record whose partition has gone ended, and its lane was never free again."""
    settings = SubscriptionSettings(one_in_flight_per_key=True)
    member = Harness(settings)
    member.pool.answers_later = lambda: True
    member.assign(P0, P1)
    member.fetch(record(0, b"a", at=P1))
    member.tell(ev.Revoking([P1]))
    member.tell(ev.Forget([P1]))
    member.fetch(record(0, b"a"))
    assert member.work() == [0]
    assert member.committed() == (1, [])


def test_records_that_come_back_go_before_what_their_lane_has_got_since() -> None:
    member = slow()
    member.fetch(*(record(offset, b"a") for offset in range(3)))
    member.worker().start()
    member.tell(ev.Revoking([P1]))
    assert recalls(member) == []
    member.tell(ev.Forget([P1]))
    member.assign(P1)
    member.fetch(record(0, b"z", at=P1))
    member.tell(ev.Revoking([P1]))
    member.fetch(record(3, b"a"))
    member.worker().finish(failure())
    member.worker().step()
    member.tell(ev.Forget([P1]))
    member.deliver()
    member.later(1.0)
    assert member.work() == [0, 1, 2, 3]


def test_records_that_come_back_go_before_what_waited_behind_them() -> None:
    member = Harness(SubscriptionSettings(prefetch_records=2))
    member.assign()
    member.fetch(*(record(offset, b"a") for offset in range(4)))
    member.worker().start()
    assert member.core.outstanding() == 2
    member.recall()
    assert [each.offset() for each in member.sub().unsettled.waiting()] == [1, 2, 3]
    member.worker().finish()
    assert member.work() == [1, 2, 3]


def test_records_that_come_back_to_a_closed_lane_go_before_what_waits_in_it() -> None:
    """Its queue has taken from the backlog what came after them."""
    member = Harness(SubscriptionSettings(prefetch_records=2))
    member.assign()
    member.fetch(*(record(offset, b"a") for offset in range(3)))
    member.worker().start()
    member.worker().finish(failure())
    member.worker().step()  # the end of its slice: there is room for what is next
    member.deliver()
    (closed,) = member.sub().closed.lanes.values()
    assert [each.offset() for each in closed.queue] == [2]
    member.recall()
    assert [each.offset() for each in closed.queue] == [1, 2]
    member.later(1.0)
    assert member.work() == [0, 1, 2]


def test_a_revoke_and_a_stop_take_unstarted_records_back_from_every_worker() -> None:
    member = Harness(SubscriptionSettings(workers=worker_names(2)))
    member.assign(P0, P1)
    for at in (P0, P1):
        member.fetch(*(record(offset, b"key-%d" % offset, at=at) for offset in range(20)))
    assert all(worker.given for worker in member.pool.workers.values())
    member.tell(ev.Revoking([P1]))
    assert leased_of(member, P1) == 0
    member.tell(ev.Stopping())
    assert member.core.outstanding() == 0
    assert member.work() == []


def test_an_answer_that_was_not_asked_for_is_refused_and_changes_nothing() -> None:
    member = slow()
    member.fetch(record(0, b"a", at=P1), record(1, b"b", at=P1))
    member.tell(ev.Revoking([P1]))
    member.worker().step()
    (answer,) = [each for each in member.mailbox if isinstance(each, ev.Recalled)]
    member.deliver()
    with pytest.raises(InvariantError, match="not asked for, or twice"):
        member.core.handle(answer, member.now)
    member.core.check()
    assert member.core.unsettled_count() == 2


def test_a_record_that_comes_back_twice_is_refused_and_changes_nothing() -> None:
    member = slow()
    member.fetch(record(0, b"a", at=P1), record(1, b"b", at=P1))
    member.tell(ev.Revoking([P1]))
    member.tell(ev.Stopping())
    member.worker().step()
    (answer,) = [each for each in member.mailbox if isinstance(each, ev.Recalled)]
    member.deliver()
    with pytest.raises(InvariantError, match="gave back twice"):
        member.core.handle(answer, member.now)
    assert [each.offset() for each in member.sub().unsettled.waiting()] == [0, 1]


def test_a_report_on_a_record_that_has_come_back_is_refused() -> None:
    member = Harness()
    member.assign(P0, P1)
    member.fetch(record(0, b"a", at=P1), record(1, b"b", at=P1))
    member.worker().start()
    (id_,) = member.worker().given
    member.tell(ev.Revoking([P1]))
    with pytest.raises(InvariantError, match="has come back already"):
        member.core.handle(ev.Reported([ev.Failed(id_, 1, failure())]), member.now)
    member.core.check()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([0], "gave back twice, or after their end"),
        ([7], "gave back twice, or after their end"),
        ([1, 1], "gave back twice, or after their end"),
        (None, "which has ended"),
    ],
    ids=["failed already", "no such record", "twice", "no such slice"],
)
def test_an_answer_of_which_a_part_cannot_be_true_is_refused_as_a_whole(
    wrong: list[int] | None, words: str
) -> None:
    member = Harness(SubscriptionSettings(prefetch_records=4))
    member.assign(P0, P1)
    member.fetch(*(record(offset, b"key-%d" % offset) for offset in range(4)))
    first, second = member.worker().given
    member.worker().start()
    member.worker().finish(failure())
    member.deliver()
    member.core.handle(ev.Revoking([P0]), member.now)
    told = [(second, [0, 1]), (first, wrong)] if wrong else [(second, [0, 1]), (99, [0])]
    with pytest.raises(InvariantError, match=words):
        member.core.handle(ev.Recalled("default", 0, told), member.now)
    member.core.check()
    assert member.core.outstanding() == 4
    member.core.handle(ev.Recalled("default", 0, [(second, [0, 1])]), member.now)
    assert member.core.outstanding() == 2
