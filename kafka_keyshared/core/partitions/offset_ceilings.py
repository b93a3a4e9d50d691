"""Ceilings: how far a partition may be leased.

Ceilings make each settled set fit in the commit metadata. A set that does not fit would be cut. The
offsets that were cut off would run again, after a clean stop too. So the bound applies before
records are leased, not after they have settled. Below a partition's *ceiling* records may settle in
any pattern, and the set still fits. Records received beyond the ceiling are parked until the
position or settled records have moved it up.

A ceiling is computed in one of two ways. As a bitmap, the set needs a bit for each offset from the
position to its end. The pattern does not matter (some 17,000 offsets in 2,800 characters). That is
enough as long as no record lags far behind, and needs no look at single records. Arrivals are
marked chunk by chunk, and each worker starts its records in that order. The oldest record that each
worker holds shows up to which mark all have settled. When one record lags, :func:`lease_end` counts
the size of the set as runs, and how many more there could be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.offsets.positions import PartitionState, Unsettled, collect
from kafka_keyshared.core.offsets.settled_set_codec import bitmap_span, runs_size, settled_runs
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.core.records.pristine import column
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import Record, TopicPartition

LOOK_SHARE = 20
"""A walk over all held records may take one part in this many of the owner's time."""

LOOK_SHARE_IDLE = 2
"""The same share while the owner has nothing else to do."""

LOOK_SECONDS = 1e-4
LOOK_SECONDS_PER_RECORD = 6e-7
"""Approximate seconds for such a walk, measured on one core of a small server."""


class Ceilings:
    """The ceilings of all partitions, for every subscription, and when to raise them.

    It reads the dispatcher's ``states`` and its at-least-once ``subs``. Other subscriptions have no
    settled set. ``tracks`` says whether there are any. ``text_limit`` bounds the settled
    sets of all subscriptions together; each has an even share. All times are monotonic seconds.
    """

    def __init__(
        self,
        subs: Mapping[str, Subscription],
        states: Mapping[TopicPartition, PartitionState],
        text_limit: TextLimit | None = None,
    ) -> None:
        self.subs = {name: sub for name, sub in subs.items() if sub.settings.at_least_once}
        self.tracks = bool(self.subs)
        self._parkings = [sub.parking for sub in self.subs.values()]
        self._states = states
        self.text_limit = TextLimit(self.subs) if text_limit is None else text_limit
        self._rooms = self.text_limit.rooms()
        # The received ends after each chunk since the last look; None while none can be trusted.
        self._marks: list[Mapping[TopicPartition, int]] | None = None
        # Whether any record has ended since the last look; if not, another look would show nothing.
        self.stirred = True
        self._look_at = self._look_soon = float("-inf")

    def of(self, partition: TopicPartition) -> dict[str, int]:
        """Return the ceilings of a partition, by subscription."""
        return {
            name: ceiling
            for name, sub in self.subs.items()
            if (ceiling := sub.parking.ceilings.get(partition)) is not None
        }

    # --- partitions come and go ---

    def begin(self, partition: TopicPartition, start: int | None) -> None:
        """Set the first ceilings of a partition, if its start position is known."""
        if start is not None:
            for sub in self.subs.values():
                if partition not in sub.parking.ceilings:
                    self._raise(sub, partition, start, start, ())
        self.forget_marks()

    def _begin_with(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> None:
        """Set the first ceilings of partitions that start at their first received records."""
        new = [
            partition
            for partition in ends
            if not all(partition in sub.parking.ceilings for sub in self.subs.values())
        ]
        if not new:
            return
        # Searched in C: with many partitions, nearly every chunk of the start has a new one.
        numbers = column("partition", records)
        for partition in new:
            first = _first_of(partition, records, numbers)
            self.begin(partition, ends[partition] if first is None else first.offset())

    def lower(self) -> None:
        """Apply a lower text limit: records that arrive from now on wait until the set fits.

        Records received below a ceiling may be leased already, so no ceiling falls below the
        received end.
        """
        self._rooms = self.text_limit.rooms()
        for sub in self.subs.values():
            ceilings = sub.parking.ceilings
            for partition, ceiling in ceilings.items():
                end = self._states[partition].received_end
                if end is not None and end < ceiling:
                    ceilings[partition] = end
        self.stirred = True

    def forget_marks(self) -> None:
        """Discard all marks, because partitions have come or gone."""
        self._marks = None

    # --- once for each chunk ---

    def admit(
        self, ends: Mapping[TopicPartition, int], records: Sequence[Record], now: float
    ) -> bool:
        """Return whether a chunk may be leased as a whole; otherwise part of it is parked.

        ``ends`` are the received ends after the chunk. The call precedes their noting as received,
        so that a look at held records excludes the chunk. Ceilings that the chunk passes are raised
        if that is possible now.
        """
        if not self.passed(ends):
            return True
        self._begin_with(records, ends)
        self.raise_all(now, ends)
        return not self.passed(ends)

    def passed(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether records may have to be parked: a ceiling is passed, or a gate is set."""
        if self.parked():
            return True
        for sub in self.subs.values():
            if sub.parking.gates:
                return True
            ceilings = sub.parking.ceilings
            for partition, end in ends.items():
                if end > ceilings.get(partition, -1):
                    return True
        return False

    def arrived(self, partitions: Collection[TopicPartition]) -> None:
        """Mark the received ends of all partitions after a chunk, which was of ``partitions``.

        The first parked record of a partition requests a look. Behind a gap in the log (compaction,
        aborted transactions) the partition may hold no record whose end would request one.
        """
        for parking in self._parkings:
            self.stirred = self.stirred or parking.begun
            parking.begun = False
        marks, states = self._marks, self._states
        if marks is None:
            return
        # The others, of which there may be many, have not moved since the last mark.
        moved = partitions if marks else states
        ends = {each: end for each in moved if (end := states[each].received_end) is not None}
        marks.append({**marks[-1], **ends} if marks else ends)

    def raise_all(self, now: float, ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Raise the ceilings by marks, which is cheap, or else by a look, but not too often.

        ``ends`` are the received ends of a chunk that is not taken in yet; the ceilings should
        reach them. Records below the new ceilings are no longer parked.
        """
        self._raise_by_marks()
        if self.stirred and now >= self._next() and self.passed(ends or {}):
            self.look({}, now)
        for sub in self.subs.values():
            if sub.parking:
                sub.unpark()

    def next_look(self) -> float | None:
        """Return when to look again for parked records; None while nothing has changed."""
        return self._next() if self.stirred and self.parked() else None

    def _next(self) -> float:
        """Return when to look again: sooner where all records wait for it and for nothing else.

        Closed lanes take their time, and each retry would raise the ceilings by little.
        """
        for sub in self.subs.values():
            if sub.leased or sub.closed.lanes or sub.unsettled.startable():
                return self._look_at
        return self._look_soon

    def parked(self) -> bool:
        """Return whether any record waits for its ceiling to be raised."""
        for parking in self._parkings:  # noqa: SIM110 - each turn asks, and a generator is dearer
            if parking.parked:
                return True
        return False

    def _raise_by_marks(self) -> None:
        """Raise the ceilings to where nothing older than a mark is held, if that is known."""
        settled = self._settled_mark()
        if settled is not None:
            for partition, position in settled.items():
                if partition in self._states:
                    for sub in self.subs.values():
                        self._raise_span(sub, partition, position)

    def _settled_mark(self) -> Mapping[TopicPartition, int] | None:
        """Return the last mark before which every record has settled, or None."""
        marks = self._marks
        if not marks:
            return None
        first = len(marks)
        for sub in self.subs.values():
            if not sub.unsettled.in_arrival_order():
                return None
            for partition, offset in sub.unsettled.oldest():
                first = min(first, _mark_of(marks, partition, offset))
        if not first:
            return None
        settled = marks[first - 1]
        del marks[:first]
        return settled

    # --- a look at all held records ---

    def look(self, progress: Progress, now: float) -> dict[str, Unsettled]:
        """Walk over all held records, raise the ceilings by them, and return them.

        ``progress`` is passed to :meth:`Subscription.unsettled`; without it more records count as
        held than are. The windows get their exact sums at the same time.
        """
        found: dict[str, Unsettled] = {}
        for name, sub in self.subs.items():
            found[name] = held = collect(sub.unsettled.records(progress))
            sub.window.correct(each for kept in held.values() for each in kept.values())
            sub.routing.mixed = False
        self._marks = []
        for partition, state in self._states.items():
            end = state.received_end
            if end is None:
                continue
            held_of = {name: every.get(partition, {}) for name, every in found.items()}
            position = min((min(each) for each in held_of.values() if each), default=end)
            for name, sub in self.subs.items():
                self._raise(sub, partition, position, end, held_of[name])
        count = sum(len(each) for held in found.values() for each in held.values())
        self.stirred = False
        cost = LOOK_SECONDS + LOOK_SECONDS_PER_RECORD * count
        self._look_at = now + LOOK_SHARE * cost
        self._look_soon = now + LOOK_SHARE_IDLE * cost
        return found

    def _raise(
        self,
        sub: Subscription,
        partition: TopicPartition,
        position: int,
        end: int,
        held: Collection[int],
    ) -> None:
        ceilings = sub.parking.ceilings
        says_all = self._raise_span(sub, partition, position)
        if says_all and end < ceilings[partition] and partition not in sub.parking.parked:
            return  # not needed, so not counted
        # Parked records count as not received, because they are not leased.
        end = max(position, min(end, ceilings.get(partition, end)))
        below = sorted(offset for offset in held if offset < end)
        restored = self._states[partition].restored.get(sub.name, ())
        reach = lease_end(position, end, below, restored, self._rooms[sub.name])
        ceilings[partition] = max(reach, ceilings.get(partition, reach))

    def _raise_span(self, sub: Subscription, partition: TopicPartition, position: int) -> bool:
        """Raise a ceiling by a bitmap's span; return whether a bitmap can hold the whole set."""
        reach = position + bitmap_span(self._rooms[sub.name])
        restored = self._states[partition].restored.get(sub.name)
        if restored and restored[-1][1] > reach:
            return False
        ceilings = sub.parking.ceilings
        ceilings[partition] = max(reach, ceilings.get(partition, reach))
        return True


def _first_of(
    partition: TopicPartition, records: Sequence[Record], numbers: Sequence[int]
) -> Record | None:
    """Return the first record of a partition; ``numbers`` are the records' partition numbers.

    It is the lowest, because a partition's records come in the order of their offsets.
    """
    at = -1
    while True:
        try:
            at = numbers.index(partition.partition, at + 1)
        except ValueError:
            return None
        record = records[at]
        if record.topic() == partition.topic and record.error() is None:
            return record


def _mark_of(
    marks: Sequence[Mapping[TopicPartition, int]], partition: TopicPartition, offset: int
) -> int:
    """Return the index of the first mark that includes the record."""
    return bisect_right(marks, offset, key=lambda ends: ends.get(partition, -1))


def lease_end(
    position: int,
    end: int,
    unsettled: Sequence[int],
    restored: Sequence[tuple[int, int]],
    room: int,
) -> int:
    """Return the offset up to which records may settle in any pattern within ``room`` bytes.

    ``unsettled`` are the offsets held in [position, end), ascending. All others there are settled,
    and so are the ``restored`` runs beyond ``end``. The record at the position may always be
    leased: when it settles, the set becomes smaller.

    The current size of the set is known exactly. Each block of ``m`` unsettled offsets between two
    runs can add at most :func:`_growth`. Settling splits it into numbers no larger than the block,
    two more for each split. It also joins the ends of the block with their neighbours.
    """
    runs = settled_runs(position, end, unsettled, restored)
    # The base grows with the position, and the position gets no further than this.
    top = max(end, restored[-1][1] if restored else end) + 8 * room
    spare = room - runs_size(position, runs, top)
    before = position
    for start, after in runs:
        block = start - before
        if (cost := _growth(block)) > spare:
            return max(position + 1, before + _part(spare, block))
        spare -= cost
        before = after
    return max(position + 1, before + _part(spare, room))


def _growth(block: int) -> int:
    """Return how many bytes a set can grow by when a block of that many offsets settles."""
    return max(0, block - 1) + _longer(block)


def _longer(block: int) -> int:
    """Return the most extra bytes that the variable-length numbers of a block can need."""
    longer = 0
    while (block := block >> 7) > 0:
        longer += block
    return longer


def _part(spare: int, most: int) -> int:
    """Return how many of a block's first offsets may settle with ``spare`` bytes left."""
    # The rest of the block stays a gap of its own, which may need as much as the block did.
    part = min(spare - 1 - _longer(most), most)
    return max(0, part - _longer(max(0, part)))
