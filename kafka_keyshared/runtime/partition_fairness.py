"""Fair shares of the window for partitions that compete for it.

The client delivers fetched records from one queue. In it, thousands of records of one partition may
precede the first record of the next. With fast handlers that passes in a moment. When the window
frees up slowly, the other partitions would wait for minutes. A partition with unread records is
then starved. During that time, partitions that hold more than an even share of the window are held
back.

Holding back pauses the partition, which discards its prefetched records. Nothing is therefore held
back for a short imbalance, and no partition twice within seconds. All are resumed as soon as the
window runs low, even if a starved partition has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.partitions.offset_ceilings import LOOK_SECONDS_PER_RECORD
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import Record, TopicPartition

LOOK_EVERY = 0.25
LOOK_FIRST = 0.05
"""Seconds between checks until it is known whether the window is slow."""

FIRST = 4
"""One part in this many of a window may be filled before that is known."""

ENOUGH = 8
"""One part in this many of a window must be filled before a partition is held back."""

LOW = 16
"""All partitions are resumed when less than one part in this many of the windows is filled."""

AHEAD = 2
"""Records per worker below which a window also counts as low."""

TURNS = 16
"""In a slow window a fetch returns at most one part in this many of the window."""

WALK_SHARE = 20
"""Measuring shares walks over every held record; it may take one part in this many of the time."""

SLOW = 2.0
"""Seconds that a slow window takes at least to turn over. Starvation counts at once then."""

PATIENCE = 2.0
"""Seconds that a partition must be starved in a quick window before others are held back."""

REST = 5.0
"""Seconds until a partition may be held back again, since each time it is fetched anew."""

HELD_MOST = 10.0
"""Most seconds of holding back: the partition's records may be waiting for something slow."""

TRIES = 3
PASSED_OVER = 10.0
"""Seconds for which a partition gets no room after :data:`TRIES` attempts without a record."""


@dataclass(slots=True)
class FetchShare:
    """The received end of a partition, since when, and how often others waited in vain."""

    end: int | None
    since: float
    waited_for: int = 0
    passed_over: float = float("-inf")

    def in_vain(self, now: float) -> None:
        """Note that others were held back and this partition delivered nothing."""
        self.waited_for += 1
        if self.waited_for >= TRIES:
            self.passed_over = now


class Shares:
    """Partitions that are held back for the sake of others. Times are monotonic, in seconds.

    No partition waits for one that is ``unreadable``, whose fetches the brokers refuse.
    """

    def __init__(
        self,
        client: Client,
        holds: Holds,
        subs: Iterable[Subscription],
        *,
        unreadable: Set[TopicPartition] = frozenset(),
    ) -> None:
        self._unreadable = unreadable
        self._client = client
        self._holds = holds
        self._subs = list(subs)
        self._held_back = holds.held_back(Reason.SHARE)
        # The most records of one fetch. None: as many as there is room for.
        self.most: int | None = None
        self._paused_at: dict[TopicPartition, float] = {}
        self._seen: dict[TopicPartition, FetchShare] = {}
        self._without: set[TopicPartition] = set()
        self._slow = False
        # Whether ``_slow`` has been judged yet.
        self._known = False
        self._look_at = self._sample_at = self._rested_at = float("-inf")
        self._sampled_at = 0.0
        self._fetched = self._settled = 0

    def look(
        self, states: Mapping[TopicPartition, PartitionState], fetched: int, now: float
    ) -> None:
        """Check, if it is time, and update which partitions are held back.

        ``fetched`` is the total number of records of all fetches.
        """
        soon = self.most is not None and fetched - self._fetched >= self.most
        if now < self._look_at and not (soon and now >= self._rested_at):
            return
        self._note(states, fetched, now)
        if len(states) < 2 or not self._filled(LOW):
            # The partitions still waited for have had their chance.
            if self._held_back:
                for partition in self._without:
                    self._seen[partition].in_vain(now)
            self._holds.only(Reason.SHARE, frozenset())
        elif self._filled(ENOUGH):
            self._holds.only(Reason.SHARE, self._share_out(states, now))

    def wait_and_see(self, states: Mapping[TopicPartition, PartitionState]) -> bool:
        """Return whether to delay fetching: one partition could fill a slow window alone."""
        return not self._known and len(states) > 1 and self._filled(FIRST)

    def _note(
        self, states: Mapping[TopicPartition, PartitionState], fetched: int, now: float
    ) -> None:
        """Note the received end of each partition and how long a window takes to turn over."""
        self._fetched = fetched
        if now >= self._sample_at:
            self._sample(fetched, now)
        self._look_at = now + (LOOK_EVERY if self._known else LOOK_FIRST)
        for partition in [*self._seen]:
            if partition not in states:
                del self._seen[partition]
                self._paused_at.pop(partition, None)
        for partition, state in states.items():
            seen = self._seen.get(partition)
            if seen is None or seen.end != state.received_end:
                self._seen[partition] = FetchShare(state.received_end, now)
        self._without.intersection_update(states)
        self.most = None
        if self._slow and len(states) > 1:
            part = min(1 / TURNS, 1 / (2 * len(states)))
            self.most = max(1, int(part * min(sub.window.records_max for sub in self._subs)))

    def _sample(self, fetched: int, now: float) -> None:
        """Judge from recent throughput how long a window takes to turn over."""
        settled = fetched - max(sub.window.records for sub in self._subs)
        done = (settled - self._settled) * SLOW / max(1e-9, now - self._sampled_at)
        if all(done >= sub.window.records_max for sub in self._subs):
            self._slow, self._known = False, True
        elif self._filled(ENOUGH):
            self._slow = any(done < sub.window.records for sub in self._subs)
            self._known = True
        self._settled, self._sampled_at = settled, now
        self._sample_at = now + (LOOK_EVERY if self._known else LOOK_FIRST)

    def _filled(self, part: int) -> bool:
        """Return whether a ``part``-th of a window is filled and its workers have records.

        A few large records may fill it.
        """
        return any(
            (
                sub.window.records * part >= sub.window.records_max
                or sub.window.bytes * part >= sub.window.bytes_max
            )
            and sub.window.records >= AHEAD * len(sub.workers)
            for sub in self._subs
        )

    def _share_out(
        self, states: Mapping[TopicPartition, PartitionState], now: float
    ) -> set[TopicPartition]:
        """Return the partitions to hold back from now on."""
        held_back = set(self._held_back)
        patience = 0.0 if self._slow else PATIENCE
        behind = self._behind(states)
        waiting = {
            partition
            for partition in behind
            if now - (seen := self._seen[partition]).since >= patience
            and now - seen.passed_over >= PASSED_OVER
        }
        # A single partition with unread records competes with none.
        if not (waiting and len(behind) > 1) and not held_back:
            self._without.clear()
            return held_back
        held = self._held()
        count = sum(sub.window.records for sub in self._subs)
        self._rested_at = now + WALK_SHARE * LOOK_SECONDS_PER_RECORD * count
        self._look_at = max(self._look_at, self._rested_at)
        share = 1 / max(1, len(behind | held.keys() & states.keys()))
        step = (
            0.0
            if self.most is None
            else self.most / max(each.window.records_max for each in self._subs)
        )
        self._without = {
            partition
            for partition in waiting
            if held.get(partition, 0.0) * 4 < share
            and set(self._holds.reasons(partition)) <= {Reason.WINDOW}
        }
        for partition in [*held_back]:
            waited = now - self._paused_at[partition]
            little = held.get(partition, 0.0) * 2 < share and not self._without
            if little or waited >= HELD_MOST:
                held_back.discard(partition)
                if waited >= HELD_MOST:
                    self._paused_at[partition] = now
        if not behind - held_back:
            held_back.clear()
        elif self._without:
            for partition, part in held.items():
                rested = now - self._paused_at.get(partition, float("-inf")) >= REST
                if part + step > share and rested and partition in states:
                    held_back.add(partition)
                    self._paused_at[partition] = now
        return held_back

    def _behind(self, states: Mapping[TopicPartition, PartitionState]) -> set[TopicPartition]:
        """Return the partitions that have unread records, as far as is known."""
        found = set()
        at_end = self._client.starts_at_end
        for partition, end in self._client.log_ends().items():
            if (state := states.get(partition)) and partition not in self._unreadable:
                received = state.received_end
                if end > received if received is not None else not at_end and end > 0:
                    found.add(partition)
        return found

    def _held(self) -> dict[TopicPartition, float]:
        """Return each partition's share of a window; with several windows, the largest."""
        found: dict[TopicPartition, float] = {}
        for sub in self._subs:
            window = sub.window
            counts = sub.unsettled.by_partition()
            parts = {partition: count / window.records_max for partition, count in counts.items()}
            if window.bytes * 4 >= window.bytes_max:
                for partition, records in _by_partition(sub).items():
                    part = window.weigh(records) / window.bytes_max
                    parts[partition] = max(part, parts[partition])
            for partition, part in parts.items():
                found[partition] = max(part, found.get(partition, 0.0))
        return found


def _by_partition(sub: Subscription) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = {}
    for partition, record in sub.unsettled.records({}):
        found.setdefault(partition, []).append(record)
    return found
