"""Going back to the received end of a partition, after the client lost records or its position.

The client's own reset (``auto.offset.reset``) decides only where a partition without a committed
position starts. It must not decide anything later: one answer "out of range", as a replica that
lags behind may give it, would rewind to records that have run or leap over some that have not.

A log that ends below the received end, or whose topic has another id, is another one than was read
(:mod:`.reading_on`). Its partition begins anew, with an epoch of its own: what is held of the old
log is forgotten, and positions below those of before may be committed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client, LogBounds
from kafka_keyshared.core import events as ev
from kafka_keyshared.core import metadata
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.holds import Holds, Reason
from kafka_keyshared.core.log_position import LogPosition
from kafka_keyshared.core.offsets import PartitionState, Snapshot
from kafka_keyshared.core.text_limit import TextLimit
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.owner.reading_on import NO_ID, ReadOn, inside
from kafka_keyshared.owner.topic_ids import Comparison, TopicId
from kafka_keyshared.pools.port import Pool

log = log_of("kafka_keyshared.loop")

BOUNDS_TIMEOUT = 1.0
LAST_BOUNDS_TIMEOUT = 0.5
"""Seconds for which the bounds of a log are waited for when its partition is given up."""

LATE_BOUNDS_TIMEOUT = 0.2
"""And behind the deadline of a stop, whose grace is for the last commit and for leaving."""

OUT_OF_RANGE_WAIT = 0.1
"""Seconds before a partition is read again that was out of range: its broker may need them."""

GIVEN_BACK_WITHIN = 1.0
"""Seconds for which workers are waited for that have to give back what is of another log."""

ASK_AGAIN_AFTER = 4.0
"""Seconds before a broker that did not answer is asked again: meanwhile the others are served."""

IDS_ASKED_MOST = 5
"""Times that an id is asked for which is wanted to tell two kinds of loss apart."""


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


class Reseek:
    """Partitions that have to be read again from the received end; nothing else of them counts.

    They are those that the ledger holds back for it. ``out_of_range`` says from when on (monotonic
    seconds) one may be that the broker found to be out of range.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.partitions = holds.held_back(Reason.RESEEK)
        self.out_of_range: dict[TopicPartition, float] = {}
        # How often the id of its topic was asked for and not told.
        self._untold: Counter[TopicPartition] = Counter()

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

    def topics_made_anew(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Look where these are to be read: the ids of their topics are no longer the same."""
        for partition in partitions:
            self.lost_position(partition, now)

    def gone(self, partitions: set[TopicPartition]) -> None:
        """Partitions that are no longer assigned, or are where they should be."""
        self._holds.let_go(Reason.RESEEK, partitions)
        for partition in partitions:
            self.out_of_range.pop(partition, None)
            self._untold.pop(partition, None)

    def doubtful(
        self, loop: Owner, those: Collection[TopicPartition], timeout: float
    ) -> set[TopicPartition]:
        """Return which of those may not be committed any more, now that they are given up.

        The broker had nothing at their place, or their topic has another id. Where the log ends
        below the place, or the id is still another one, it is another log: what is committed of the
        old one would be skipped of the new one. So it is asked, for at most ``timeout`` seconds;
        without an answer all of them are in doubt.
        """
        states = loop.core.partitions
        ends = {
            each: end
            for each in self.out_of_range
            if each in those and each in states and (end := states[each].settled_end) is not None
        }
        if not ends:
            return set()
        bounds, ids = self._ask(loop, list(ends), timeout) if timeout > 0 else ({}, {})
        found = {
            each
            for each in ends
            if each not in bounds or bounds[each].end < ends[each] or ids.get(each, NO_ID).changed
        }
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
        # What is being given up stays so where a callback has failed in it: that ends the run.
        closing = self._holds.held_back(Reason.CLOSING)
        self.gone({each for each in self.partitions if each not in states or each in closing})
        there = [each for each in sorted(self.partitions) if each not in self.out_of_range]
        self.gone({each for each in there if _sought(client, each, states[each])})
        due = [each for each, since in self.out_of_range.items() if since <= now]
        if due:
            self._restart(loop, due)

    def _restart(self, loop: Owner, due: list[TopicPartition]) -> None:
        """Read on where the logs begin, end, or still have the received ends."""
        client, states = loop.ports.client, loop.core.partitions
        bounds, ids = self._ask(loop, due, BOUNDS_TIMEOUT)
        for each in [each for each in bounds if self._waits(each, states[each], bounds, ids)]:
            del bounds[each]
        again = loop.ports.clock() + ASK_AGAIN_AFTER
        self.out_of_range.update((each, again) for each in due if each not in bounds)
        found = {
            each: inside(
                each,
                states[each].received_end,
                known,
                client.received_epoch(each),
                ids.get(each, NO_ID),
                settled_end=states[each].settled_end,
            )
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

    def _ask(
        self, loop: Owner, those: list[TopicPartition], timeout: float
    ) -> tuple[dict[TopicPartition, LogBounds], dict[TopicPartition, TopicId]]:
        """Ask for the bounds of logs, and meanwhile for the ids of their topics."""
        client, clock = loop.ports.client, loop.ports.clock
        until = clock() + timeout
        asked = Comparison(client, loop.core.partitions, those)
        bounds = client.log_bounds(those, timeout)
        return bounds, asked.answer(until - clock())

    def _waits(
        self,
        partition: TopicPartition,
        state: PartitionState,
        bounds: Mapping[TopicPartition, LogBounds],
        ids: Mapping[TopicPartition, TopicId],
    ) -> bool:
        """Say whether to wait for the id of a topic that has had one: much hangs on it."""
        at, id_ = state.received_end, ids.get(partition, NO_ID)
        if at is None or at <= bounds[partition].end or id_.began is None or id_.known:
            return False
        self._untold[partition] += 1
        return self._untold[partition] < IDS_ASKED_MOST


def _sought(client: Client, partition: TopicPartition, state: PartitionState) -> bool:
    try:
        client.seek(partition, state.received_end)
    except KafkaException as error:
        log.debug("%s: cannot seek yet: %s", partition, error)
        return False
    return True


def begin_anew(
    loop: Owner,
    found: Mapping[TopicPartition, ReadOn],
    bounds: Mapping[TopicPartition, LogBounds],
) -> None:
    """Give the partitions a new epoch in the core, as if they went away and came back.

    Nothing is committed of the old log. What runs may end; it then settles nothing. What has not
    started is awaited, or it would start beside what is read again.
    """
    loop.tell(ev.Revoking(list(found)))
    until = loop.ports.clock() + GIVEN_BACK_WITHIN
    while _recalled(loop) and (left := until - loop.ports.clock()) > 0:
        loop.serve(left)
    progress = loop.ports.pool.progress()
    loop.serve(0.0)  # as before every snapshot: a failure must not be taken for progress
    snapshots = loop.core.snapshots.take(progress, loop.ports.clock())
    limit = loop.core.text_limit
    starts = {
        each: anew(each, on, bounds[each], snapshots.get(each), loop.core.partitions[each], limit)
        for each, on in found.items()
    }
    loop.tell(ev.Forget(list(starts)))
    loop.start(starts)


def _recalled(loop: Owner) -> bool:
    """Say whether a worker has yet to answer what it was asked to give back."""
    return any(
        worker.recalls
        for sub in loop.core.subscriptions.values()
        for worker in sub.workers.values()
    )


def anew(  # noqa: PLR0917 - all that is known of one partition
    partition: TopicPartition,
    on: ReadOn,
    log_bounds: LogBounds,
    snapshot: Snapshot | None,
    state: PartitionState,
    limit: TextLimit,
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
    at = LogPosition(partition, snapshot.position, state.topic_id)
    text = metadata.encode(
        at, runs, state.unknown, snapshot.notes, set_budget=limit.set_budget, limit=limit.chars
    ).text
    return ev.StartPoint(snapshot.position, text, start, end, False, state.topic_id)
