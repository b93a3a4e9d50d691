"""The merged ledgers of a run: the history of records and commits.

The judge's rules work on it. This module does not judge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    DROPPED,
    OK,
    CommitAnswered,
    CommitSent,
    DeadLettered,
    Dropped,
    Ended,
    Event,
    MemoryLedger,
    Outcome,
    Ownership,
    OwnershipChanged,
    Produced,
    Ranges,
    Started,
)

NEVER: Final = 1 << 62
"""Later than any clock value: the settling time of a record that was not settled."""


class TracedAttempt:
    """One call of a handler with one record."""

    __slots__ = ("end", "incarnation", "outcome", "start", "worker")

    def __init__(self, start: int, worker: int, incarnation: str) -> None:
        self.start = start
        self.worker = worker
        self.incarnation = incarnation
        # An attempt without an end ran at least until its incarnation's last event. `build` sets
        # that.
        self.end = NEVER
        self.outcome: Outcome | None = None


class Trail:
    """The complete history of one record."""

    __slots__ = (
        "acknowledged",
        "attempts",
        "done",
        "drops",
        "found",
        "key",
        "offset",
        "partition",
        "produced",
        "settled",
    )

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.key: bytes | None = None
        self.produced = False
        self.attempts: list[TracedAttempt] = []
        self.drops: list[int] | None = None
        # Dead letters: their acknowledgement times, and how many were read back.
        self.acknowledged: list[int] | None = None
        self.found = 0
        # The settling time. The earliest is used to find work that continued too soon, and the
        # latest to find repeated runs. They differ only for a dead letter that was read back and
        # whose acknowledgement was not timed.
        self.settled = NEVER
        self.done = NEVER

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset} (key {self.key!r})"


class TracedCommit:
    """One commit of one partition, as it was sent and answered."""

    __slots__ = ("accepted_at", "incarnation", "position", "sent", "settled")

    def __init__(self, event: CommitSent, incarnation: str) -> None:
        self.incarnation = incarnation
        self.position = event.position
        self.settled: Ranges = event.settled
        self.sent = event.at
        self.accepted_at = NEVER

    def covers(self, offset: int) -> bool:
        """Return whether the commit covers ``offset``, so that its record need not run again."""
        return offset < self.position or any(lo <= offset <= hi for lo, hi in self.settled)


class Trace:
    """All ledgers of a run in one place."""

    def __init__(self) -> None:
        self.trails: dict[TopicPartition, dict[int, Trail]] = {}
        self.commits: dict[TopicPartition, list[TracedCommit]] = {}
        self.ownership: dict[tuple[str, TopicPartition], list[tuple[int, Ownership]]] = {}
        self.read_back: set[str] = set()
        self.incarnations: list[str] = []

    def all_trails(self) -> Iterator[Trail]:
        """Yield every record that was produced, attempted or settled."""
        for of_partition in self.trails.values():
            yield from of_partition.values()

    def lanes(self) -> Iterator[list[Trail]]:
        """Yield the attempted records of each lane, as one list per lane.

        A lane is one key in one topic; a record without a key is a lane of its own.
        """
        by_lane: dict[tuple[str, bytes], list[Trail]] = {}
        for partition, of_partition in self.trails.items():
            topic = partition.topic
            for trail in of_partition.values():
                if not trail.attempts:
                    continue
                if trail.key is None:
                    yield [trail]
                    continue
                lane = by_lane.get((topic, trail.key))
                if lane is None:
                    by_lane[topic, trail.key] = [trail]
                else:
                    lane.append(trail)
        yield from by_lane.values()

    def epoch(self, incarnation: str, partition: TopicPartition, at: int) -> int:
        """Return how often the incarnation had been assigned the partition at time ``at``."""
        changes = self.ownership.get((incarnation, partition))
        if not changes:
            return 0
        return sum(1 for when, change in changes if change == "assigned" and when <= at)

    def owned(self, incarnation: str, partition: TopicPartition, at: int) -> bool:
        """Return whether the incarnation held the partition then; True if it never reported any."""
        changes = self.ownership.get((incarnation, partition))
        if not changes:
            return True
        # Just before or just after, because on a coarse clock a change may have the requested time.
        before = bisect_left(changes, at, key=lambda change: change[0])
        after = bisect_right(changes, at, key=lambda change: change[0])
        last_known = changes[max(0, before - 1) : after]
        return any(change == "assigned" for _, change in last_known)


def build(ledgers: Iterable[MemoryLedger]) -> Trace:
    """Merge the ledgers of one run.

    :raises ValueError: two ledgers of one incarnation, or an end without its start.
    """
    trace = Trace()
    for ledger in ledgers:
        if ledger.incarnation in trace.incarnations:
            raise ValueError(
                f"two ledgers of the incarnation {ledger.incarnation}; give each start of a "
                "process a ledger of its own, and judge each ledger once"
            )
        trace.incarnations.append(ledger.incarnation)
        _Assembly(trace, ledger.incarnation).add(ledger.events)
    for commits in trace.commits.values():
        commits.sort(key=lambda commit: commit.sent)
    for changes in trace.ownership.values():
        changes.sort(key=lambda change: change[0])
    for trail in trace.all_trails():
        _settle(trail, trail.partition.topic in trace.read_back)
    return trace


class _Assembly:
    """Adds the events of one incarnation to a trace."""

    def __init__(self, trace: Trace, incarnation: str) -> None:
        self._trace = trace
        self._incarnation = incarnation
        self._open: dict[int, TracedAttempt] = {}
        self._commits: dict[int, TracedCommit] = {}
        self._trails: dict[tuple[str, int], tuple[TopicPartition, dict[int, Trail]]] = {}

    def add(self, events: list[Event]) -> None:
        late: list[Ended | CommitAnswered] = []
        for event in events:
            if isinstance(event, Started):
                self._start(event)
            elif isinstance(event, Ended):
                if not self._end(event):
                    late.append(event)
            elif isinstance(event, Produced):
                trail = self._trail(event.topic, event.partition, event.offset)
                trail.key = event.key
                trail.produced = True
            else:
                self._rare(event, late)
        # Threads append in any order, so an end may come before its start.
        for event in late:
            found = self._end(event) if isinstance(event, Ended) else self._answer(event)
            if not found:
                raise ValueError(f"incarnation {self._incarnation}: no start of {event}")
        if self._open:
            last = max(getattr(event, "at", None) or 0 for event in events)
            for attempt in self._open.values():
                attempt.end = last

    def _rare(self, event: Event, late: list[Ended | CommitAnswered]) -> None:
        if isinstance(event, CommitSent):
            commit = TracedCommit(event, self._incarnation)
            self._commits[event.commit] = commit
            partition = TopicPartition(event.topic, event.partition)
            self._trace.commits.setdefault(partition, []).append(commit)
        elif isinstance(event, CommitAnswered):
            if not self._answer(event):
                late.append(event)
        elif isinstance(event, OwnershipChanged):
            partition = TopicPartition(event.topic, event.partition)
            changes = self._trace.ownership.setdefault((self._incarnation, partition), [])
            changes.append((event.at, event.change))
        elif isinstance(event, Dropped):
            trail = self._trail(event.topic, event.partition, event.offset)
            trail.drops = [*(trail.drops or ()), event.at]
        elif isinstance(event, DeadLettered):
            trail = self._trail(event.topic, event.partition, event.offset)
            if event.at is None:
                trail.found += 1
                self._trace.read_back.add(event.topic)
            else:
                trail.acknowledged = [*(trail.acknowledged or ()), event.at]
        else:
            raise TypeError(f"the ledger of {self._incarnation} holds a {type(event).__name__}")

    def _start(self, event: Started) -> None:
        attempt = TracedAttempt(event.at, event.worker, self._incarnation)
        self._open[event.attempt] = attempt
        trail = self._trail(event.topic, event.partition, event.offset)
        trail.attempts.append(attempt)
        if not trail.produced:
            trail.key = event.key

    def _end(self, event: Ended) -> bool:
        attempt = self._open.pop(event.attempt, None)
        if attempt is None:
            return False
        attempt.end = event.at
        attempt.outcome = event.outcome
        return True

    def _answer(self, event: CommitAnswered) -> bool:
        commit = self._commits.get(event.commit)
        if commit is None:
            return False
        if event.accepted:
            commit.accepted_at = event.at
        return True

    def _trail(self, topic: str, number: int, offset: int) -> Trail:
        found = self._trails.get((topic, number))
        if found is None:
            partition = TopicPartition(topic, number)
            found = partition, self._trace.trails.setdefault(partition, {})
            self._trails[topic, number] = found
        trail = found[1].get(offset)
        if trail is None:
            trail = found[1][offset] = Trail(found[0], offset)
        return trail


def _settle(trail: Trail, read_back: bool) -> None:
    """Compute the settling time of the record, from all events that settle it."""
    attempts = trail.attempts
    if len(attempts) == 1 and trail.drops is None and trail.acknowledged is None:
        if attempts[0].outcome in (OK, DROPPED):
            trail.settled = trail.done = attempts[0].end
            return
    else:
        attempts.sort(key=lambda attempt: attempt.start)
    times = [a.end for a in attempts if a.outcome in (OK, DROPPED)]
    times += trail.drops or ()
    dead_lettered = trail.found > 0 if read_back else trail.acknowledged is not None
    if dead_lettered and trail.acknowledged:
        times += trail.acknowledged
    trail.settled = trail.done = min(times, default=NEVER)
    if dead_lettered and not trail.acknowledged:
        # Without a time: it followed the last failed attempt of one of the incarnations.
        last_ends = {a.incarnation: a.end for a in attempts}.values()
        trail.settled = min(trail.settled, min(last_ends, default=0))
        trail.done = min(trail.done, max(last_ends, default=0))
