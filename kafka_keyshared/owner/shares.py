"""A fair share of the window for each partition, where the window is what they compete for.

The client hands out what it has fetched from one queue, in which thousands of records of one
partition may stand before the first of the next. While handlers are quick that is over in a moment.
Where the window frees up slowly, the others would wait for minutes. So while some partition with
something to read goes without, those that hold more than an even share of the window are held back.

To hold back is to pause, which throws away what the client has fetched of the partition. That is
why nothing is held back for what passes by itself, and none again within seconds; and why all are
let go as soon as the window runs low, whoever may still be waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.ceilings import LOOK_SECONDS_PER_RECORD
from kafka_keyshared.core.holds import Holds, Reason
from kafka_keyshared.core.offsets import PartitionState
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.model import Record, TopicPartition

LOOK_EVERY = 0.25
LOOK_FIRST = 0.05
"""Seconds between looks until it is known whether the window is slow."""

FIRST = 4
"""One part in this many of a window may be filled before that is known."""

ENOUGH = 8
"""One part in this many of a window is filled before anybody is held back; below is no want."""

LOW = 16
"""When less than one part in this many of the windows is filled, nobody is held back any more."""

AHEAD = 2
"""Records per worker, below which a window runs low too."""

TURNS = 16
"""A fetch brings one part in this many of the window at most where the window is slow."""

WALK_SHARE = 20
"""To see who holds how much takes a walk over all that is held: one part in so many of the time."""

SLOW = 2.0
"""Seconds that a window lasts at least which is slow: nobody has to be waited for then."""

PATIENCE = 2.0
"""Seconds for which a partition has to go without where the window is quick."""

REST = 5.0
"""Seconds after which a partition may be held back again, as each time it is fetched anew."""

HELD_MOST = 10.0
"""Seconds: what holds more than its share may be waiting for something that takes long."""

TRIES = 3
PASSED_OVER = 10.0
"""Seconds for which nobody makes room again for a partition that has brought nothing so often."""


@dataclass(slots=True)
class Seen:
    """How far a partition was received, since when, and how often it was waited for in vain."""

    end: int | None
    since: float
    waited_for: int = 0
    passed_over: float = float("-inf")

    def in_vain(self, now: float) -> None:
        """Note that others were held back, and nothing of it came."""
        self.waited_for += 1
        if self.waited_for >= TRIES:
            self.passed_over = now


class Shares:
    """Which partitions are held back for the sake of others. Times are monotonic, in seconds.

    No partition waits for one that is ``unreadable``: the brokers refuse its fetches.
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
        # The most records of one fetch; None: as many as there is room for.
        self.most: int | None = None
        self._paused_at: dict[TopicPartition, float] = {}
        self._seen: dict[TopicPartition, Seen] = {}
        self._without: set[TopicPartition] = set()
        self._slow = False
        # Whether that has been judged yet.
        self._known = False
        self._look_at = self._sample_at = self._rested_at = float("-inf")
        self._sampled_at = 0.0
        self._fetched = self._settled = 0

    def look(
        self, states: Mapping[TopicPartition, PartitionState], fetched: int, now: float
    ) -> None:
        """Look, if it is time to, and hold back who is to be, and nobody else.

        ``fetched`` are the records that all fetches have brought.
        """
        soon = self.most is not None and fetched - self._fetched >= self.most
        if now < self._look_at and not (soon and now >= self._rested_at):
            return
        self._note(states, fetched, now)
        if len(states) < 2 or not self._filled(LOW):
            # Whatever is still waited for has had its chance.
            if self._held_back:
                for partition in self._without:
                    self._seen[partition].in_vain(now)
            self._holds.only(Reason.SHARE, frozenset())
        elif self._filled(ENOUGH):
            self._holds.only(Reason.SHARE, self._share_out(states, now))

    def wait_and_see(self, states: Mapping[TopicPartition, PartitionState]) -> bool:
        """Say whether to fetch no more yet: the first to fill a slow window would have it all."""
        return not self._known and len(states) > 1 and self._filled(FIRST)

    def _note(
        self, states: Mapping[TopicPartition, PartitionState], fetched: int, now: float
    ) -> None:
        """Note how far each partition is, and how long a window lasts just now."""
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
                self._seen[partition] = Seen(state.received_end, now)
        self._without.intersection_update(states)
        self.most = None
        if self._slow and len(states) > 1:
            part = min(1 / TURNS, 1 / (2 * len(states)))
            self.most = max(1, int(part * min(sub.window.records_max for sub in self._subs)))

    def _sample(self, fetched: int, now: float) -> None:
        """Judge how long a window lasts, where what has been done since the last look shows it."""
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
        """Say whether one part in ``part`` of a window is taken, and no worker in want of records.

        Few records may fill it, if they are large.
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
        """Return the partitions that are to be held back from now on."""
        held_back = set(self._held_back)
        patience = 0.0 if self._slow else PATIENCE
        behind = self._behind(states)
        waiting = {
            partition
            for partition in behind
            if now - (seen := self._seen[partition]).since >= patience
            and now - seen.passed_over >= PASSED_OVER
        }
        # Of a single one that has something to read nobody takes anything away.
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
        """Return the partitions of which there is something to read, as far as is known."""
        found = set()
        at_end = self._client.starts_at_end
        for partition, end in self._client.log_ends().items():
            if (state := states.get(partition)) and partition not in self._unreadable:
                received = state.received_end
                if end > received if received is not None else not at_end and end > 0:
                    found.add(partition)
        return found

    def _held(self) -> dict[TopicPartition, float]:
        """Return what part of a window each partition fills; of several windows the most."""
        found: dict[TopicPartition, float] = {}
        for sub in self._subs:
            window = sub.window
            counts = sub.of_each()
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
    for partition, record in sub.unsettled({}):
        found.setdefault(partition, []).append(record)
    return found
