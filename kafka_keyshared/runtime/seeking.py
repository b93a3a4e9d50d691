"""Seeks to the received end after lost records or a lost position.

The client's own reset (``auto.offset.reset``) may only decide where a partition without a committed
position starts. A lagging replica may answer "out of range" once. A reset then would rewind to
records that have run, or skip records that have not.

A log that ends below the received end, or whose topic has another id, is not the log that was read
(:mod:`.reposition`). Its partition starts a new epoch. The held records of the old log are
forgotten, and lower positions than before may be committed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client, LogBounds
from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import LogPosition
from kafka_keyshared.core.offsets.positions import OffsetSnapshot, PartitionState
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.executors.port import Pool
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.runtime.reposition import NO_ID, ReadOn, inside
from kafka_keyshared.runtime.topic_ids import Comparison, TopicId

log = log_of("kafka_keyshared.loop")

BOUNDS_TIMEOUT = 1.0
LAST_BOUNDS_TIMEOUT = 0.5
"""Seconds to wait for the bounds of a log when its partition is given up."""

LATE_BOUNDS_TIMEOUT = 0.2
"""Seconds to wait for the bounds of a log after the stop deadline.

The grace period after the deadline is for the last commit and for leaving.
"""

OUT_OF_RANGE_WAIT = 0.1
"""Seconds before an out-of-range partition is read again. Its broker may need them."""

GIVEN_BACK_WITHIN = 1.0
"""Seconds to wait for workers that have to return records of an old log."""

ASK_AGAIN_AFTER = 4.0
"""Seconds before a broker that did not answer is queried again. Other partitions are served."""

IDS_ASKED_MOST = 5
"""Number of queries of a topic id that distinguishes two kinds of loss."""


class OwnersPorts(Protocol):
    """The outside, as far as it is needed to find where to read on."""

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
    """The loop, which owns the core and the client."""

    @property
    def core(self) -> Dispatcher:
        """The core, which knows the received end of each partition."""

    @property
    def ports(self) -> OwnersPorts:
        """The ports to the outside."""

    def tell(self, event: ev.Event) -> None:
        """Pass an event to the core and carry out its commands."""

    def serve(self, timeout: float) -> bool:
        """Take everything from the mailbox; return whether there was anything."""

    def start(
        self, starts: Mapping[TopicPartition, ev.StartPoint]
    ) -> Mapping[TopicPartition, int | None]:
        """Pass starting partitions to the core."""


class Reseek:
    """Partitions to be read again from the received end; their other records are dropped.

    They are the partitions that the ledger holds back for :attr:`.Reason.RESEEK`. ``out_of_range``
    has the time (monotonic seconds) from which a partition that was out of range may be read again.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.partitions = holds.held_back(Reason.RESEEK)
        self.out_of_range: dict[TopicPartition, float] = {}
        # How often the topic's id was queried without an answer.
        self._untold: Counter[TopicPartition] = Counter()

    def __bool__(self) -> bool:
        return bool(self.partitions)

    def again(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these again: records were lost, or were dequeued for an earlier assignment."""
        self._holds.hold_back(Reason.RESEEK, partitions)

    def wanted(self, chunk: list[Record], released: Collection[TopicPartition]) -> list[Record]:
        """Return the usable records of a chunk that a client call has returned.

        Dropped are records of partitions that were ``released`` in the same call, that have not
        started, or that will be read again. After a loss, records that arrive before the seek have
        higher offsets than the lost ones. Neither they nor their position may count as received. A
        partition that was released and assigned again within the call is also read again, from its
        assigned position.
        """
        unwanted = {*released, *self.partitions, *self._holds.held_back(Reason.UNSTARTED)}
        return [
            record
            for record in chunk
            if record.error() is not None or partition_of(record) not in unwanted
        ]

    def lost_position(self, partition: TopicPartition, now: float) -> None:
        """Handle "out of range": the broker has nothing at the fetch position."""
        self.again([partition])
        self.out_of_range[partition] = now + OUT_OF_RANGE_WAIT

    def topics_made_anew(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Find out where to read these on: the ids of their topics have changed."""
        for partition in partitions:
            self.lost_position(partition, now)

    def gone(self, partitions: set[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned, or whose position is right again."""
        self._holds.let_go(Reason.RESEEK, partitions)
        for partition in partitions:
            self.out_of_range.pop(partition, None)
            self._untold.pop(partition, None)

    def doubtful(
        self, loop: Owner, those: Collection[TopicPartition], timeout: float
    ) -> set[TopicPartition]:
        """Return which partitions may not be committed any more, as they are given up.

        They were out of range, or their topic has another id. If the log ends below that position
        or the id still differs, it is another log. Offsets committed from the old log would be
        skipped in the new one. The brokers are queried for at most ``timeout`` seconds. Without an
        answer all such partitions are doubtful.
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
                "%s: the log has nothing at the received end %d and may be another log; the "
                "partition is not committed any more",
                each,
                ends[each],
            )
        return found

    def seek(self, loop: Owner) -> None:
        """Seek where that is possible now. The rest stays for the next call."""
        client, states, now = loop.ports.client, loop.core.partitions, loop.ports.clock()
        # A partition stays in CLOSING when its revoke callback has failed. The run ends then.
        closing = self._holds.held_back(Reason.CLOSING)
        self.gone({each for each in self.partitions if each not in states or each in closing})
        there = [each for each in sorted(self.partitions) if each not in self.out_of_range]
        self.gone({each for each in there if _sought(client, each, states[each])})
        due = [each for each, since in self.out_of_range.items() if since <= now]
        if due:
            self._restart(loop, due)

    def _restart(self, loop: Owner, due: list[TopicPartition]) -> None:
        """Read on at the start or end of the logs, or at the received ends if still there."""
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
        # All partitions, since an eager assignment is replaced as a whole.
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
        """Query the bounds of logs and, at the same time, the ids of their topics."""
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
        """Return whether to wait for the id of a topic that had one, to tell losses apart."""
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
    """Give the partitions a new epoch in the core, as if they were revoked and assigned.

    Nothing of the old log is committed. Running records may end and settle nothing. Records that
    have not started are recalled and awaited. Otherwise they would run in parallel with their
    re-read copies.
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
    """Return whether a worker has not answered a recall yet."""
    return any(
        worker.recalls
        for sub in loop.core.subscriptions.values()
        for worker in sub.workers.values()
    )


def anew(  # noqa: PLR0917 - all that is known of one partition
    partition: TopicPartition,
    on: ReadOn,
    log_bounds: LogBounds,
    snapshot: OffsetSnapshot | None,
    state: PartitionState,
    limit: TextLimit,
) -> ev.StartPoint:
    """Return the start of a partition whose log was replaced or truncated.

    In a truncated log the settled records that remain stay settled. Unsettled records that remain
    are read again, because they are forgotten with the rest.
    """
    start, end, _ = log_bounds
    if on.remade or snapshot is None or snapshot.position >= end:
        return ev.StartPoint(on.position, None, start, end, stored=False)
    runs = {
        name: kept
        for name, each in snapshot.runs.items()
        if (kept := commit_metadata.clip(each, snapshot.position, end))
    }
    at = LogPosition(partition, snapshot.position, state.topic_id)
    text = commit_metadata.encode(
        at, runs, state.unknown, snapshot.notes, set_budget=limit.set_budget, limit=limit.chars
    ).text
    return ev.StartPoint(snapshot.position, text, start, end, False, state.topic_id)
