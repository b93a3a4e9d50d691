"""Who forgets a removed partition: all that know it, in an order with a reason for each place."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.object_state import frozen
from tests.support.records import ERROR, P0, P1, record

ORDER = (
    "lost progress",
    "subscriptions",
    "epochs",
    "partition states",
    "commits",
    "careful starts",
    "ceilings",
    "snapshots",
    "holds",
    "meters",
)


def knows(harness: Harness, partition: TopicPartition) -> list[str]:
    """The parts of the core from which the partition can be reached; the removal refers to them."""
    found = []
    parts = {name: each for name, each in vars(harness.core).items() if name != "removal"}
    for name, value in parts.items():
        text = repr(frozen(value)).replace("\\", "")
        if f"'TopicPartition', ['{partition.topic}', {partition.partition}]" in text:
            found.append(name)
    return found


def with_everything() -> Harness:
    """A member in which every part has something of P1: failures, commits, pauses, a full set."""
    harness = Harness(SubscriptionSettings(workers=("worker-0", "worker-1")), careful=True)
    harness.assign(P0, P1)
    for partition in (P0, P1):
        harness.fetch(*[record(each, f"key-{each}", partition) for each in range(6)])
    (commit,) = harness.commit()
    harness.answer(commit, CommitResult.ACCEPTED)
    harness.work({1: [ERROR]})
    harness.core.holds.hold_back(Reason.BY_HAND, [P1])
    (commit,) = harness.commit()
    harness.answer(commit, CommitResult.DENIED)
    harness.fetch(*[record(each, f"key-{each}", P1) for each in range(6, 12)])
    assert [each.start() for each in harness.pool.workers.values()] != [None, None]
    harness.beat(2)
    return harness


def test_the_order_is_declared_with_a_reason_for_each_place() -> None:
    steps = Harness().core.removal.steps
    assert tuple(each.part for each in steps) == ORDER
    assert len({each.why_here for each in steps}) == len(steps)
    for number, each in enumerate(steps):
        for name in ORDER:
            if f"after the {name}" in each.why_here:
                assert ORDER.index(name) < number, f"{each.part} is {each.why_here}"
            if f"before the {name}" in each.why_here:
                assert ORDER.index(name) > number, f"{each.part} is {each.why_here}"


def test_no_part_of_the_core_knows_a_revoked_partition_any_more() -> None:
    harness = with_everything()
    known = knows(harness, P1)
    assert {"partitions", "subscriptions", "commits", "holds", "meters", "careful"} <= {*known}
    (last,) = harness.revoke(P1)
    assert "commits" in knows(harness, P1), "its last commit is not answered yet"
    harness.answer(last, CommitResult.ACCEPTED)
    for worker in harness.pool.workers.values():
        while worker.running:
            worker.finish()
    harness.work()
    harness.beat()
    assert knows(harness, P1) == []


def with_lost(*, first: str | None = None) -> Harness:
    """A member that has settled all of P0 but record 1, and lost it; one part may forget first."""
    harness = Harness(SubscriptionSettings(workers=("worker-0",)))
    harness.assign(P0)
    harness.fetch(record(0, "a"))
    harness.work()
    (commit,) = harness.commit()
    harness.answer(commit, CommitResult.ACCEPTED)
    harness.fetch(record(1, "slow"), record(2, "b"), record(3, "b"))
    harness.work({1: [ERROR]})
    removal = harness.core.removal
    removal.steps = tuple(sorted(removal.steps, key=lambda step: step.part != first))
    harness.revoke(P0, commit=False)
    return harness


def runs_again(harness: Harness) -> list[int]:
    """Assign the lost partition again; return the records that then run."""
    harness.tell(ev.Assigned({P0: ev.StartPoint(1, "", 0, 10)}))
    start = harness.assigned[P0]
    assert start is not None
    harness.fetch(*(record(at, f"key-{at}") for at in range(start, 4)))
    return sorted(harness.work())


@pytest.mark.parametrize("first", ["subscriptions", "partition states", "commits"])
def test_the_progress_of_a_lost_partition_is_read_before_anything_of_it_is_forgotten(
    first: str,
) -> None:
    assert runs_again(with_lost()) == [1]
    assert runs_again(with_lost(first=first)) != [1], "the order matters"


def test_the_leases_of_a_removed_partition_lapse_because_its_epoch_is_still_current() -> None:
    def lapses(first: str | None = None) -> list[cmd.Lapse]:
        harness = Harness()
        harness.assign(P0)
        harness.fetch(record(0, "a"))
        harness.worker().start()
        removal = harness.core.removal
        removal.steps = tuple(sorted(removal.steps, key=lambda step: step.part != first))
        harness.revoke(P0)
        return [each for each in harness.seen if isinstance(each, cmd.Lapse)]

    assert len(lapses()) == 1
    assert lapses(first="epochs") == [], "the order matters"
