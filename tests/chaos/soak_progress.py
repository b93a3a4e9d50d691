"""Does every partition get on? Stand-stills, and settled records that are not committed in time."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import DROPPED, OK
from kafka_keyshared.observability.audit.trace import NEVER as UNSETTLED
from kafka_keyshared.observability.audit.trace import Trace, Trail
from tests.chaos.soak_evidence import NEVER, NS, Evidence, Spans, outside, united
from tests.chaos.soak_excuses import excused_times, occupied_times
from tests.chaos.soak_live import blocking


@dataclass(frozen=True)
class StandStill:
    """A time in which a partition had work and nothing of it began or ended.

    ``seconds`` are those that no fault excuses. Times are monotonic, in ns.
    """

    partition: TopicPartition
    start: int
    end: int
    seconds: float
    waiting: int


def stand_stills(evidence: Evidence, trace: Trace) -> list[StandStill]:
    """Return the longest stand-still of each partition; work that is blocked does not count."""
    found = []
    for partition, trails in sorted(trace.trails.items()):
        written = evidence.written.get(partition, [])
        if written:
            work = [trail for trail in trails.values() if not blocking(partition.topic, trail.key)]
            excused = excused_times(evidence, partition)
            excused = united([*excused, *occupied_times(evidence, partition)])
            found.append(_longest(partition, work, written, evidence.end, excused))
    return found


def _longest(
    partition: TopicPartition,
    work: Sequence[Trail],
    written: Sequence[tuple[int, int]],
    end: int,
    excused: Spans,
) -> StandStill:
    moved = {written[0][0], end}
    for trail in work:
        moved.update(at for a in trail.attempts for at in (a.start, a.end) if at < end)
        moved.update(trail.acknowledged or ())
    moments = sorted(at for at in moved if at <= end)
    gaps = sorted(((b - a, a, b) for a, b in itertools.pairwise(moments)), reverse=True)
    offsets = [offset for _, offset in written]
    longest = StandStill(partition, end, end, 0.0, 0)
    for length, begin, until in gaps:
        if length / NS <= longest.seconds:
            break
        waiting = [
            max(begin, written[at][0])
            for trail in work
            if trail.produced
            and _settled(trail) > begin
            and (at := bisect_right(offsets, trail.offset)) < len(written)
            and written[at][0] < until
        ]
        if not waiting:
            continue
        start = min(waiting)
        seconds = outside(start, until, excused) / NS
        if seconds > longest.seconds:
            longest = StandStill(partition, start, until, seconds, len(waiting))
    return longest


def _settled(trail: Trail) -> int:
    return trail.done if trail.done < UNSETTLED else NEVER


def _settled_last(trail: Trail) -> int:
    """Return when it was settled for the last time: what a crash undoes was never safe."""
    times = [attempt.end for attempt in trail.attempts if attempt.outcome in (OK, DROPPED)]
    return max([*times, *(trail.acknowledged or ())], default=_settled(trail))


@dataclass(frozen=True)
class Behind:
    """A record up to which all was settled, and how long no accepted commit said so."""

    partition: TopicPartition
    offset: int
    since: int
    until: int
    seconds: float


def commits_behind(evidence: Evidence, trace: Trace, limit: float) -> list[Behind]:
    """Return for each partition the first record that was safe and not committed in time."""
    found = []
    last = max((life.end for life in evidence.lives), default=evidence.end)
    for partition, trails in sorted(trace.trails.items()):
        excused = excused_times(evidence, partition)
        accepted = sorted(
            (commit.accepted_at, commit.position)
            for commit in trace.commits.get(partition, ())
            if commit.accepted_at < UNSETTLED
        )
        times = [at for at, _ in accepted]
        highest = _highest(position for _, position in accepted)
        safe = 0
        for trail in sorted(trails.values(), key=lambda trail: trail.offset):
            safe = max(safe, _settled_last(trail))
            if safe == NEVER:
                break
            at = bisect_right(highest, trail.offset)
            until = max(safe, times[at]) if at < len(times) else last
            if (until - safe) / NS <= limit:
                continue
            seconds = outside(safe, until, excused) / NS
            if seconds > limit:
                found.append(Behind(partition, trail.offset, safe, until, seconds))
                break
    return found


def _highest(positions: Iterable[int]) -> list[int]:
    found: list[int] = []
    for position in positions:
        found.append(max(position, found[-1]) if found else position)
    return found
