"""Past the ack timeout: what each kind of pool makes of it, and what a record that cannot be ended
costs the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_keyshared.core.contract.commands import Fence, Recall, TimeOut
from kafka_keyshared.core.contract.commands import LeaseSlice as LeaseCommand
from kafka_keyshared.core.contract.events import Fetched, Recalled, Stuck, Tick
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.core.workers.worker import WorkerState
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import PoolKind, SteppedWorker
from kafka_keyshared.model import Drop
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, record

LIMIT = 5.0
BEATS = 12
"""After so many a record that ran at the first of them is past the ack timeout."""

TWO = ("worker-0", "worker-1")


class Hanging:
    """A member of which one worker runs a record that does not end by itself."""

    def __init__(
        self,
        *records: FakeRecord,
        kind: PoolKind = "thread",
        first: int = 0,
        workers: Sequence[str] = ("worker-0",),
        attempts: int = 5,
        exits: bool = False,
        alone: bool = False,
    ) -> None:
        self.harness = Harness(
            SubscriptionSettings(
                workers=tuple(workers),
                ack_timeout=LIMIT,
                exit_when_stuck=exits,
                retry=RetryPolicy(attempts=attempts, backoff=0.0, jitter=0.0),
                one_in_flight_per_key=alone,
            )
        )
        self.harness.pool.kind = kind
        self.harness.assign(P0, P1)
        self.harness.fetch(*records)
        self.hanging = records[first]
        self.worker: SteppedWorker = self.harness.owner_of(self.hanging)
        if self.hanging.key() is None:
            self.worker = next(each for each in self.harness.pool.workers.values() if each.inbox)
        while (started := self.worker.start()) is not self.hanging:
            assert started is not None
            self.worker.finish()

    @property
    def sub(self) -> Subscription:
        """What the core has."""
        return self.harness.sub()

    def hangs_in_the_next(self) -> None:
        """Let its worker begin with the next one, and hang in that."""
        begun = self.worker.start()
        assert isinstance(begun, FakeRecord)
        self.hanging = begun

    def past(self) -> None:
        """Let the ack timeout pass."""
        self.harness.beat(BEATS)
        self.harness.deliver()

    def until_it_runs_again(self) -> None:
        """Run others until what has failed has its next attempt."""
        for _ in range(100):
            self.harness.deliver()
            if self.worker.start() is self.hanging:
                return
            if self.worker.running is not None:
                self.worker.finish()
        raise AssertionError("it does not run again")

    def others(self) -> list[int]:
        """Run all that can, but what hangs; return the offsets in the order of their starts."""
        started: list[int] = []
        for _ in range(1_000):
            moved = False
            for worker in self.harness.pool.workers.values():
                if worker.running is self.hanging:
                    continue
                if (item := worker.start()) is not None:
                    started.append(item.offset())
                    worker.finish()
                    moved = True
                moved = moved or worker.busy
            moved = moved or bool(self.harness.mailbox)
            self.harness.deliver()
            if not moved:
                return started
        raise AssertionError(f"it goes on for ever: {started[:50]}")

    def end(self, ending: Ending = None) -> None:
        """Let what hangs come to its end."""
        if self.worker.running is self.hanging:
            self.worker.finish(ending)
        else:
            self.worker.finish_apart(self.hanging, ending)
        self.harness.deliver()

    def state(self) -> LaneState | None:
        """The state of the lane of what hangs; None when it is open."""
        closed = self.sub.closed.get(lane_of(self.hanging))
        return None if closed is None else closed.state


# --- a thread with a function: another goes on ---


def test_its_worker_goes_on_with_all_other_keys_and_its_lane_waits() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"), record(2, "slow"), record(3, "b"))
    case.past()
    case.harness.fetch(record(4, "slow"), record(5, "a"))
    assert case.others() == [1, 3, 5]
    assert case.state() is LaneState.STUCK
    assert case.harness.committed() == (0, [(1, 2), (3, 4), (5, 6)])
    assert (case.sub.counts.stuck, case.sub.counts.failed) == (1, 0)


def test_until_the_timeout_everything_behind_it_waits() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"))
    case.harness.beat(BEATS - 2)
    assert case.others() == []
    assert case.harness.mailbox == type(case.harness.mailbox)()


def test_what_had_ended_before_it_in_its_slice_has_settled_for_everybody() -> None:
    case = Hanging(*[record(at, f"key-{at}") for at in range(6)], first=3)
    case.past()
    assert case.sub.counts.ok == 3
    assert case.sub.window.records == 3
    assert case.others() == [4, 5]
    assert case.sub.window.records == 1


def test_its_late_result_counts_once_and_opens_the_lane() -> None:
    case = Hanging(record(0, "slow"), record(1, "slow"), record(2, "slow"))
    case.past()
    assert case.others() == []
    case.end()
    assert case.others() == [1, 2]
    assert case.harness.committed() == (3, [])
    counts = case.sub.counts
    assert (counts.ok, counts.failed, counts.dropped, counts.stuck) == (3, 0, 0, 1)
    assert case.state() is None
    assert case.sub.leased == case.sub.window.records == 0


def test_its_late_failure_is_an_attempt_like_any_other() -> None:
    case = Hanging(record(0, "slow"), record(1, "slow"))
    case.past()
    case.end(ERROR)
    case.harness.later(1.0)
    assert case.others() == [0, 1]
    assert (case.sub.counts.failed, case.sub.counts.retries) == (1, 1)
    assert case.harness.committed() == (2, [])


def test_its_late_drop_is_counted_as_one_and_those_before_it_are_not_counted_again() -> None:
    records = [record(at, f"key-{at}") for at in range(3)]
    case = Hanging(*records, first=2)
    case.past()
    case.end(Drop())
    assert (case.sub.counts.ok, case.sub.counts.dropped) == (2, 1)


def test_a_drop_before_it_in_its_slice_is_counted_once() -> None:
    case = Hanging(record(0, "a"), record(1, "slow"), first=0)
    case.worker.finish(Drop())
    case.hangs_in_the_next()
    case.past()
    assert (case.sub.counts.ok, case.sub.counts.dropped) == (0, 1)
    case.end()
    assert (case.sub.counts.ok, case.sub.counts.dropped) == (1, 1)


def test_a_failure_before_it_in_its_slice_runs_again_while_it_hangs() -> None:
    case = Hanging(record(0, "a"), record(1, "slow"), record(2, "a"), first=0)
    case.worker.finish(ERROR)
    case.hangs_in_the_next()
    case.harness.deliver()
    case.past()
    case.harness.later(1.0)
    assert case.others() == [0, 2]
    case.end()
    assert case.harness.committed() == (3, [])


def test_a_record_that_failed_just_before_is_not_stuck() -> None:
    """Its failure is in the mail before the answer; both have to be believed in that order."""
    case = Hanging(record(0, "slow"), record(1, "a"))
    case.harness.beat(BEATS)
    answer = case.harness.mailbox.popleft()
    assert isinstance(answer, Recalled)
    assert answer.stuck
    case.worker.finish_apart(case.hanging, ERROR)
    case.harness.mailbox.insert(1, answer)
    case.harness.deliver()
    case.harness.later(1.0)
    assert sorted(case.harness.work()) == [0, 1]
    assert case.sub.counts.stuck == 0
    assert case.harness.committed() == (2, [])


def test_one_that_ends_before_it_is_looked_at_again_is_not_stuck() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"))
    case.harness.beat(BEATS - 2)
    case.harness.now += LIMIT
    commands = case.harness.core.handle(Tick(case.harness.pool.progress()), case.harness.now)
    assert [type(each) for each in commands] == [TimeOut]
    case.worker.finish()
    case.harness.actor.act(commands)
    case.harness.deliver()
    assert case.others() == [1]
    assert case.sub.counts.stuck == 0
    assert case.harness.committed() == (2, [])


def test_between_the_time_out_and_its_answer_the_worker_is_given_nothing() -> None:
    case = Hanging(record(0, "slow"))
    case.harness.beat(BEATS)
    commands = case.harness.tell(Fetched([record(1, "a")], {P0: 2}))
    assert not [each for each in commands if isinstance(each, LeaseCommand)]
    case.harness.deliver()
    assert case.others() == [1]


def test_with_one_lease_per_key_too_only_its_own_lane_waits() -> None:
    records = [record(0, "a"), record(1, "slow"), record(2, "b"), record(3, "a"), record(4, "slow")]
    case = Hanging(*records, first=1, alone=True)
    case.past()
    assert sorted(case.others()) == [2, 3]
    case.end()
    assert case.others() == [4]
    assert case.harness.committed() == (5, [])


def test_what_is_stuck_takes_none_of_the_leases_of_its_worker() -> None:
    settings = SubscriptionSettings(ack_timeout=LIMIT, prefetch_records=1, prefetch_bytes=100)
    harness = Harness(settings)
    harness.assign(P0)
    keys = (b"slow", b"a", b"b")
    harness.fetch(*[FakeRecord(P0, at, key, size=90) for at, key in enumerate(keys)])
    assert harness.worker().start() is not None
    harness.beat(BEATS)
    harness.deliver()
    assert harness.work() == [1, 2]


def test_what_is_stuck_takes_no_place_where_records_end_in_any_order() -> None:
    """Three are stuck of a worker that is leased two: there were places fewer than none."""
    settings = SubscriptionSettings(ack_timeout=LIMIT, prefetch_records=2, individually=True)
    harness = Harness(settings)
    harness.pool.kind = "task"
    harness.pool.heeds = lambda: False
    harness.assign(P0)
    for at in range(3):
        harness.fetch(record(at, f"slow-{at}"))
        assert harness.worker().start() is not None
        for _ in range(2):
            harness.beat(BEATS)
            harness.deliver()
    worker = harness.sub().workers[0]
    assert len(worker.apart) == 3
    assert worker.places() == 2
    harness.fetch(record(3, "a"), record(4, None), record(5, "b"), record(6, None))
    assert sorted(harness.work()) == [3, 4, 5, 6]


def test_a_retry_that_hangs_is_stuck_like_a_first_attempt() -> None:
    case = Hanging(record(0, "slow"), record(1, "slow"), record(2, "a"))
    case.worker.finish(ERROR)
    case.harness.deliver()
    case.harness.later(1.0)
    case.until_it_runs_again()
    assert case.state() is LaneState.RUNNING
    case.past()
    assert case.state() is LaneState.STUCK
    case.end()
    assert case.others() == [1]


# --- several at once: a bound ---


def test_a_second_one_at_once_makes_the_only_worker_wait_until_one_of_them_ends() -> None:
    """As many may go on beside stuck ones as there are workers."""
    case = Hanging(record(0, "a"), record(1, "b"), record(2, "c"), record(3, "d"))
    first = case.hanging
    case.past()
    case.hangs_in_the_next()
    case.past()
    worker = case.sub.workers[0]
    assert worker.waits
    assert len(worker.apart) == 2
    assert case.others() == []
    case.harness.beat(20)
    assert case.harness.said("all keys of worker-0 wait until it ends")
    # The first one ends: somebody is free for those behind the second.
    case.worker.finish_apart(first)
    case.harness.deliver()
    case.harness.beat()
    case.harness.deliver()
    assert not worker.waits
    assert case.others() == [2, 3]
    case.end()
    assert case.harness.committed() == (4, [])
    assert case.sub.counts.stuck == 2


def test_with_an_instance_of_a_class_all_keys_of_the_worker_wait_and_no_others() -> None:
    case = Hanging(*[record(at, f"key-{at}") for at in range(20)], kind="instance", workers=TWO)
    mine = [
        each
        for each in range(20)
        if case.harness.owner_of(record(each, f"key-{each}")) is case.worker
    ]
    case.past()
    assert sorted(case.others()) == [each for each in range(20) if each not in mine]
    assert case.sub.workers[case.worker.index].waits
    case.end()
    assert case.others() == mine[1:]
    assert case.harness.committed() == (20, [])


def test_what_has_no_key_waits_for_nobody() -> None:
    records = [record(0, "slow"), *[record(at, None) for at in range(1, 9)]]
    case = Hanging(*records, kind="instance", workers=TWO)
    case.past()
    case.harness.fetch(record(9, None))
    assert sorted(case.others()) == list(range(1, 10))


def test_the_retry_of_what_has_no_key_goes_to_one_that_does_not_wait() -> None:
    case = Hanging(record(0, "slow"), kind="instance", workers=TWO)
    case.past()
    case.harness.fetch(record(1, None))
    other = next(each for each in case.harness.pool.workers.values() if each is not case.worker)
    assert other.start() is not None
    other.finish(ERROR)
    case.harness.deliver()
    case.harness.later(1.0)
    assert case.others() == [1]


def test_the_end_of_what_it_waits_for_lets_a_worker_go_on_at_once() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"), kind="instance")
    case.past()
    case.end(ERROR)
    case.harness.later(1.0)
    assert sorted(case.others() + case.harness.work()) == [0, 1]


# --- others that can be ended: a failed attempt ---


@pytest.mark.parametrize("kind", ["process", "task", "lease"])
def test_what_can_be_ended_is_a_failed_attempt_and_runs_again_in_order(kind: PoolKind) -> None:
    case = Hanging(record(0, "slow"), record(1, "slow"), record(2, "a"), kind=kind)
    case.past()
    case.harness.later(1.0)
    assert sorted(case.harness.work()) == [0, 1, 2]
    assert (case.sub.counts.failed, case.sub.counts.stuck) == (1, 0)
    assert case.harness.committed() == (3, [])
    assert case.harness.said("it ran past the ack timeout")


def test_one_that_times_out_every_time_is_poison_in_the_end() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"), kind="process", attempts=2)
    case.past()
    case.harness.later(1.0)
    case.until_it_runs_again()
    case.past()
    assert case.state() is LaneState.BLOCKED


def test_a_task_that_does_not_heed_its_cancelling_is_stuck_and_the_others_go_on() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"), kind="task")
    case.harness.pool.heeds = lambda: False
    case.past()
    case.past()
    assert case.state() is LaneState.STUCK
    assert case.others() == [1]
    case.end()
    assert case.harness.committed() == (2, [])


# --- partitions that go while it hangs ---


def test_a_revoke_waits_for_it_and_gives_up_in_time_and_nothing_overtakes_it() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"))
    case.past()
    assert case.others() == [1]
    progress = case.harness.pool.progress()
    running, _ = case.harness.core.under_way([P0], progress)
    assert [each.offset() for each in running] == [0]
    case.harness.revoke(P0)
    case.harness.assign(P0)
    case.harness.fetch(record(0, "slow"), record(1, "slow"), record(2, "a"))
    assert case.others() == [2], "the key still runs from before"
    case.end()
    assert case.others() == [0, 1]
    assert case.sub.counts.stale_results == 1
    assert case.harness.committed() == (3, [])


def test_one_of_an_old_epoch_gets_stuck_too() -> None:
    case = Hanging(record(0, "slow"))
    case.harness.revoke(P0)
    case.harness.assign(P0)
    case.harness.fetch(record(0, "slow"), record(1, "a"))
    case.past()
    assert case.others() == [1]
    case.end(ERROR)
    case.harness.later(1.0)
    assert case.others() == [0]
    assert case.harness.committed() == (2, [])


def test_a_record_without_a_key_that_comes_again_does_not_wait_for_its_old_run() -> None:
    case = Hanging(record(0, None))
    case.past()
    case.harness.revoke(P0)
    case.harness.assign(P0)
    case.harness.fetch(record(0, None))
    assert case.others() == [0]
    case.end()
    assert case.harness.committed() == (1, [])


def test_an_old_run_without_a_key_closes_no_lane_of_its_successor() -> None:
    case = Hanging(record(0, None), workers=TWO)
    case.harness.beat(BEATS - 4)
    case.harness.revoke(P0)
    case.harness.assign(P0)
    case.harness.fetch(record(0, None))
    again = next(each for each in case.harness.pool.workers.values() if each is not case.worker)
    assert again.start() is not None
    case.harness.beat(4)
    case.harness.deliver()
    assert case.sub.counts.stuck == 1
    again.finish(ERROR)
    case.harness.deliver()
    case.harness.later(1.0)
    case.end()
    assert case.others() == [0]
    assert case.harness.committed() == (1, [])


# --- workers that come and go meanwhile ---


def test_a_worker_that_is_evicted_keeps_its_slots_until_its_stuck_record_has_ended() -> None:
    case = Hanging(record(0, "slow"), record(1, "slow"), workers=TWO)
    case.past()
    case.worker.die()
    case.harness.pool.replaceable = False
    case.harness.beat(EVICT_AFTER)
    case.harness.deliver()
    worker = case.sub.workers[case.worker.index]
    assert worker.state is WorkerState.LEAVING
    assert case.others() == []
    case.end()
    assert case.worker.index not in case.sub.workers
    assert case.others() == [1]
    assert case.harness.committed() == (2, [])


# --- what is refused ---


@pytest.mark.parametrize("index", [-1, 1, 7])
def test_what_is_not_leased_cannot_be_stuck_and_nothing_moves(index: int) -> None:
    case = Hanging(record(0, "slow"), record(1, "a"))
    (id_,) = case.sub.workers[0].slices
    case.sub.workers[0].recalls += 1
    back = [(id_, [1])] if index == 1 else []
    if back:
        case.harness.core.handle(Recalled("default", 0, back), case.harness.now)
        case.sub.workers[0].recalls += 1
    with pytest.raises(InvariantError):
        answer = Recalled("default", 0, (), [Stuck(id_, index, True)])
        case.harness.core.handle(answer, case.harness.now)
    assert case.state() is None
    assert case.sub.workers[0].recalls == 1


def test_a_slice_that_has_ended_cannot_have_a_stuck_record() -> None:
    case = Hanging(record(0, "slow"))
    case.sub.workers[0].recalls += 1
    with pytest.raises(InvariantError, match="not leased or has ended"):
        answer = Recalled("default", 0, (), [Stuck(987_654, 0, True)])
        case.harness.core.handle(answer, case.harness.now)


# --- what a person sees ---


def test_it_is_said_at_once_with_what_follows_and_again_when_it_ends() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"))
    case.past()
    (notice,) = [each for each in case.harness.notices if "stuck" in each.text]
    assert notice.text == (
        "orders-0@0 (key b'slow') is stuck: it has been running on worker-0 for longer than the "
        "ack timeout of 5 s, and nothing can end it from outside; its key waits until it ends, the "
        "others go on"
    )
    assert notice.about == (P0, 0, b"slow")
    case.harness.beat()
    case.end()
    case.harness.beat(2)
    assert case.harness.said("orders-0@0 (key b'slow') ended after")


def test_many_at_once_are_a_few_lines() -> None:
    names = tuple(f"worker-{index}" for index in range(40))
    harness = Harness(SubscriptionSettings(workers=names, ack_timeout=LIMIT))
    harness.assign(P0)
    harness.fetch(*[record(at, f"key-{at}") for at in range(200)])
    hanging = sum(worker.start() is not None for worker in harness.pool.workers.values())
    assert hanging > 30
    for _ in range(BEATS + 40):
        harness.beat()
        harness.deliver()
    said = [each.text for each in harness.notices if "stuck" in each.text]
    assert len(said) == 2
    assert f"{hanging - 1} more records are stuck" in said[1]
    assert harness.sub().counts.stuck == hanging


def test_one_that_stays_stuck_is_named_again_with_its_age() -> None:
    case = Hanging(record(0, "slow"))
    case.past()
    case.harness.beat(2 * 60)
    assert case.harness.said("has been running on worker-0 for 30 s; its key waits")
    assert case.harness.said("has been running on worker-0 for 60 s; its key waits")


@pytest.mark.parametrize("kind", ["thread", "instance", "task"])
def test_stuck_can_end_the_instance(kind: PoolKind) -> None:
    case = Hanging(record(0, "slow"), kind=kind, exits=True)
    case.harness.pool.heeds = lambda: False
    case.past()
    case.past()
    (reason,) = case.harness.halted
    assert "orders-0@0 (key b'slow') is stuck" in reason


def test_what_waits_behind_it_takes_a_quarter_of_the_window_and_then_its_partition_stops() -> None:
    harness = Harness(SubscriptionSettings(ack_timeout=LIMIT, window_records=40))
    harness.assign(P0)
    harness.fetch(record(0, "slow"))
    hanging = harness.worker().start()
    assert hanging is not None
    harness.beat(BEATS)
    harness.deliver()
    harness.fetch(*[record(at, "slow") for at in range(1, 31)])
    harness.beat()
    assert harness.paused == {P0}
    harness.worker().finish_apart(hanging)
    harness.deliver()
    harness.work()
    harness.beat(2)
    assert harness.paused == set()


def test_no_fence_and_no_recall_is_left_behind() -> None:
    case = Hanging(record(0, "slow"), record(1, "a"))
    case.past()
    case.end(ERROR)
    case.harness.later(1.0)
    case.harness.work()
    assert case.sub.workers[0].recalls == 0
    assert [type(each) for each in case.harness.seen if isinstance(each, Fence | Recall)] == [Fence]
