"""Going back to the received end of a partition, after the client lost records or its position.

The client's own reset (``auto.offset.reset``) decides only where a partition without a committed
position starts. It must not decide anything later: one answer "out of range", as a replica that
lags behind may give it, would rewind to records that have run or leap over some that have not.

A log that ends below the received end is another log than the one that was read. Its partition
begins anew, with an epoch of its own: what is held of the old log is forgotten, and positions below
those of before may be committed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client, LogBounds
from kafka_keyshared.core import events as ev
from kafka_keyshared.core import metadata
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.holds import Holds, Reason
from kafka_keyshared.core.offsets import PartitionState, Snapshot
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.pools.port import Pool

log = log_of("kafka_keyshared.loop")

BOUNDS_TIMEOUT = 1.0
LAST_BOUNDS_TIMEOUT = 0.5
"""Seconds for which the bounds of a log are waited for when its partition is given up."""

LATE_BOUNDS_TIMEOUT = 0.2
"""And behind the deadline of a stop, whose grace is for the last commit and for leaving."""

OUT_OF_RANGE_WAIT = 0.1
"""Seconds before a partition is read again that was out of range: its broker may need them."""

ASK_AGAIN_AFTER = 4.0
"""Seconds before a broker that did not answer is asked again: meanwhile the others are served."""


class OwnersPorts(Protocol):
    """The world, as far as it is needed to find where to read on."""

    @property
    def client(self) -> Client:
        """The Kafka client."""

    @property
    def pool(self) -> Pool:
        """The workers."""

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds."""


class Owner(Protocol):
    """The loop: it has the core and the client to itself."""

    @property
    def core(self) -> Dispatcher:
        """What knows how far each partition was received."""

    @property
    def ports(self) -> OwnersPorts:
        """The world."""

    def tell(self, event: ev.Event) -> None:
        """Give an event to the core and do what it answers."""

    def serve(self, timeout: float) -> bool:
        """Take everything from the mailbox; say whether there was anything."""

    def start(
        self, starts: Mapping[TopicPartition, ev.StartPoint]
    ) -> Mapping[TopicPartition, int | None]:
        """Tell the core of partitions that start."""


class ReadOn(NamedTuple):
    """Where to read on.

    ``another`` says that the log is not the one that was read, ``remade`` that nothing of it is.
    """

    position: int | None
    another: bool = False
    remade: bool = False


class Reseek:
    """Partitions that have to be read again from the received end; nothing else of them counts.

    They are those that the ledger holds back for it. ``out_of_range`` says from when on (monotonic
    seconds) one may be that the broker found to be out of range.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.partitions = holds.held_back(Reason.RESEEK)
        self.out_of_range: dict[TopicPartition, float] = {}

    def __bool__(self) -> bool:
        return bool(self.partitions)

    def again(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these again: records were lost, or were taken off the queue for what came before."""
        self._holds.hold_back(Reason.RESEEK, partitions)

    def wanted(self, chunk: list[Record], released: Collection[TopicPartition]) -> list[Record]:
        """Return what may be used of a chunk that a call of the client has brought.

        Without what was taken off the queue before its partition was ``released`` in the same call,
        what has not started, and what is going to be read again: after a loss, whatever comes
        before the seek stands behind the lost records, and neither it nor its position may count as
        received. One that was released and came back in the call is read again too, from where its
        assignment said.
        """
        unwanted = {*released, *self.partitions, *self._holds.held_back(Reason.UNSTARTED)}
        return [
            record
            for record in chunk
            if record.error() is not None or partition_of(record) not in unwanted
        ]

    def lost_position(self, partition: TopicPartition, now: float) -> None:
        """The broker has nothing at the position that was fetched from."""
        self.again([partition])
        self.out_of_range[partition] = now + OUT_OF_RANGE_WAIT

    def gone(self, partitions: set[TopicPartition]) -> None:
        """Partitions that are no longer assigned, or are where they should be."""
        self._holds.let_go(Reason.RESEEK, partitions)
        for partition in partitions:
            self.out_of_range.pop(partition, None)

    def doubtful(
        self, loop: Owner, those: Collection[TopicPartition], timeout: float
    ) -> set[TopicPartition]:
        """Return which of those may not be committed any more, now that they are given up.

        The broker had nothing at their place. Where the log ends below it, it is another one: what
        is committed of the old one would be skipped of the new one. So it is asked, for at most
        ``timeout`` seconds; without an answer all of them are in doubt.
        """
        states = loop.core.partitions
        ends = {
            each: end
            for each in self.out_of_range
            if each in those and each in states and (end := states[each].received_end) is not None
        }
        if not ends:
            return set()
        bounds = loop.ports.client.log_bounds(list(ends), timeout) if timeout > 0 else {}
        found = {each for each in ends if each not in bounds or bounds[each].end < ends[each]}
        for each in sorted(found):
            log.warning(
                "%s: the log has nothing at the received end %d, and may be another one: nothing "
                "more is committed of it",
                each,
                ends[each],
            )
        return found

    def seek(self, loop: Owner) -> None:
        """Seek as far as that can be done now; what cannot stays for the next time."""
        client, states, now = loop.ports.client, loop.core.partitions, loop.ports.clock()
        self.gone({each for each in self.partitions if each not in states})
        there = [each for each in sorted(self.partitions) if each not in self.out_of_range]
        self.gone({each for each in there if _sought(client, each, states[each])})
        due = [each for each, since in self.out_of_range.items() if since <= now]
        if due:
            self._restart(loop, due)

    def _restart(self, loop: Owner, due: list[TopicPartition]) -> None:
        """Read on where the logs begin, end, or still have the received ends."""
        client, states = loop.ports.client, loop.core.partitions
        bounds = client.log_bounds(due, BOUNDS_TIMEOUT)
        again = loop.ports.clock() + ASK_AGAIN_AFTER
        self.out_of_range.update((each, again) for each in due if each not in bounds)
        found = {
            each: inside(each, states[each].received_end, known, client.received_epoch(each))
            for each, known in bounds.items()
        }
        anew = {each: on for each, on in found.items() if on.another}
        if anew:
            begin_anew(loop, anew, bounds)
            self.again(anew)  # that it is not found yet is not over with the old log
        # The others too: an eager assignment is given as a whole.
        positions = {each: state.received_end for each, state in states.items()}
        positions |= {each: on.position for each, on in found.items() if each not in anew}
        try:
            if found:
                client.restart(positions, found.keys())
        except KafkaException as error:
            log.debug("%s: cannot read on yet: %s", ", ".join(map(str, found)), error)
        else:
            self.gone(set(found))


def _sought(client: Client, partition: TopicPartition, state: PartitionState) -> bool:
    try:
        client.seek(partition, state.received_end)
    except KafkaException as error:
        log.debug("%s: cannot seek yet: %s", partition, error)
        return False
    return True


def inside(
    partition: TopicPartition, position: int | None, bounds: LogBounds, epoch: int
) -> ReadOn:
    """Return where to read on of a log with these bounds, and say what is lost by that.

    ``epoch`` is the leader's at what was received last. A log is cut off when a replica that lags
    behind is made its leader, which raises the epoch. Without that, a log that ends too early is a
    new one: its topic was deleted and made again.
    """
    start, end, epoch_now = bounds
    if position is None:
        return ReadOn(None)
    if position < start:
        log.warning(
            "%s: retention has removed the log up to %d, past the received end %d; %d offsets are "
            "gone, reading goes on at the start of the log",
            partition,
            start,
            position,
            start - position,
        )
        return ReadOn(start)
    if position > end and 0 <= epoch_now <= epoch:
        log.error(
            "%s: the log ends at %d, before the received end %d, and its leader's epoch has not "
            "risen (%d, was %d): the topic was deleted and made anew; what is held of the old one "
            "is forgotten, the new one is read from its start, %d",
            partition,
            end,
            position,
            epoch_now,
            epoch,
            start,
        )
        return ReadOn(start, another=True, remade=True)
    if position > end:
        log.error(
            "%s: the log ends at %d, before the received end %d: it was cut off (as by the "
            "election of a leader that lagged behind); %d offsets are gone, reading goes on at its "
            "end",
            partition,
            end,
            position,
            position - end,
        )
        return ReadOn(end, another=True)
    log.info("%s: out of range at %d, which the log has; reading on there", partition, position)
    return ReadOn(position)


def begin_anew(
    loop: Owner,
    found: Mapping[TopicPartition, ReadOn],
    bounds: Mapping[TopicPartition, LogBounds],
) -> None:
    """Give the partitions a new epoch in the core, as if they went away and came back.

    Nothing is committed of the old log. What runs may end; it then settles nothing.
    """
    progress = loop.ports.pool.progress()
    loop.serve(0.0)  # as before every snapshot: a failure must not be taken for progress
    snapshots = loop.core.snapshots.take(progress, loop.ports.clock())
    budget = loop.core.ceilings.set_budget
    starts = {
        each: anew(on, bounds[each], snapshots.get(each), loop.core.partitions[each], budget)
        for each, on in found.items()
    }
    loop.tell(ev.Revoking(list(starts)))
    loop.tell(ev.Forget(list(starts)))
    loop.start(starts)


def anew(
    on: ReadOn,
    log_bounds: LogBounds,
    snapshot: Snapshot | None,
    state: PartitionState,
    budget: int,
) -> ev.StartPoint:
    """Return the start of a partition whose log is another one now.

    Of a log that was cut off, what is left stays settled; what is left and not settled is read
    again, because it is forgotten with the rest.
    """
    start, end, _ = log_bounds
    if on.remade or snapshot is None or snapshot.position >= end:
        return ev.StartPoint(on.position, None, start, end, stored=False)
    runs = {
        name: kept
        for name, each in snapshot.runs.items()
        if (kept := metadata.clip(each, snapshot.position, end))
    }
    text = metadata.encode(
        snapshot.position, runs, state.unknown, snapshot.notes, set_budget=budget
    ).text
    return ev.StartPoint(snapshot.position, text, start, end, stored=False)
