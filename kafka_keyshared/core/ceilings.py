"""How far a partition may be leased, so that its settled set always fits in the commit metadata.

A set that does not fit would be cut, and what was cut off would run again, after a clean stop too.
So the bound is kept before records are leased and not looked at after they have settled: below a
partition's *ceiling* they may settle in whatever pattern, and the set still fits. What is received
beyond the ceiling is parked until the position, or what is settled, has moved it up.

Two ways lead to a ceiling. As a bitmap the set needs a bit for each offset from the position to its
end, whatever has settled (some 17,000 offsets in 2,800 characters); that is enough as long as no
record lags far behind, and costs no look at single records: arrivals are marked chunk by chunk, and
as each worker starts its records in that order, the oldest record that each of them holds says up
to which mark all have settled. Where one record lags, :func:`lease_end` counts what the set takes
as runs, and how many more there could be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

from kafka_keyshared.core.offsets import PartitionState, Unsettled, collect
from kafka_keyshared.core.originals import column
from kafka_keyshared.core.runs import bitmap_span, runs_size, settled_runs
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.text_limit import TextLimit
from kafka_keyshared.model import Record, TopicPartition

LOOK_SHARE = 20
"""Walking over all that is held may take one part in this many of the owner's time."""

LOOK_SHARE_IDLE = 2
"""And one part in this many where nothing else is left to do."""

LOOK_SECONDS = 1e-4
LOOK_SECONDS_PER_RECORD = 6e-7
"""What such a walk takes, roughly; measured on one core of a small server."""


class Ceilings:
    """The ceilings of all partitions, for every subscription, and when they may be raised.

    It looks at the dispatcher's ``states``, and at those of its ``subs`` that are reliable: the
    others have no settled set. ``tracks`` says whether there are any. ``text_limit`` says what the
    settled sets of all subscriptions may take together; each has an even share. All times are
    monotonic seconds.
    """

    def __init__(
        self,
        subs: Mapping[str, Subscription],
        states: Mapping[TopicPartition, PartitionState],
        text_limit: TextLimit | None = None,
    ) -> None:
        self.subs = {name: sub for name, sub in subs.items() if sub.settings.reliable}
        self.tracks = bool(self.subs)
        self._parkings = [sub.parking for sub in self.subs.values()]
        self._states = states
        self.text_limit = TextLimit(self.subs) if text_limit is None else text_limit
        self._rooms = self.text_limit.rooms()
        # The received ends after each chunk since the last look; None while none can be trusted.
        self._marks: list[Mapping[TopicPartition, int]] | None = None
        # Whether anything has ended since the last look: if not, another one would show nothing.
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
        """Set the first ceilings of a partition, if it is known where it starts."""
        if start is not None:
            for sub in self.subs.values():
                if partition not in sub.parking.ceilings:
                    self._raise(sub, partition, start, start, ())
        self.forget_marks()

    def begin_with(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> None:
        """Set the first ceilings of partitions that start where their first records are."""
        new = [
            partition
            for partition in ends
            if not all(partition in sub.parking.ceilings for sub in self.subs.values())
        ]
        if not new:
            return
        # Looked for in C: with many partitions nearly every chunk of the start has a new one.
        numbers = column("partition", records)
        for partition in new:
            first = _first_of(partition, records, numbers)
            self.begin(partition, ends[partition] if first is None else first.offset())

    def lower(self) -> None:
        """Take over a lower limit of the text: what arrives from now on waits until the set fits.

        What was received below a ceiling may be leased already, so no ceiling falls below that.
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
        """Trust no mark any more: partitions have come or gone."""
        self._marks = None

    # --- once for each chunk ---

    def passed(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Say whether anything is received beyond its ceiling."""
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
        """Mark how far all partitions are received after a chunk, which was of these.

        What is parked first of a partition asks for a look: behind a gap in the log (compaction,
        aborted transactions) nothing may be held of it, so that nothing would end and ask.
        """
        for parking in self._parkings:
            self.stirred = self.stirred or parking.begun
            parking.begun = False
        marks, states = self._marks, self._states
        if marks is None:
            return
        # The others are where they were at the mark before, and there may be many.
        moved = partitions if marks else states
        ends = {each: end for each in moved if (end := states[each].received_end) is not None}
        marks.append({**marks[-1], **ends} if marks else ends)

    def raise_all(self, now: float, ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Raise the ceilings as far as can be told cheaply, or else by a look, but not too often.

        ``ends`` are the received ends of a chunk that is not taken in yet, and that they should
        reach. What is below them then is no longer parked.
        """
        self._raise_by_marks()
        if self.stirred and now >= self._next() and self.passed(ends or {}):
            self.look({}, now)
        for sub in self.subs.values():
            if sub.parking:
                sub.unpark()

    def next_look(self) -> float | None:
        """Return when to look again for the sake of what is parked; None while nothing stirs."""
        return self._next() if self.stirred and self.parked() else None

    def _next(self) -> float:
        """Return when to look again: sooner where everybody waits for it and for nothing else.

        What closed lanes wait for takes its time, and each retry would raise them by little.
        """
        for sub in self.subs.values():
            if sub.leased or sub.closed.lanes or sub.startable():
                return self._look_at
        return self._look_soon

    def parked(self) -> bool:
        """Say whether anything waits for its ceiling to be raised."""
        for parking in self._parkings:  # noqa: SIM110 - each turn asks, and a generator is dearer
            if parking.parked:
                return True
        return False

    def _raise_by_marks(self) -> None:
        """Raise the ceilings to where nothing older than a mark is held, if that can be told."""
        settled = self._settled_mark()
        if settled is not None:
            for partition, position in settled.items():
                if partition in self._states:
                    for sub in self.subs.values():
                        self._raise_span(sub, partition, position)

    def _settled_mark(self) -> Mapping[TopicPartition, int] | None:
        """Return the last mark before which everything has settled."""
        marks = self._marks
        if not marks:
            return None
        first = len(marks)
        for sub in self.subs.values():
            if not sub.in_arrival_order():
                return None
            for partition, offset in sub.oldest():
                first = min(first, _mark_of(marks, partition, offset))
        if not first:
            return None
        settled = marks[first - 1]
        del marks[:first]
        return settled

    # --- a look at all that is held ---

    def look(self, progress: Progress, now: float) -> dict[str, Unsettled]:
        """Walk over all that is held; raise the ceilings by it, and return it.

        ``progress`` is what :meth:`Subscription.unsettled` takes; without it more counts as held
        than is. The windows get their exact sums at the same time.
        """
        found: dict[str, Unsettled] = {}
        for name, sub in self.subs.items():
            found[name] = held = collect(sub.unsettled(progress))
            sub.window.correct(each for kept in held.values() for each in kept.values())
            sub.mixed = False
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
        # What is parked counts as not received: it is not leased.
        end = max(position, min(end, ceilings.get(partition, end)))
        below = sorted(offset for offset in held if offset < end)
        restored = self._states[partition].restored.get(sub.name, ())
        reach = lease_end(position, end, below, restored, self._rooms[sub.name])
        ceilings[partition] = max(reach, ceilings.get(partition, reach))

    def _raise_span(self, sub: Subscription, partition: TopicPartition, position: int) -> bool:
        """Raise a ceiling by what a bitmap can say; say whether a bitmap can say all of the set."""
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
    """Return the first record of a partition; ``numbers`` are the partitions of the records.

    It is the lowest: a partition's records come in the order of their offsets.
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
    """Return the index of the first mark that has received the record."""
    return bisect_right(marks, offset, key=lambda ends: ends.get(partition, -1))


def lease_end(
    position: int,
    end: int,
    unsettled: Sequence[int],
    restored: Sequence[tuple[int, int]],
    room: int,
) -> int:
    """Return the offset up to which everything may settle, in any pattern, within ``room`` bytes.

    ``unsettled`` are the offsets held in [position, end), ascending; all others there are settled,
    and so are the ``restored`` runs beyond ``end``. The record at the position may always be
    leased: when it settles, the set becomes smaller.

    What the set takes now is known exactly. Each block of ``m`` unsettled offsets between two runs
    can take no more than :func:`_growth` in addition: settling splits it into numbers no larger
    than the block, two more for each split, and joins its ends with their neighbours.
    """
    runs = settled_runs(position, end, unsettled, restored)
    # The base grows with the position, which gets no further than this.
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
    """Return how many of a block's numbers can need another byte, and another, ..."""
    longer = 0
    while (block := block >> 7) > 0:
        longer += block
    return longer


def _part(spare: int, most: int) -> int:
    """Return how many of a block's first offsets may settle with ``spare`` bytes left."""
    # The rest of the block stays a gap of its own, which may need as much as the block did.
    part = min(spare - 1 - _longer(most), most)
    return max(0, part - _longer(max(0, part)))
