"""Counters and timers behind the metrics, updated per batch.

The dispatcher itself reads none of them. A number that would cost something per record is sampled,
and its description says so. A slice's time is spread evenly over its records. Waiting is measured
at the first record of a slice, age at its last. Both are sampled at most 200 times a second.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from kafka_keyshared.model import Coordinates, Record, Retry, TopicPartition

if TYPE_CHECKING:
    from kafka_keyshared.core.contract.commands import Commit
    from kafka_keyshared.core.contract.events import CommitResult
    from kafka_keyshared.core.contract.outcomes import Failure
    from kafka_keyshared.core.contract.slices import SliceState

# Bounds of OpenTelemetry's messaging conventions, and finer ones below: handlers may be fast.
DURATIONS = (
    *(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)
AGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)
SIZES = (0.0, 64.0, 256.0, 512.0, 1024.0, 2048.0, 3072.0, 4095.0)

ERROR_NAMES_MAX = 50
"""Names of exceptions that become labels; further ones are counted as ``other``."""

OTHER = "other"

KNOWN_ERRORS = (Retry.__qualname__, OTHER)
"""Labels under which a retry may be counted for any handler."""

SAMPLE_EVERY = 0.005
"""Seconds between two slices sampled for waiting and age: a busy instance ends thousands."""

RAN_LONG = 5.0
"""Seconds from which an ended slice is remembered, because a standstill may have been during it."""
RAN_LONG_MOST = 20

MARKS_MAX = 1_024
NO_TIMESTAMP = 0


# Counters use the members of these enums as labels, and a status shows each of them, also at 0. A
# counter that appears with its first event has not grown, as far as Prometheus can see.


class Processed(enum.StrEnum):
    """How a record was settled. Each settled record has one of these."""

    OK = "ok"
    DROPPED = "dropped"
    DEAD_LETTERED = "dead_lettered"
    DIVERTED = "diverted"  # to the dead-letter topic, unrun, because its key is diverted
    SKIPPED = "skipped"  # settled before this assignment
    UNMATCHED = "unmatched"  # no worker was declared to take it


class AttemptResult(enum.StrEnum):
    """How an attempt ended. A record may take several attempts."""

    OK = "ok"
    DROPPED = "dropped"  # the handler returned Drop
    FAILED = "failed"
    TIMED_OUT = "timed_out"  # failed, because the ack timeout ended it


class LetterAnswer(enum.StrEnum):
    """The broker's answer to a dead letter."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


class Rebalance(enum.StrEnum):
    """What happens to partitions in a rebalance."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Histogram:
    """Counts of observations up to each bound, and their sum; the last count has no bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count the value ``times`` times; one below 0 (two clocks differ) counts as 0."""
        self.counts[bisect_left(self.bounds, value)] += times
        if value > 0:
            self.total += value * times


class Arrivals:
    """When records arrived, by partition: one mark per fetch, not one per record."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, list[tuple[int, float]]] = {}

    def note(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Note ``now`` as the arrival of all records below these ends that have no mark yet."""
        for partition, end in ends.items():
            marks = self._marks.get(partition)
            if marks is None:
                self._marks[partition] = [(end, now)]
            elif end > marks[-1][0]:
                marks.append((end, now))
                if len(marks) > MARKS_MAX:
                    # The exact time matters least for records that have waited long. Of two marks
                    # the later one stays, because it covers the offsets of both.
                    half = MARKS_MAX // 2
                    marks[:half] = marks[1:half:2]

    def at(self, partition: TopicPartition, offset: int) -> float | None:
        """Return when the record at this offset arrived, None if it is no longer known."""
        marks = self._marks.get(partition)
        if not marks:
            return None
        index = bisect_right(marks, offset, key=itemgetter(0))
        return marks[index][1] if index < len(marks) else None

    def settled(self, partition: TopicPartition, position: int) -> None:
        """Forget marks below a safe position."""
        marks = self._marks.get(partition)
        if marks:
            del marks[: bisect_right(marks, position, key=itemgetter(0))]
            if not marks:
                del self._marks[partition]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned."""
        for partition in partitions:
            self._marks.pop(partition, None)


Label = TypeVar("Label", bound=str)


class TopicCounts(Generic[Label]):
    """Counts by topic and one more label; ``known`` lists labels that are shown from the start."""

    def __init__(self, known: Iterable[Label]) -> None:
        self._none = dict.fromkeys(map(str, known), 0)
        self.counts: dict[str, dict[str, int]] = {}

    def shown(self, topics: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return a copy in which these topics have every known label, even at 0."""
        return {
            topic: {**self._none, **self.counts.get(topic, {})}
            for topic in dict.fromkeys((*topics, *self.counts))
        }

    def add(self, topic: str, label: Label, times: int = 1) -> None:
        """Add to a count; 0 times leaves no entry."""
        if times:
            labels = self.counts.get(topic)
            if labels is None:
                self.counts[topic] = labels = {}
            labels[label] = labels.get(label, 0) + times


class ErrorCounts(TopicCounts[str]):
    """Counts by topic and exception name, with a bounded number of names."""

    def __init__(self) -> None:
        super().__init__(KNOWN_ERRORS)

    def add(self, topic: str, label: str, times: int = 1) -> None:
        """Count under the name, or as ``other`` if there are many names already."""
        labels = self.counts.get(topic, {})
        if label not in labels and len(labels) >= ERROR_NAMES_MAX:
            label = OTHER
        super().add(topic, label, times)


@dataclass(slots=True)
class OutcomeCounts:
    """Counts of a subscription's settled records and attempts since the start.

    ``processed`` counts records by outcome, ``attempts`` attempts by result. ``undecodable`` counts
    records whose key could not be read, whatever outcome they had. ``topic`` is the only topic, or
    None if there are several: then each record is asked for its topic. ``failed`` counts failed
    attempts. ``stuck`` counts records that became stuck, ``unstuck`` those of them that have ended.
    ``written_off`` counts the records of evicted workers and is part of dropped. ``late_acks``
    counts reports of members on records whose lease had ended. ``stale_results`` counts records
    that ended after their epoch.
    """

    ok: int = 0
    failed: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    retries: int = 0
    skipped: int = 0
    unmatched: int = 0
    stuck: int = 0
    unstuck: int = 0
    written_off: int = 0
    late_acks: int = 0
    stale_results: int = 0
    topic: str | None = None
    processed: TopicCounts[Processed] = field(default_factory=lambda: TopicCounts(Processed))
    attempts: TopicCounts[AttemptResult] = field(default_factory=lambda: TopicCounts(AttemptResult))
    undecodable: Counter[str] = field(default_factory=Counter)
    retried: ErrorCounts = field(default_factory=ErrorCounts)
    dlq_writes: TopicCounts[LetterAnswer] = field(default_factory=lambda: TopicCounts(LetterAnswer))
    process_seconds: Histogram = field(default_factory=lambda: Histogram(DURATIONS))
    wait_seconds: Histogram = field(default_factory=lambda: Histogram(DURATIONS))
    age_seconds: Histogram = field(default_factory=lambda: Histogram(AGES))

    def settled(
        self,
        leased: SliceState,
        indices: Collection[int],
        unsettled: Collection[int],
        dropped: Collection[int],
        *,
        unrun: bool,
    ) -> None:
        """Count leases of a slice, of which some came back unsettled and some were dropped.

        ``unrun`` says that no handler has seen the dropped records.
        """
        ok = len(indices) - len(unsettled) - len(dropped)
        self.ok += ok
        self.dropped += len(dropped)
        if self.topic is not None:
            self._settled(self.topic, ok, len(dropped), unrun=unrun)
            return
        topic_of = leased.slice.came.topic_of
        oks = Counter(map(topic_of, indices))
        oks.subtract(map(topic_of, unsettled))
        gone = Counter(map(topic_of, dropped))
        oks.subtract(gone)
        for topic in oks | gone:
            self._settled(topic, oks[topic], gone[topic], unrun=unrun)

    def _settled(self, topic: str, ok: int, dropped: int, *, unrun: bool) -> None:
        self.processed.add(topic, Processed.OK, ok)
        self.attempts.add(topic, AttemptResult.OK, ok)
        self.processed.add(topic, Processed.DROPPED, dropped)
        if not unrun:
            self.attempts.add(topic, AttemptResult.DROPPED, dropped)

    def failed_attempt(self, topic: str, *, timed_out: bool) -> None:
        """Count an attempt that failed."""
        result = AttemptResult.TIMED_OUT if timed_out else AttemptResult.FAILED
        self.attempts.add(topic, result)

    def retry(self, record: Record, failure: Failure | None) -> None:
        """Count another attempt of a record."""
        self.retries += 1
        if failure is not None:
            self.retried.add(record.topic(), failure.error_type)

    def skip(self, records: Sequence[Record]) -> None:
        """Count records that were settled before this assignment."""
        self.skipped += len(records)
        for topic, times in topics_of(records).items():
            self.processed.add(topic, Processed.SKIPPED, times)


def topics_of(records: Iterable[Record]) -> Counter[str]:
    """Count the records by topic."""
    return Counter(record.topic() for record in records)


class Meters:
    """Counters of the member as a whole. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        # Every topic of which a partition has been assigned.
        self.topics: set[str] = set()
        self.fetched: Counter[str] = Counter()
        self.rebalances: Counter[Rebalance] = Counter()
        self.commits: Counter[CommitResult] = Counter()
        self.revoke_seconds = Histogram(DURATIONS)
        self.commit_seconds = Histogram(DURATIONS)
        self.metadata_bytes = Histogram(SIZES)
        self.paused_seconds = 0.0
        # Slices that ran for long: when they ended, their first record, subscription and worker,
        # and how many records they had.
        self.ran_long: deque[tuple[float, Coordinates, tuple[str, int], int]] = deque(
            maxlen=RAN_LONG_MOST
        )
        # Added to a monotonic time it gives seconds since 1970; updated at each heartbeat.
        self.wall_offset: float | None = None
        self._beat_at: float | None = None
        self._sample_at = float("-inf")
        self._sent_at: dict[Commit, float] = {}
        self._revoking_since: float | None = None

    def beat(self, now: float, wall: float | None) -> float:
        """Note a heartbeat; return the seconds since the last one."""
        seconds = 0.0 if self._beat_at is None else now - self._beat_at
        self._beat_at = now
        if wall is not None:
            self.wall_offset = wall - now
        return seconds

    def took_in(self, records: Sequence[Record], events: int, topic: str | None) -> None:
        """Count a chunk with ``events`` client events; ``topic`` is set if all records have one."""
        if topic is not None:
            self.fetched[topic] += len(records) - events
        elif records:
            self.fetched += topics_of(each for each in records if not each.error())

    def ended(
        self,
        counts: OutcomeCounts,
        leased: SliceState,
        indices: Sequence[int],
        seconds: float,
        now: float,
    ) -> None:
        """Record the times of ended leases of a slice; ``seconds`` is the time of all of them."""
        ran = len(indices) - leased.aside + leased.beside
        if ran <= 0:
            return
        counts.process_seconds.observe(seconds / ran, ran)
        if seconds >= RAN_LONG:
            at, slice_ = leased.slice.came.coordinates_of(indices[0]), leased.slice
            self.ran_long.append((now, at, (slice_.subscription, slice_.worker), ran))
        if now < self._sample_at:
            return
        self._sample_at = now + SAMPLE_EVERY
        arrived = self.arrivals.at(*leased.slice.came.coordinates_of(indices[0]))
        if arrived is not None:
            # In a serial worker the first record started that long ago; in others the last one did.
            since = seconds if len(indices) == len(leased.slice.records) else seconds / ran
            counts.wait_seconds.observe(now - since - arrived)
        kind, at_ms = leased.slice.records[indices[-1]].timestamp()
        if kind != NO_TIMESTAMP and self.wall_offset is not None:
            counts.age_seconds.observe(now + self.wall_offset - at_ms / 1000)

    def sent(self, commits: Iterable[Commit], now: float) -> None:
        """Note commits that were sent."""
        for commit in commits:
            self._sent_at[commit] = now
            for entry in commit.entries.values():
                self.metadata_bytes.observe(len(entry.metadata))

    def answered(self, commit: Commit, result: CommitResult, now: float) -> None:
        """Note the broker's answer to a commit."""
        self.commits[result] += 1
        sent = self._sent_at.pop(commit, None)
        if sent is not None:
            self.commit_seconds.observe(now - sent)

    def unanswered(self, now: float) -> float | None:
        """Return for how many seconds the oldest unanswered commit has been sent, else None."""
        return now - min(self._sent_at.values()) if self._sent_at else None

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions were assigned."""
        self.rebalances[Rebalance.ASSIGNED] += 1
        self.topics.update(each.topic for each in partitions)

    def revoking(self, now: float) -> None:
        """Note that partitions are about to be revoked."""
        self._revoking_since = now

    def gone(self, partitions: Iterable[TopicPartition], now: float, *, lost: bool) -> None:
        """Note that partitions are gone."""
        self.arrivals.forget(partitions)
        self.rebalances[Rebalance.LOST if lost else Rebalance.REVOKED] += 1
        if self._revoking_since is not None:
            self.revoke_seconds.observe(now - self._revoking_since)
            self._revoking_since = None
