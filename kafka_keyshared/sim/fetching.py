"""What a simulated client fetches: asked for ahead of its owner, and kept in one queue for it.

Whatever moves a partition (a pause, a seek, a rebalance) discards what was fetched of it before; it
is fetched once more, from behind what the owner has taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.history import Delivered, Misplaced
from kafka_keyshared.sim.link import Link
from kafka_keyshared.sim.logs import Written
from kafka_keyshared.sim.records import SimRecord, client_event
from kafka_keyshared.sim.timeline import Action, nothing

if TYPE_CHECKING:
    from kafka_keyshared.sim.cluster import Cluster

RESUMED_AFTER = 0.9
"""Most seconds from a resume to the next fetch."""


class Part:
    """A partition that is assigned. ``next`` is where it is fetched from, None: as is the policy.

    ``position`` is behind what the owner has taken, None until it has taken anything since the
    partition was assigned or sought.
    """

    __slots__ = (
        "active",
        "assignment",
        "checked",
        "eof_at",
        "epoch",
        "made",
        "misplaced",
        "next",
        "not_before",
        "partition",
        "place",
        "position",
        "version",
    )

    def __init__(self, partition: TopicPartition, place: int | None, assignment: int) -> None:
        self.partition = partition
        self.assignment = assignment
        # Which log of that name it reads.
        self.made = -1
        self.version = 0
        # Of the last record that was taken, and up to which the log is known not to have been cut.
        self.epoch = -1
        self.checked = -1
        self.not_before = 0.0
        self.active = False
        self.misplaced = False
        self.move(place)

    def move(self, place: int | None) -> None:
        """Read on there; what was fetched before is worth nothing."""
        self.version += 1
        self.place = self.next = place
        self.position: int | None = None
        self.eof_at = -1

    def discard(self) -> None:
        """Fetch again what was fetched and not taken."""
        self.version += 1
        self.next = self.place if self.position is None else self.position
        self.eof_at = -1


class Batch:
    """What one fetch brought of a partition.

    ``behind`` is where the position goes when all of it is taken and the markers after it are
    passed, ``told`` a message that follows.
    """

    __slots__ = ("at", "behind", "part", "records", "tells_place", "told", "version")

    def __init__(self, part: Part, records: list[SimRecord]) -> None:
        self.part = part
        self.version = part.version
        self.records = records
        self.at = 0
        self.behind: int | None = None
        self.tells_place = False
        self.told: SimRecord | None = None

    def counts(self) -> bool:
        """Say whether it is still to be taken: a lost place is told whatever has come between."""
        return self.version == self.part.version or (self.tells_place and self.part.misplaced)

    def more(self) -> bool:
        """Say whether anything follows its records."""
        return self.behind is not None or self.told is not None


class Fetcher:
    """The fetching half of a client. ``first_place`` is where a partition without a place starts.

    ``eof``: ends of partitions are told as messages. ``most`` bounds a fetch of one partition,
    ``queue_most`` what may lie in the queue.
    """

    def __init__(
        self,
        member: int,
        cluster: Cluster,
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
        self.parts: dict[TopicPartition, Part] = {}
        self.queue: deque[Batch] = deque()
        self.ends: dict[TopicPartition, int] = {}
        # Kept while a partition is not assigned, as the client does.
        self.paused: dict[TopicPartition, None] = {}
        self._held = False
        self._asking = False
        self.wake_owner: Action = nothing
        """Called when something has come into the queue."""

    # --- what the owner does ---

    def assign(self, positions: Iterable[tuple[TopicPartition, int | None]]) -> list[Part]:
        """Begin to read there; return what was made of each."""
        made = []
        for partition, place in positions:
            part = Part(partition, place, self._cluster.next_assignment())
            part.made = self._cluster.log(partition).made
            self.parts[partition] = part
            self._cluster.log(partition).readers[self._member] = self
            self._activate_soon(part)
            made.append(part)
        return made

    def seek(self, part: Part, place: int | None) -> None:
        """Read on there."""
        part.move(place)
        self._purge()
        self.wake()

    def restart(self, part: Part, place: int | None) -> None:
        """Assign it again, to be read on there, also after it was out of range."""
        part.move(place)
        part.active = part.misplaced = False
        self._purge()
        self._activate_soon(part)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        for partition in partitions:
            part = self.parts.pop(partition, None)
            if part is not None:
                part.version += 1
                part.misplaced = False
                self._cluster.log(partition).readers.pop(self._member, None)
        self._purge()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these, and discard what was fetched."""
        for partition in partitions:
            self.paused[partition] = None
            self.parts[partition].discard()
        self._purge()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from these again, after a while; harmless for what is not paused."""
        for partition in partitions:
            if partition in self.paused:
                del self.paused[partition]
                after = self._timeline.now + self._chance.random() ** 3 * RESUMED_AFTER
                self.parts[partition].not_before = after
                self._timeline.at(after, self.wake)

    def hold(self) -> None:
        """Fetch nothing until a rebalance callback has returned."""
        self._held = True
        for part in self.parts.values():
            part.discard()
        self._purge()

    def go_on(self) -> None:
        """Fetch again."""
        self._held = False
        self.wake()

    def take(self, count: int, found: list[SimRecord]) -> list[Delivered]:
        """Take up to so many messages off the queue; return what of them to tell of."""
        queue = self.queue
        delivered: list[Delivered] = []
        while queue and count > 0:
            batch = queue[0]
            part = batch.part
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
                count -= 1
            queue.popleft()
        if delivered:
            self.wake()
        return delivered

    # --- what happens meanwhile ---

    def wake(self) -> None:
        """Fetch, if nothing is asked for by now: there may be more, or more room."""
        if not self._asking and not self._held and self.parts:
            self._asking = True
            self._timeline.after(self._cluster.latency(), self._ask)

    def _activate_soon(self, part: Part) -> None:
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
        """Be answered by the leaders, and have the answers arrive."""
        room = self.queue_most - self._queued()
        if self._held or self._link.dead or not self._link.open() or room <= 0:
            self._asking = False
            return
        batches: list[Batch] = []
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

    def _wanted(self, part: Part) -> bool:
        return (
            part.active
            and not part.misplaced
            and part.not_before <= self._timeline.now
            and part.partition not in self.paused
            and part.partition not in self._cluster.leaders_away
        )

    def _arrive(self, batches: list[Batch], ends: dict[TopicPartition, int]) -> None:
        self._asking = False
        self.ends.update(ends)
        self.queue.extend(each for each in batches if each.counts())
        self.wake_owner()
        self.wake()

    def _fetch(self, part: Part, room: int, ends: dict[TopicPartition, int]) -> Batch | None:
        log = self._cluster.log(part.partition)
        faults = self._cluster.faults
        if part.next is None:
            part.place = part.next = self._first_place(part.partition)
            if part.next is None:
                return self._misplace(part, "no position is stored, and none may be chosen")
        if log.was_cut_off(part.checked, part.next):
            return self._misplace(part, "Partition log truncation detected")
        part.checked = log.epoch
        if faults.fetch_errors and self._chance.random() < faults.fetch_errors:
            batch = Batch(part, [])
            why = "Broker: Not leader for partition"
            batch.told = client_event(
                KafkaError.NOT_LEADER_FOR_PARTITION, why, part.partition, part.next
            )
            return batch
        wrongly = faults.out_of_range and self._chance.random() < faults.out_of_range
        if wrongly or not log.start <= part.next <= log.end:
            return self._misplace(part, "Broker: Offset out of range")
        ends[part.partition] = log.end
        most = min(room, self.most)
        fetched = log.fetch(part.next, self._chance.randint(1, most))
        batch = Batch(part, self._records(part, fetched.offsets, fetched.written))
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

    def _records(
        self, part: Part, offsets: Sequence[int], written: Sequence[Written]
    ) -> list[SimRecord]:
        partition, assignment = part.partition, part.assignment
        return [
            SimRecord(partition, offset, each, assignment)
            for offset, each in zip(offsets, written, strict=True)
        ]

    def _misplace(self, part: Part, why: str) -> Batch:
        """Give the partition up until it is assigned anew, and say so."""
        part.misplaced = True
        self._cluster.history.tell(Misplaced(self._member, (part.partition,)))
        batch = Batch(part, [])
        batch.tells_place = True
        at = -1 if part.next is None else part.next
        batch.told = client_event(KafkaError._AUTO_OFFSET_RESET, why, part.partition, at)
        return batch


def offsets_of(records: Sequence[SimRecord]) -> Sequence[int]:
    """Return the offsets, as a range where there is no gap among them."""
    first, last = records[0].offset(), records[-1].offset()
    if last - first + 1 == len(records):
        return range(first, last + 1)
    return tuple(each.offset() for each in records)
