"""Outcome counts of a subscription, and the places where most attempts fail.

A broken dependency makes every attempt fail. Each record then goes its ordinary way: to the
dead-letter topic, into a block, or back into the queue. No single record is unusual. So the share
of failures is watched, of the subscription, of each topic and of each partition.

A failure is counted by its partition. A success costs one addition per slice. It is counted by its
partition, too, for five minutes after a failure. It counts when its slice ends. It counts earlier
if a later record of the slice fails or runs from one heartbeat to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.lanes.closed import TRIED_AGAIN, ClosedLanes
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.records.pristine import RecordOrigins
from kafka_keyshared.core.telemetry.failure_kinds import kind_of
from kafka_keyshared.core.telemetry.failure_tally import (
    FORGET,
    FailureTally,
    LastFailures,
    Outcomes,
    note_lane,
)
from kafka_keyshared.core.telemetry.meters import OutcomeCounts
from kafka_keyshared.failure_status import FailureRate
from kafka_keyshared.model import TopicPartition

PATIENCE = 1.0
"""Seconds by which a topic is judged after its subscription, and a partition after its topic."""

NAMED_FOR = 15.0
"""Seconds after a wider place was named in which no place inside it is named."""


class FailureWatch:
    """The failure rates of one subscription; ``closed`` are its closed lanes.

    ``counts`` knows whether there is only one topic; its rate is then that of the subscription.
    ``rates`` are those that are high, as of the last heartbeat.
    """

    def __init__(self, closed: ClosedLanes, counts: OutcomeCounts) -> None:
        self._closed, self._counts = closed, counts
        self._ok = 0
        # Since the last heartbeat, by partition; empty unless a record failed recently.
        self._new: dict[TopicPartition, Outcomes] = {}
        self._where = RecordOrigins()
        self._beats = 0
        self._whole: FailureTally | None = None
        self._topics: dict[str, FailureTally] = {}
        self._partitions: dict[TopicPartition, FailureTally] = {}
        self._last = LastFailures()
        # When the subscription ("") or a topic was last named, by the kind of rate.
        self._named_at: dict[tuple[str, str], float] = {}
        self.rates: tuple[FailureRate, ...] = ()

    # --- outcomes ---

    def ended(self, leased: SliceState, indices: Sequence[int], unsettled: Collection[int]) -> None:
        """Count the records of a slice that a handler has done.

        ``unsettled`` are the others: :meth:`failed` counts those that failed. Records that were
        written off with their worker are among them and are not counted at all.
        """
        if not (leased.seen_to or self._new):
            self._ok += len(indices) - len(unsettled)
        else:
            self._done(leased, indices, unsettled)

    def done_before(self, leased: SliceState, index: int) -> None:
        """Count the records that a serial worker did before one that failed, or runs for long.

        While each call waits for a dependency the slice may go on for minutes. Successes that
        counted at its end would hide an outage that has begun since. Counting once per heartbeat
        prevents that.
        """
        if leased.seen_at == self._beats:
            return
        before: Sequence[int] = range(leased.seen_to, index)
        if not leased.back.isdisjoint(before):
            before = [each for each in before if each not in leased.back]
        self._done(leased, before, leased.unsettled)
        leased.seen_to, leased.seen_at = index, self._beats

    def _done(self, leased: SliceState, indices: Sequence[int], unsettled: Collection[int]) -> None:
        """Count the settled records that were not counted before."""
        if isinstance(indices, range):
            indices = range(max(indices.start, leased.seen_to), indices.stop)
            unsettled = [each for each in unsettled if each in indices]
        else:
            indices = [each for each in indices if each >= leased.seen_to]
            unsettled = set(indices).intersection(unsettled)
        self._ok += len(indices) - len(unsettled)
        if self._new and indices:
            came = leased.slice.came
            self._where.take(came, indices)
            for each in unsettled:
                self._of(came.partition_of(each)).ok -= 1

    def failed(
        self, partition: TopicPartition, lane: Lane, failure: Failure, *, first: bool
    ) -> None:
        """Count an attempt that failed or was postponed; ``first``: the first one of its record."""
        if failure.disposition is Disposition.GIVEN_BACK:
            return
        new = self._of(partition)
        if failure.disposition is not Disposition.PUT_OFF:
            new.failed += 1
            new.records += first
        elif first:
            new.put_off += 1
        else:
            new.put_off_again += 1
        kind = kind_of(failure)
        note_lane(new.lanes, lane)
        new.kinds[kind] += 1
        self._last.note(kind, failure)

    def gave_up(self, partition: TopicPartition, lane: Lane, failure: Failure | None) -> None:
        """Count a record that has settled without being done, because of a failure."""
        new = self._of(partition)
        new.given_up += 1
        note_lane(new.given_up_lanes, lane)
        if failure is not None:
            kind = kind_of(failure)
            new.given_up_kinds[kind] += 1
            self._last.note(kind, failure)

    def _count_where(self) -> None:
        """Count the successes whose partitions have been noted."""
        for partition, count in self._where.counts():
            self._of(partition).ok += count

    def _of(self, partition: TopicPartition) -> Outcomes:
        new = self._new.get(partition)
        if new is None:
            self._new[partition] = new = Outcomes()
        return new

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop watching partitions that are no longer assigned."""
        self._count_where()
        for each in partitions:
            self._new.pop(each, None)
            self._partitions.pop(each, None)

    # --- at a heartbeat ---

    def beat(self, now: float) -> None:
        """Judge the outcomes since the last heartbeat."""
        self._beats += 1
        self._count_where()
        total, topics = Outcomes(), {topic: Outcomes() for topic in self._topics}
        for partition, new in self._new.items():
            total.add(new)
            topics.setdefault(partition.topic, Outcomes()).add(new)
            self._judge(self._partitions, partition, new, now)
        total.ok, self._ok = self._ok, 0
        if self._whole is None:
            self._whole = self._tally(now, lambda _: True)
        self._whole.add(total, now)
        if self._counts.topic is not None:
            topics.clear()
            self._topics.clear()
        for topic, new in topics.items():
            self._judge(self._topics, topic, new, now)
        self._new = {partition: Outcomes() for partition in self._partitions}
        self.rates = tuple(self._shown(now))

    def _judge(
        self,
        tallies: dict[TopicPartition, FailureTally] | dict[str, FailureTally],
        place: TopicPartition | str,
        new: Outcomes,
        now: float,
    ) -> None:
        found: dict[TopicPartition | str, FailureTally] = tallies  # type: ignore[assignment]
        tally = found.get(place)
        if tally is None:
            if not (new.not_done or new.given_up):
                return
            patience = PATIENCE if isinstance(place, str) else 2 * PATIENCE
            found[place] = tally = self._tally(
                now, lambda each: place in (each, each.topic), patience
            )
        tally.add(new, now)
        if tally.over and now - tally.failed_at >= FORGET:
            del found[place]

    def _tally(
        self, now: float, of: Callable[[TopicPartition], bool], patience: float = 0.0
    ) -> FailureTally:
        def waits() -> bool:
            lanes = self._closed.lanes.values()
            return any(each.state in TRIED_AGAIN and of(each.partition) for each in lanes)

        def behind() -> bool:
            lanes = self._closed.lanes.values()
            return any((each.aside or each.queue) and of(each.partition) for each in lanes)

        return FailureTally(now, waits, behind, patience)

    def _shown(self, now: float) -> Iterator[FailureRate]:
        """Yield each high rate at the widest place that has it: subscription, topic, partition."""
        if self._whole is not None:
            for rate in self._whole.shown(now, "", None, self._last):
                self._named_at[rate.what, ""] = now
                yield rate
        for topic, tally in self._topics.items():
            for rate in tally.shown(now, topic, None, self._last):
                if not self._named(rate.what, "", now):
                    self._named_at[rate.what, topic] = now
                    yield rate
        for (topic, partition), tally in self._partitions.items():
            for rate in tally.shown(now, topic, partition, self._last):
                if not (self._named(rate.what, "", now) or self._named(rate.what, topic, now)):
                    yield rate

    def _named(self, what: str, topic: str, now: float) -> bool:
        """Return whether a wider place's rate is high, or was recently: places end one by one."""
        return now - self._named_at.get((what, topic), float("-inf")) < NAMED_FOR
