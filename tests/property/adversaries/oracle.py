"""What must hold, kept by the test's own books: the dispatcher's state is never looked at.

Nor is its code asked: what a lane is and what a commit says are worked out here by the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import lane_hash
from kafka_keyshared.lab.simulator.commit_text import NOTHING, read_commit, read_notes
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Coordinates, Drop, TopicPartition
from tests.support.records import FakeRecord

Lane = tuple[str, int, bytes, int]
"""Topic, partition, whole key and offset; the parts that do not matter are "", -1, b"" and -1."""


ALL_NULLS = b"all null keys together"
"""What stands for the key of the one lane of all null keys."""


def partition_of(record: FakeRecord) -> TopicPartition:
    """Where it came from, whatever its handler has set since."""
    return TopicPartition(record.came_as[0], record.partition())


def coordinates_of(record: FakeRecord) -> Coordinates:
    return partition_of(record), record.offset()


def covered_by(entry: CommitEntry, subs: Iterable[str], log: Sequence[int]) -> dict[str, set[int]]:
    """The offsets of the log that a commit calls settled, per subscription."""
    sections = read_commit(entry.metadata, entry.position)
    return {
        sub: {
            offset for offset in log if offset < entry.position or offset in sections.get(sub, ())
        }
        for sub in subs
    }


class Oracle:
    """The books of one test run. They outlive a crash of the member under test."""

    def __init__(self, subs: Sequence[SubscriptionSettings]) -> None:
        self.subs = {settings.name: settings for settings in subs}
        self.done: dict[str, set[Coordinates]] = {name: set() for name in self.subs}
        self.log: dict[TopicPartition, list[int]] = defaultdict(list)
        self.epochs: dict[TopicPartition, int] = defaultdict(int)
        self.owned: set[TopicPartition] = set()
        self.closing: set[TopicPartition] = set()
        self.covered: dict[tuple[str, TopicPartition], set[int]] = {}
        self.settled: dict[tuple[str, TopicPartition], set[int]] = {}  # in this epoch
        self.owed: dict[tuple[str, TopicPartition], set[int]] = {}  # by a clean end, to the next
        # Delivered in this epoch and not settled, in order: only the first of a lane may start.
        self.open: dict[str, dict[tuple[TopicPartition, Lane], list[int]]] = {}
        self.running: dict[str, dict[Lane, FakeRecord]] = {}
        self.attempts: dict[tuple[str, Coordinates], int] = {}
        self.dead_lettering: set[tuple[str, Coordinates]] = set()
        self.blocked: set[tuple[str, Coordinates]] = set()
        # Records whose copy is in the dead-letter topic, and hashes of diverted lanes.
        # Partitions of which the broker has refused metadata for its size.
        self.bare: Collection[TopicPartition] = ()
        self.once_more: set[tuple[str, Coordinates]] = set()
        self.copying: set[tuple[str, Coordinates]] = set()
        self.copied: set[tuple[str, Coordinates]] = set()
        self.diverted: dict[tuple[str, TopicPartition], set[bytes]] = defaultdict(set)
        self.failed_hash: dict[tuple[str, Coordinates], bytes] = {}
        self.last_sent: dict[TopicPartition, int] = {}
        # What a lost partition had settled, and the last entry that the broker may have of it.
        self.left: dict[TopicPartition, tuple[CommitEntry | None, dict[str, set[int]]]] = {}
        self.last_entry: dict[TopicPartition, CommitEntry | None] = {}
        # The epoch from which on a partition has the log that it has now.
        self.remade_at: dict[TopicPartition, int] = defaultdict(int)
        self.stopped = False
        self.member_starts()

    def lane(self, sub: str, record: FakeRecord) -> Lane:
        """The lane in which the record has to be in order."""
        topic, partition = partition_of(record)
        key = record.came_as[1]
        if key is None:
            return (topic, partition, b"", record.offset())
        match self.subs[sub].order_scope:
            case "topic":
                return (topic, -1, key, -1)
            case "partition":
                return (topic, partition, key, -1)
            case "subscription":
                return ("", -1, key, -1)

    # --- the member's life ---

    def member_starts(self) -> None:
        """A new process: nothing runs, nothing is assigned."""
        self.owned.clear()
        self.closing.clear()
        self.open = {name: {} for name in self.subs}
        self.running = {name: {} for name in self.subs}
        self.blocked.clear()
        self.left.clear()
        self.stopped = False

    def assigned(
        self, partition: TopicPartition, stored: CommitEntry | None, entry: CommitEntry | None
    ) -> bool:
        """The partition came with what the broker has, and starts at ``entry``.

        That is further on only for a lost one that comes back to its member untouched: then it is
        all that had settled; and what the broker has of it, it is always. Return whether it came
        back so.
        """
        self.epochs[partition] += 1
        self.owned.add(partition)
        self.last_sent[partition] = -1 if entry is None else entry.position
        self.last_entry[partition] = stored
        log = self.log[partition]
        last, left = self.left.pop(partition, (None, {}))
        regained = bool(left) and stored is not None and stored == last
        nothing = CommitEntry(0, "")
        self._carried(partition, entry or nothing)
        committed = covered_by(stored or nothing, self.subs, log)
        covered = covered_by(entry or nothing, self.subs, log)
        for sub, offsets in covered.items():
            missing = committed[sub] - offsets
            assert not missing, f"{partition}: {sub} starts without {missing}, which is committed"
            kept = regained and partition not in self.bare
            missing = left[sub] - offsets if kept else set()
            assert not missing, f"{partition}: {sub} had settled {missing} when it was lost"
            self.covered[sub, partition] = offsets
            self.settled[sub, partition] = set()
            done = {offset for at, offset in self.done[sub] if at == partition}
            assert offsets <= done, f"{partition}: committed unsettled {offsets - done}"
            missing = self.owed.pop((sub, partition), set()) - offsets
            assert not missing, f"{partition}: a clean end of {sub} forgot {missing}"
        return regained

    def _carried(self, partition: TopicPartition, entry: CommitEntry) -> None:
        """What was tried goes on counting, and what was diverted stays so."""
        for sub, notes in read_notes(entry.metadata, entry.position).items():
            lanes, tried = notes.lanes, notes.tried
            self.diverted[sub, partition] = set(lanes)
            for offset, (times, copied) in tried.items():
                self.attempts[sub, (partition, offset)] = times
                if times >= self.subs[sub].retry.attempts:
                    # What had all its attempts has one more: its handler may be mended.
                    self.once_more.add((sub, (partition, offset)))
                if copied:
                    self.copied.add((sub, (partition, offset)))

    def lane_hash(self, sub: str, record: FakeRecord) -> bytes:
        """The 16 bytes that stand for the record's lane."""
        return self.hash_of(self.lane(sub, record))

    def hash_of(self, lane: Lane) -> bytes:
        """The 16 bytes that stand for a lane."""
        topic, partition, key, _ = lane
        if key == ALL_NULLS:
            key = b"\x00null".ljust(65, b"\x00")
        name = topic.encode()
        return lane_hash(b"%d:%b%d:%b" % (len(name), name, partition, key))

    def lost(
        self, partitions: Iterable[TopicPartition], unclear: Collection[tuple[str, Coordinates]]
    ) -> None:
        """Partitions are lost; the member knows of all that has settled but what is ``unclear``."""
        for partition in partitions:
            settled = {
                sub: {
                    offset
                    for offset in self.covered[sub, partition] | self.settled[sub, partition]
                    if (sub, (partition, offset)) not in unclear
                }
                for sub in self.subs
            }
            self.left[partition] = self.last_entry[partition], settled

    def gone(
        self, partitions: Iterable[TopicPartition], clean: Collection[TopicPartition] = ()
    ) -> None:
        """Partitions were given up; the ``clean`` drained, and their commit accepted whole."""
        partitions = list(partitions)
        self._diverted_elsewhere(partitions)
        for partition in partitions:
            self.owned.discard(partition)
            self.closing.discard(partition)
            for sub, lanes in self.open.items():
                if partition in clean:
                    kept = self.covered[sub, partition] | self.settled[sub, partition]
                    self.owed[sub, partition] = kept
                for key in [key for key in lanes if key[0] == partition]:
                    del lanes[key]
                self.blocked = {b for b in self.blocked if b[0] != sub or b[1][0] != partition}
                for each in [a for a in self.attempts if a[0] == sub and a[1][0] == partition]:
                    del self.attempts[each]
                self.copied = {c for c in self.copied if c[0] != sub or c[1][0] != partition}
                self.diverted.pop((sub, partition), None)

    def _diverted_elsewhere(self, gone: Collection[TopicPartition]) -> None:
        """What has failed for good in a lane that these had diverted may run once more.

        Unless a letter of it has diverted the lane in its own partition too.
        """
        for sub, at in list(self.dead_lettering):
            hash_ = self.failed_hash.get((sub, at))
            where = {p for (of, p), those in self.diverted.items() if of == sub and hash_ in those}
            if where and where <= set(gone) and at[0] not in gone:
                self.dead_lettering.discard((sub, at))
                self.once_more.add((sub, at))

    def remade(self, partition: TopicPartition, log: Sequence[int]) -> None:
        """The partition's topic was made anew, with this log: nothing of it is settled."""
        self.gone([partition])
        self.forgotten_dead_letters([partition])
        self.log[partition] = list(log)
        self.left.pop(partition, None)
        self.remade_at[partition] = self.epochs[partition] + 1
        for sub, done in self.done.items():
            self.owed.pop((sub, partition), None)
            self.done[sub] = {at for at in done if at[0] != partition}

    # --- records ---

    def delivered(self, records: Sequence[FakeRecord]) -> None:
        """A chunk was given to the member."""
        for sub, lanes in self.open.items():
            for record in records:
                partition, offset = coordinates_of(record)
                if offset not in self.covered[sub, partition]:
                    lane = self.lane(sub, record)
                    lanes.setdefault((partition, lane), []).append(offset)

    def current(self, record: FakeRecord) -> bool:
        """Whether the record belongs to the present epoch of an owned partition."""
        partition = partition_of(record)
        return partition in self.owned and record.epoch == self.epochs[partition]

    def started(self, sub: str, record: FakeRecord, *, asked: bool = False) -> None:
        """A handler was called, at a worker that was ``asked`` for it back and has not answered.

        That one may start it, and is waited for as for what runs; also after its partition has gone
        late, when it settles nothing. But no lane ever runs twice at once.
        """
        settings = self.subs[sub]
        partition, offset = at = coordinates_of(record)
        lane = self.lane(sub, record)
        if not asked:
            assert not self.stopped, f"{record} started after the stop"
            assert partition not in self.closing, f"{record} started although being revoked"
            assert self.current(record), f"{record} of epoch {record.epoch} started when forgotten"
        before = self.running[sub].get(lane)
        # A keyless record that outlived its epoch may meet itself: nothing waits for it.
        if before is not None and lane[3] < 0:
            raise AssertionError(f"{record} started while {before} of its lane runs")
        if not self.current(record):
            self.running[sub][lane] = record
            return
        assert offset not in self.covered[sub, partition], f"{record} ran although settled"
        ahead = self.open[sub].get((partition, lane), [])
        assert ahead and ahead[0] == offset, f"{record} started, ahead of it: {ahead[:5]}"
        tries = self.attempts.get((sub, at), 0)
        if tries >= settings.retry.attempts:
            assert (sub, at) in self.once_more, f"{record} started for attempt {tries + 1}"
            self.once_more.discard((sub, at))
        assert (sub, at) not in self.dead_lettering, f"{record} started while dead-lettered"
        assert (sub, at) not in self.blocked, f"{record} started although blocked"
        if lane[3] < 0 and self.diverted[sub, partition]:
            hash_ = self.lane_hash(sub, record)
            assert hash_ not in self.diverted[sub, partition], f"{record} started although diverted"
        self.running[sub][lane] = record

    def ended(self, sub: str, record: FakeRecord, verdict: Ending) -> None:
        """A handler returned."""
        lane = self.lane(sub, record)
        if self.running[sub].get(lane) is record:
            del self.running[sub][lane]
        if not isinstance(verdict, Failure):
            assert verdict is None or isinstance(verdict, Drop)
            self._settled(sub, record)
        elif self.current(record):
            self._failed(sub, record, verdict)

    def _failed(self, sub: str, record: FakeRecord, verdict: Failure) -> None:
        settings = self.subs[sub]
        at = coordinates_of(record)
        if verdict.disposition is Disposition.PUT_OFF:
            return
        if settings.on_exhausted == "divert":
            self.failed_hash[sub, at] = self.lane_hash(sub, record)
        tries = self.attempts[sub, at] = self.attempts.get((sub, at), 0) + 1
        asked = verdict.disposition is Disposition.DEAD_LETTER
        if not asked and tries < settings.retry.attempts:
            return
        on_exhausted = settings.on_exhausted
        copied = (sub, at) in self.copied
        if (asked and settings.dlq) or (
            not asked
            and (
                on_exhausted in ("dead_letter", "divert")
                or (on_exhausted == "block_and_dlq" and not copied)
            )
        ):
            self.dead_lettering.add((sub, at))
            if not asked and on_exhausted == "block_and_dlq":
                self.copying.add((sub, at))
        elif asked or on_exhausted in ("block", "block_and_dlq"):
            self.blocked.add((sub, at))
        else:
            self._settled(sub, record)

    def published(self, sub: str, record: FakeRecord, last: Failure) -> None:
        """A letter goes out: with the first one its lane is diverted, where that is the policy.

        A letter of a record that has not run is one of a lane that is, in whichever partition.
        """
        asked = last.disposition is Disposition.DEAD_LETTER
        if asked or self.subs[sub].on_exhausted != "divert" or self.lane(sub, record)[3] >= 0:
            return
        hash_ = self.lane_hash(sub, record)
        if last.disposition is Disposition.DIVERT:
            every = [known for (of, _), known in self.diverted.items() if of == sub]
            assert any(hash_ in known for known in every), f"{record} has a letter, and never ran"
        self.diverted[sub, partition_of(record)].add(hash_)

    def archived(self, sub: str, record: FakeRecord) -> None:
        """The broker acknowledged the dead letter, or the copy of a record that is to block."""
        at = coordinates_of(record)
        self.dead_lettering.discard((sub, at))
        if (sub, at) in self.copying:
            self.copying.discard((sub, at))
            self.copied.add((sub, at))
            self.blocked.add((sub, at))
            return
        self._settled(sub, record)

    def _settled(self, sub: str, record: FakeRecord) -> None:
        at = coordinates_of(record)
        if record.epoch < self.remade_at[at[0]]:
            return  # of a log that is no more
        self.done[sub].add(at)
        if self.current(record):
            lane = self.lane(sub, record)
            ahead = self.open[sub][at[0], lane]
            assert ahead[0] == at[1], f"{record} settled, ahead of it: {ahead[:5]}"
            ahead.pop(0)
            self.settled[sub, at[0]].add(at[1])

    def forgotten_dead_letters(self, partitions: Iterable[TopicPartition]) -> None:
        """Dead letters of these partitions settle nothing any more: their records run again."""
        gone = set(partitions)
        self.dead_lettering = {d for d in self.dead_lettering if d[1][0] not in gone}
        self.copying = {d for d in self.copying if d[1][0] not in gone}

    # --- commits ---

    def committing(self, partition: TopicPartition, entry: CommitEntry, received: int) -> None:
        """A commit was sent: it covers nothing unsettled, and the sequence never falls."""
        assert partition in self.owned, f"{partition} committed without being owned"
        assert entry.position <= received, f"{partition}: {entry.position} was never received"
        last = self.last_sent[partition]
        assert entry.position >= last, f"{partition}: sent {entry.position} after {last}"
        self.last_sent[partition] = entry.position
        self.last_entry[partition] = entry
        self._noted(partition, entry)
        for sub, offsets in covered_by(entry, self.subs, self.log[partition]).items():
            for offset in offsets:
                assert (partition, offset) in self.done[sub], (
                    f"{partition}: the commit at {entry.position} covers {offset}, "
                    f"which {sub} has not settled"
                )

    def _noted(self, partition: TopicPartition, entry: CommitEntry) -> None:
        """What a commit says besides is true: of records that are not settled, and of lanes."""
        if partition in self.bare:
            return  # sets come first where brokers take less
        notes = read_notes(entry.metadata, entry.position)
        for sub in self.subs:
            lanes, tried = notes.get(sub, NOTHING)[:2]
            known = self.diverted[sub, partition]
            assert known <= lanes, f"{partition}: {sub} does not say that it diverts all of {known}"
            every = [each for (of, _), each in self.diverted.items() if of == sub]
            assert lanes <= set().union(*every), f"{partition}: {sub} diverts what nobody knows"
            for offset, (times, copied) in tried.items():
                at = (sub, (partition, offset))
                assert times <= self.attempts.get(at, 0), f"{at}: {times} attempts are too many"
                assert copied == (at in self.copied), f"{at}: archived is {copied}"

    def settled_elsewhere(self, partition: TopicPartition, offsets: Iterable[int]) -> None:
        """Another member has settled these and committed it."""
        for sub, done in self.done.items():
            done.update((partition, offset) for offset in offsets)
            self.owed.pop((sub, partition), None)

    def complete(self) -> bool:
        """Whether every subscription has settled every record of the log."""
        return all(
            (partition, offset) in done
            for done in self.done.values()
            for partition, log in self.log.items()
            for offset in log
        )
