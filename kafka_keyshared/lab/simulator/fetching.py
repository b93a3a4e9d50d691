"""Fetching half of a simulated client, with one queue for the owner.

It fetches ahead of the owner. A pause, seek or rebalance of a partition discards its fetched
records. They are fetched again, from the position after those that the owner has taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from confluent_kafka import KafkaError

from kafka_keyshared.lab.simulator.brokers import Brokers
from kafka_keyshared.lab.simulator.connection import Link
from kafka_keyshared.lab.simulator.history import Delivered, Misplaced, ReadingFrom, ReadsOn
from kafka_keyshared.lab.simulator.logs import Written
from kafka_keyshared.lab.simulator.partition_reader import FetchBatch, FetchedPartition
from kafka_keyshared.lab.simulator.records import SimRecord, client_event
from kafka_keyshared.lab.simulator.timeline import Action, nothing
from kafka_keyshared.model import TopicPartition

REMEMBERED = 300.0
"""Seconds for which a member remembers a lost partition, as long as no other member gets it."""

REFUSED_AGAIN_AFTER = 0.5
"""Seconds until a refused partition is fetched again (``fetch.error.backoff.ms``)."""

RESUMED_AFTER = 0.9
"""Most seconds from a resume to the next fetch."""


class Fetcher:
    """The fetching half of a client.

    ``first_place`` returns the start of a partition without a position. ``eof``: ends of partitions
    are reported as messages. ``most`` bounds a fetch of one partition, ``queue_most`` the records
    in the queue.
    """

    def __init__(
        self,
        member: int,
        cluster: Brokers,
        link: Link,
        first_place: Callable[[TopicPartition], int | None],
        *,
        eof: bool,
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._timeline = cluster.timeline
        self._chance = cluster.chance("fetch")
        self._link = link
        self._first_place = first_place
        self._eof = eof
        self.most = 500
        self.queue_most = 2_000
        self.parts: dict[TopicPartition, FetchedPartition] = {}
        self.queue: deque[FetchBatch] = deque()
        self.ends: dict[TopicPartition, int] = {}
        # Kept while a partition is not assigned, as the client does.
        self.paused: dict[TopicPartition, None] = {}
        # Partitions whose refusal was reported: the client reports it once.
        self._refused: set[TopicPartition] = set()
        self._held = False
        self._asking = self._moved = False
        self._lost: list[FetchedPartition] = []
        # Which log each lost partition was, and until when that is remembered.
        self._left: dict[TopicPartition, tuple[int, float]] = {}
        self.wake_owner: Action = nothing
        """Called when records have entered the queue."""

    # --- calls of the owner ---

    def assign(
        self, positions: Iterable[tuple[TopicPartition, int | None]]
    ) -> list[FetchedPartition]:
        """Start reading at these positions; return the state of each partition."""
        made = []
        for partition, place in positions:
            part = FetchedPartition(partition, place, self._cluster.next_assignment())
            log = self._cluster.log(partition)
            part.made, part.topics = log.made, log.topics
            if place is not None:
                self._left.pop(partition, None)
            self.parts[partition] = part
            log.readers[self._member] = self
            self._activate_soon(part)
            made.append(part)
        return made

    def seek(self, part: FetchedPartition, place: int | None) -> None:
        """Continue reading at that position."""
        part.move(place)
        self._purge()
        self.wake()

    def restart(self, part: FetchedPartition, place: int | None) -> None:
        """Assign it again to be read from that position, also after it was out of range."""
        part.move(place)
        part.active = part.misplaced = False
        self._purge()
        self._activate_soon(part)

    def unassign(self, partitions: Iterable[TopicPartition], *, lost: bool = False) -> None:
        """Stop reading these. The owner remembers for a while which logs the ``lost`` ones were."""
        for partition in partitions:
            part = self.parts.pop(partition, None)
            if part is not None:
                if lost:
                    # The owner of one that never began remembers an earlier loss.
                    made, _ = self._left.get(partition, (part.made, 0.0))
                    self._left[partition] = made, self._timeline.now + REMEMBERED
                part.version += 1
                part.misplaced = False
                self._cluster.log(partition).readers.pop(self._member, None)
        self._purge()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from these, and discard their fetched records."""
        for partition in partitions:
            self.paused[partition] = None
            self.parts[partition].discard()
        self._purge()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume fetching from these after a while. Partitions that are not paused stay as they
        are.
        """
        for partition in partitions:
            if partition in self.paused:
                del self.paused[partition]
                after = self._timeline.now + self._chance.random() ** 3 * RESUMED_AFTER
                self.parts[partition].not_before = after
                self._timeline.at(after, self.wake)

    def hold(self) -> None:
        """Stop fetching until a rebalance callback has returned."""
        self._held = True
        for part in self.parts.values():
            part.discard()
        self._purge()

    def go_on(self) -> None:
        """Resume fetching."""
        self._held = False
        self.wake()

    def take(self, count: int, found: list[SimRecord]) -> list[Delivered]:
        """Take up to ``count`` messages off the queue; return the deliveries to report."""
        queue = self.queue
        delivered: list[Delivered] = []
        while queue and count > 0:
            batch = queue[0]
            part = batch.part
            self._moved = True
            if batch.at < len(batch.records):
                some = batch.records[batch.at : batch.at + count]
                batch.at += len(some)
                count -= len(some)
                found += some
                last = some[-1]
                part.position, part.epoch = last.offset() + 1, last.leader_epoch() or 0
                offsets = offsets_of(some)
                delivered.append(Delivered(self._member, part.partition, offsets, part.assignment))
                if not count and (batch.at < len(batch.records) or batch.more()):
                    break
            if batch.behind is not None:
                part.position, batch.behind = batch.behind, None
            if batch.told is not None:
                found.append(batch.told)
                if batch.tells_place:
                    self._lost.append(part)
                count -= 1
            queue.popleft()
        if delivered:
            self.wake()
        return delivered

    def told(self, part: FetchedPartition) -> None:
        """Report the position from which the owner reads the partition, and the assignment.

        The records delivered under one number are of one log. For another log the owner starts
        another assignment.
        """
        log, part.loose = self._cluster.log(part.partition), False
        if part.place is not None:
            self._left.pop(part.partition, None)
        if part.made != log.made and (part.place or 0) > log.end:
            return  # nothing to read: it is out of range again, and its owner is in the old log
        # It has read on unnoticed, and its owner has learned that the topic is another one.
        noticed = part.topics != log.topics and (part.place or 0) < part.reached
        if noticed or part.reached > log.end or (part.made != log.made and not self.read_on(part)):
            # The owner still knows its settled records, as far as both logs are the same.
            same = 0 if noticed else min(part.reached, log.shared(part.made))
            part.made, part.assignment = log.made, self._cluster.next_assignment()
            part.topics, part.reached = log.topics, max(part.place or 0, same)
        self._cluster.history.tell(
            ReadingFrom(self._member, part.partition, part.place, part.assignment)
        )

    def made(self, partition: TopicPartition) -> int:
        """Return which log of that name is read, as far as the owner knows."""
        part = self.parts.get(partition)
        return self._cluster.log(partition).made if part is None else part.made

    def knows(self, partition: TopicPartition) -> bool:
        """Return whether everything here is of the current log of that name."""
        made, now = self._cluster.log(partition).made, self._timeline.now
        part, left = self.parts.get(partition), self._left.get(partition)
        return (part is None or part.made == made) and not (
            left is not None and left[0] != made and now <= left[1]
        )

    def loosen(self, partitions: Collection[TopicPartition]) -> None:
        """Note that the records taken last from these, or taken next, are read again."""
        for partition in partitions:
            self.parts[partition].loose = True
        self._cluster.history.tell(Misplaced(self._member, tuple(partitions)))

    def used(self) -> None:
        """Count the last call's records as used, except for partitions lost in an earlier call."""
        if not self._moved:
            return
        self._moved = False
        for part in self.parts.values():
            if not part.loose and part.position is not None:
                part.reached = max(part.reached, part.position)
        for part in self._lost:
            part.loose = True
        self._lost.clear()

    # --- events ---

    def wake(self) -> None:
        """Fetch, unless a request is in flight: there may be more records, or more room."""
        if not self._asking and not self._held and self.parts:
            self._asking = True
            self._timeline.after(self._cluster.latency(), self._ask)

    def _activate_soon(self, part: FetchedPartition) -> None:
        def activate() -> None:
            part.active = True
            part.checked = self._cluster.log(part.partition).epoch
            self.wake()

        self._timeline.after(self._cluster.latency(), activate)

    def _purge(self) -> None:
        if self.queue:
            self.queue = deque(each for each in self.queue if each.counts())

    def _queued(self) -> int:
        return sum(len(each.records) - each.at for each in self.queue)

    def _ask(self) -> None:
        """Get the answers of the leaders, and let them arrive."""
        room = self.queue_most - self._queued()
        if self._held or self._link.dead or not self._link.open() or room <= 0:
            self._asking = False
            return
        batches: list[FetchBatch] = []
        ends: dict[TopicPartition, int] = {}
        parts = list(self.parts.values())
        first = self._chance.randrange(len(parts)) if len(parts) > 1 else 0
        for part in parts[first:] + parts[:first]:
            batch = self._fetch(part, room, ends) if self._wanted(part) else None
            if batch is not None:
                batches.append(batch)
                room -= len(batch.records)
                if room <= 0:
                    break
        if not batches:
            self._asking = False
            self.ends.update(ends)
            return
        self._timeline.after(self._cluster.latency(), lambda: self._arrive(batches, ends))

    def _wanted(self, part: FetchedPartition) -> bool:
        return (
            part.active
            and not part.misplaced
            and part.not_before <= self._timeline.now
            and part.partition not in self.paused
            and part.partition not in self._cluster.leaders_away
        )

    def _arrive(self, batches: list[FetchBatch], ends: dict[TopicPartition, int]) -> None:
        self._asking = False
        self.ends.update(ends)
        self.queue.extend(each for each in batches if each.counts())
        self.wake_owner()
        self.wake()

    def _fetch(
        self, part: FetchedPartition, room: int, ends: dict[TopicPartition, int]
    ) -> FetchBatch | None:
        log = self._cluster.log(part.partition)
        if not self._cluster.rights.may_read(part.partition.topic):
            return self._refuse(part)
        self._refused.discard(part.partition)
        faults = self._cluster.faults
        if part.next is None:
            part.place = part.next = self._first_place(part.partition)
            if part.next is None:
                return self._misplace(part, "no position is stored, and none may be chosen")
        if log.was_cut_off(part.checked, part.next):
            return self._misplace(part, "Partition log truncation detected")
        part.checked = log.epoch
        if faults.fetch_errors and self._chance.random() < faults.fetch_errors:
            batch = FetchBatch(part, [])
            why = "Broker: Not leader for partition"
            batch.told = client_event(
                KafkaError.NOT_LEADER_FOR_PARTITION, why, part.partition, part.next
            )
            return batch
        wrongly = faults.out_of_range and self._chance.random() < faults.out_of_range
        if wrongly or not log.start <= part.next <= log.end:
            return self._misplace(part, "Broker: Offset out of range")
        if part.made != log.made:
            self.read_on(part)
        ends[part.partition] = log.end
        most = min(room, self.most)
        fetched = log.fetch(part.next, self._chance.randint(1, most))
        batch = FetchBatch(part, self._records(part, fetched.offsets, fetched.written))
        after = fetched.offsets[-1] + 1 if fetched.offsets else part.next
        part.next = fetched.next_position
        if part.next > after:
            batch.behind = part.next
        if self._eof and fetched.at_end and part.next == log.readable_end != part.eof_at:
            part.eof_at = batch.behind = part.next
            batch.told = client_event(
                KafkaError._PARTITION_EOF, "end of partition", part.partition, part.next
            )
        return batch if batch.records or batch.more() else None

    def _refuse(self, part: FetchedPartition) -> FetchBatch | None:
        """Report once that the partition may not be read. It is fetched again after a while."""
        part.not_before = self._timeline.now + REFUSED_AGAIN_AFTER
        self._timeline.at(part.not_before, self.wake)
        if part.partition in self._refused:
            return None
        self._refused.add(part.partition)
        batch = FetchBatch(part, [])
        code, at = KafkaError.TOPIC_AUTHORIZATION_FAILED, -1 if part.next is None else part.next
        why = "Fetch from broker 1 failed: Broker: Topic authorization failed"
        batch.told = client_event(code, why, part.partition, at)
        return batch

    def read_on(self, part: FetchedPartition) -> bool:
        """Continue in the current log; return whether the owner may do so without learning of it.

        It may if it has come no further than the part that both logs share.
        """
        log = self._cluster.log(part.partition)
        if part.reached > log.shared(part.made):
            return False
        part.made = log.made
        self._cluster.history.tell(ReadsOn(self._member, part.partition, part.assignment))
        return True

    def _records(
        self, part: FetchedPartition, offsets: Sequence[int], written: Sequence[Written]
    ) -> list[SimRecord]:
        partition, assignment = part.partition, part.assignment
        return [
            SimRecord(partition, offset, each, assignment)
            for offset, each in zip(offsets, written, strict=True)
        ]

    def _misplace(self, part: FetchedPartition, why: str) -> FetchBatch:
        """Give the partition up until it is assigned again, and report that."""
        part.misplaced = True
        self._cluster.history.tell(Misplaced(self._member, (part.partition,)))
        batch = FetchBatch(part, [])
        batch.tells_place = True
        at = -1 if part.next is None else part.next
        batch.told = client_event(KafkaError._AUTO_OFFSET_RESET, why, part.partition, at)
        return batch


def offsets_of(records: Sequence[SimRecord]) -> Sequence[int]:
    """Return the offsets, as a range if they have no gap."""
    first, last = records[0].offset(), records[-1].offset()
    if last - first + 1 == len(records):
        return range(first, last + 1)
    return tuple(each.offset() for each in records)
