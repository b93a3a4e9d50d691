"""Removal of revoked and lost partitions: its waits and its order.

Nothing is settled by a removal. A late report of a removed partition's record belongs to an earlier
epoch (:mod:`.assignment`): it settles, blocks and replaces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import NamedTuple

from kafka_keyshared.core.backpressure.pause_reasons import Holds
from kafka_keyshared.core.contract.commands import Command, Lapse
from kafka_keyshared.core.contract.slices import Epochs, Progress, SliceState
from kafka_keyshared.core.lanes.closed import LETTERS_ON_THEIR_WAY
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.offsets.commit import Commits
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.core.partitions.careful_starts import CarefulStarts
from kafka_keyshared.core.partitions.lost_progress import Regained
from kafka_keyshared.core.partitions.offset_ceilings import Ceilings
from kafka_keyshared.core.partitions.offset_snapshots import Snapshots
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.meters import Meters
from kafka_keyshared.model import Record, TopicPartition, partition_of


@dataclass(frozen=True, slots=True)
class RemovedPartitions:
    """Partitions that are revoked or ``lost``, and ``progress``, that of their last commit.

    ``now`` is in monotonic seconds.
    """

    partitions: set[TopicPartition]
    lost: bool
    progress: Progress
    now: float


class RemovalStep(NamedTuple):
    """A part that keeps something by partition, how it forgets, and why at this place."""

    part: str
    forget: Callable[[RemovedPartitions], Iterable[Command] | None]
    why_here: str


class PartitionRemoval:
    """All parts of the core that keep something by partition, in the order in which they forget."""

    def __init__(
        self,
        states: MutableMapping[TopicPartition, PartitionState],
        subscriptions: Mapping[str, Subscription],
        *,
        epochs: Epochs,
        commits: Commits,
        regained: Regained,
        snapshots: Snapshots,
        careful: CarefulStarts,
        ceilings: Ceilings,
        holds: Holds,
        meters: Meters,
    ) -> None:
        self._states, self._subscriptions = states, subscriptions
        self._commits, self._regained = commits, regained
        self._snapshots, self._ceilings = snapshots, ceilings
        self.steps: tuple[RemovalStep, ...] = (
            RemovalStep(
                "lost progress",
                self._keep_lost,
                "first: it derives positions from the records, states and commits below",
            ),
            RemovalStep(
                "subscriptions",
                self._forget_records,
                "before the epochs: a record that ended in time is found by its current epoch; "
                "before the holds: records of closing partitions must not start in between",
            ),
            RemovalStep(
                "epochs",
                lambda gone: epochs.go(gone.partitions),
                "after the subscriptions: from here on every lease of these partitions is over",
            ),
            RemovalStep(
                "partition states",
                self._forget_states,
                "after the lost progress, which reads their received ends",
            ),
            RemovalStep(
                "commits",
                lambda gone: commits.forget(gone.partitions),
                "after the lost progress, which reads the entries that the broker may have",
            ),
            RemovalStep(
                "careful starts",
                lambda gone: careful.forget(gone.partitions),
                "after the lost progress, which names running records",
            ),
            RemovalStep(
                "ceilings",
                lambda _: ceilings.forget_marks(),
                "after the lost progress, whose look at all held records begins new marks",
            ),
            RemovalStep(
                "snapshots",
                lambda _: snapshots.keep(states),
                "after the partition states: it keeps the results of those that are left",
            ),
            RemovalStep(
                "holds",
                lambda gone: holds.forget(gone.partitions),
                "after the subscriptions: until then the reason CLOSING keeps records waiting",
            ),
            RemovalStep(
                "meters",
                lambda gone: meters.gone(gone.partitions, gone.now, lost=gone.lost),
                "after the lost progress, which notes what has settled of each arrival",
            ),
        )

    def remove(self, gone: RemovedPartitions) -> list[Command]:
        """Let every part forget the partitions; return the commands that follow."""
        commands: list[Command] = []
        for step in self.steps:
            commands += step.forget(gone) or ()
        return commands

    def _keep_lost(self, gone: RemovedPartitions) -> None:
        """Keep the progress of lost partitions, in case they come back to this member."""
        if not gone.lost:
            return
        # The progress that the member keeps need not fit in the brokers' limit.
        whole = TextLimit(self._ceilings.subs)
        left, _ = self._snapshots.entries(gone.progress, gone.partitions, gone.now, limit=whole)
        self._regained.keep(left, self._commits.ours(gone.partitions), gone.now)

    def _forget_states(self, gone: RemovedPartitions) -> None:
        for partition in gone.partitions:
            self._states.pop(partition, None)

    def _forget_records(self, gone: RemovedPartitions) -> list[Command]:
        """Drop all records of the partitions; return lapses for their leases."""
        commands: list[Command] = []
        for sub in self._subscriptions.values():
            commands += _forget(sub, gone.partitions, gone.progress)
        return commands


def held_of(
    subs: Iterable[Subscription], partitions: Collection[TopicPartition], progress: Progress
) -> int:
    """Return how many records of these partitions are held, given the workers' progress."""
    return sum(
        partition in partitions for sub in subs for partition, _ in sub.unsettled.records(progress)
    )


def under_way(
    subscriptions: Iterable[Subscription],
    partitions: set[TopicPartition],
    progress: Progress,
) -> tuple[list[Record], int]:
    """Return the partitions' running records and the number of their unanswered dead letters."""
    found: list[Record] = []
    dead_letters = 0
    for sub in subscriptions:
        found += running(sub, partitions, progress)
        dead_letters += dead_lettering(sub, partitions)
    return found, dead_letters


def running(sub: Subscription, partitions: set[TopicPartition], progress: Progress) -> list[Record]:
    """Return the records of the partitions that are running, or that may be.

    While a worker has not answered its recall, any record that it has not ended may be running.
    """
    found = []
    for worker in sub.workers.values():
        for leased in worker.slices.values():
            came = leased.slice.came
            may = leased.outstanding(progress) if worker.recalls else leased.running(progress)
            found += [came[index] for index in may if came.partition_of(index) in partitions]
    return found


def dead_lettering(sub: Subscription, partitions: set[TopicPartition]) -> int:
    """Return how many records of the partitions wait for the answer to their dead letter."""
    return sum(
        closed.state in LETTERS_ON_THEIR_WAY
        and closed.head is not None
        and closed.partition in partitions
        for closed in sub.closed.lanes.values()
    )


def _forget(
    sub: Subscription, partitions: set[TopicPartition], progress: Progress
) -> list[Command]:
    """Drop everything of the partitions without settling it; return lapses for their leases.

    Unstarted records of the partitions must have been recalled; otherwise they come back too late.
    Records that still run belong to an earlier epoch from here on. Such a record may be the running
    one of its key; its serial worker then waits for it. Records that had ended by ``progress`` have
    settled although their slice still runs, and count as settled.
    """
    before = sum(1 for _ in sub.unsettled.waiting())
    commands: list[Command] = []
    for row in sub.routing.rows():
        for _, record in row.granted:
            if partition_of(record) in partitions:
                sub.give_back(record)
    for worker in sub.workers.values():
        worker.forget_before(partitions)
        lapsed = tuple(
            id_
            for id_, leased in worker.slices.items()
            if _note_in_time(sub, leased, partitions, progress)
        )
        if lapsed:
            commands.append(Lapse(sub.name, worker.id, lapsed, frozenset(partitions)))
    for place in sub.routing.places:
        place.forget(partitions)
    for partition in partitions:
        sub.carried.pop(partition, None)
    sub.failure_watch.forget(partitions)
    sub.diverted.forget(partitions, sub.closed)
    _open_without_head(sub)
    dropped = before - sum(1 for _ in sub.unsettled.waiting())
    sub.window.free(dropped)
    return commands


def _note_in_time(
    sub: Subscription, leased: SliceState, partitions: set[TopicPartition], progress: Progress
) -> bool:
    """Note which records of the partitions had ended; return whether the slice has any of them."""
    came = leased.slice.came
    these = [
        index
        for index in leased.indices()
        if came.partition_of(index) in partitions and not sub.epochs.ended(leased, index)
    ]
    if these:
        leased.in_time |= frozenset(these).difference(leased.outstanding(progress))
    return bool(these)


def _open_without_head(sub: Subscription) -> None:
    """Advance lanes whose head was forgotten; none of them is to run the head again."""
    for closed in list(sub.closed.lanes.values()):
        if closed.head is None:
            sub.routing.withdraw(closed)
            advance(sub, closed)
