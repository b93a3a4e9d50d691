"""Careful starts: commits that name records before or while they run.

A record that kills its process leaves no failure report. If it kills each process within the commit
interval, no commit is ever made. All other records then run again and again. So the first records
of each partition are named in a commit at once, when they are leased. Each process of a crash loop
then names its running records and makes progress. After a clean stop that is all: records do not
wait for that commit, and later records need none.

A commit that names running records, with no owner to settle them, shows that an owner ended without
a clean stop. The new owner then starts records only after the broker has accepted a commit that
names them (a write-ahead log). It begins with few records and doubles their number with each
accepted commit. A commit follows every :data:`LOOK_EVERY` seconds. The records that the last commit
names as running are *suspects* (:mod:`kafka_keyshared.core.subscription.crash_suspects`). They
start last, a few at a time, and only after a commit names them. An unanswered commit delays each of
these steps by :data:`PATIENCE` at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf

from kafka_keyshared.core.contract.commands import Command, Commit, Notice
from kafka_keyshared.core.contract.commit_facts import SuspectsStarting, UncleanStops
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.offsets.metadata_sections import STARTED, WAITING, RunningNote
from kafka_keyshared.core.offsets.positions import PartitionState, Unsettled, collect
from kafka_keyshared.core.partitions.offset_ceilings import (
    LOOK_SECONDS,
    LOOK_SECONDS_PER_RECORD,
    LOOK_SHARE,
)
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import About, TopicPartition, coordinates_of

FIRST_RECORDS = 8
"""Records of a partition that run first after an unclean end."""

ALL_RECORDS = 1024
"""When this many records may run, no record is held back any more."""

LOOK_EVERY = 0.05
"""Minimum seconds between commits of a careful start."""

GROW_AFTER = 0.25
"""Seconds after which more records start although most earlier ones have not settled."""

PATIENCE = 1.0
"""Seconds after which records start although no commit has named them."""

CAREFUL_SECONDS = 5.0
"""Seconds that a careful start lasts, and that suspects wait at most for other records."""

ALONE_SECONDS = 1.0
"""Seconds without other records after which suspects start; more may be on the way."""


@dataclass(slots=True)
class _Next:
    """Records that start once a commit has named them: those below ``gate``, and suspects.

    Up to ``limit`` records may then have started without having settled.
    """

    gate: int | None = None
    limit: float = 0.0
    suspects: dict[str, list[int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.gate is not None or bool(self.suspects)


@dataclass(slots=True)
class _Start:
    """A partition that begins. Times are monotonic seconds; None before they are known.

    A start that is not ``small`` follows a clean stop. Its first records run, and ``naming`` says
    that the next commit has to name them. A start that ``rests`` has only suspects left, with
    records ahead of them in their lanes. The next commit of the interval shows when those have
    settled.
    """

    small: bool
    limit: float = inf
    gate: int | None = None
    naming: bool = False
    next: _Next = field(default_factory=_Next)
    named_by: Commit | None = None
    waits_since: float | None = None
    began: float | None = None
    grown_at: float = -inf
    raised_at: float = -inf
    rests: bool = False


class CarefulStarts:
    """The partitions that begin, over all at-least-once subscriptions.

    ``enabled`` is false where commits get no answer. Then every record starts at once, and no
    commit names any.
    """

    def __init__(
        self,
        subs: Mapping[str, Subscription],
        states: Mapping[TopicPartition, PartitionState],
        *,
        enabled: bool,
    ) -> None:
        self.enabled = enabled and bool(subs)
        self.starts: dict[TopicPartition, _Start] = {}
        # Partitions that began after a clean stop and have received nothing since.
        self.fresh: set[TopicPartition] = set()
        self._subs = subs
        self._states = states
        self._look_at = -inf
        self._tick_at = -inf
        self._named_at = inf
        # Since when only suspects are held, how many of them start next, when the last ones did.
        self._alone_since: float | None = None
        self._group = 1
        self._group_at = -inf

    # --- partitions come and go ---

    def begin(self, partitions: Iterable[TopicPartition], now: float) -> list[Command]:
        """Begin partitions; each state names the records that ran when its last owner ended."""
        if not self.enabled:
            return []
        unclean: dict[TopicPartition, list[RunningNote]] = {}
        self._named_at = min(self._named_at, now)
        if not any(sub.suspects for sub in self._subs.values()):
            self._group, self._group_at = 1, now
        for partition in partitions:
            notes = self._states[partition].notes
            found = {name: each.running for name, each in notes.items() if each.running}
            if not found:
                self.fresh.add(partition)
                continue
            unclean[partition] = list(found.values())
            self.starts[partition] = _Start(small=True, limit=FIRST_RECORDS / 2, gate=0)
            for name, sub in self._subs.items():
                sub.parking.gates[partition] = 0
                if name in found and found[name].numbers:
                    sub.suspects.begin(partition, found[name].numbers)
        return [_unclean(unclean)] if unclean else []

    def received(self, partitions: Iterable[TopicPartition]) -> None:
        """Note the partitions of a chunk: a commit has to name the first records of each."""
        came = self.fresh.intersection(partitions)
        self.fresh -= came
        for partition in came:
            self.starts[partition] = _Start(small=False, naming=True)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned; waiting places forget them on their own."""
        for partition in partitions:
            self.starts.pop(partition, None)
            self.fresh.discard(partition)

    # --- when to commit ---

    def commit_due(self, now: float) -> bool:
        """Return whether records wait for a commit, or a careful start needs another one."""
        for partition, start in self.starts.items():
            if start.gate is not None and start.waits_since is None and self._parked(partition):
                return True
            begun = start.began is not None and start.small and not start.rests
            if (begun or start.naming) and now >= self._look_at:
                return True
        waits = any(start.waits_since is not None for start in self.starts.values())
        return waits and now >= self._look_at

    def next_due(self) -> float | None:
        """Return when :meth:`tick` is due, in monotonic seconds; None while nothing waits."""
        return self._tick_at if any(map(self._waits, self.starts)) else None

    def awaits_answer(self) -> bool:
        """Return whether records wait for the answer to a commit that names them."""
        return any(start.named_by is not None for start in self.starts.values())

    def _waits(self, partition: TopicPartition) -> bool:
        start = self.starts[partition]
        suspects = any(partition in sub.suspects.deferred for sub in self._subs.values())
        return (
            (suspects and not start.rests)
            or bool(start.next)
            or (start.gate is not None and self._parked(partition) > 0)
        )

    def _parked(self, partition: TopicPartition) -> int:
        return max(len(sub.parking.parked.get(partition, ())) for sub in self._subs.values())

    # --- records that a commit names ---

    def name(
        self, unsettled: Mapping[str, Unsettled], progress: Progress, now: float
    ) -> dict[TopicPartition, dict[str, RunningNote]]:
        """Return the records that the next commit names, and note which may start after it.

        ``unsettled`` has the held records of each subscription.
        """
        if not self.enabled:
            return {}
        self._named_at = now
        self._look(unsettled, now)
        for partition, start in list(self.starts.items()):
            start.next = _Next()
            if start.gate is not None and self._parked(partition):
                held = {name: every.get(partition, {}) for name, every in unsettled.items()}
                start.next = self._next(partition, start, held, now)
        self._next_suspects(unsettled, now)
        for partition, start in list(self.starts.items()):
            if start.next and start.waits_since is None:
                start.waits_since = now
            self._over(partition, start, now)
            if start.naming:
                start.began = now
        return self.running(unsettled, progress)

    def _look(self, unsettled: Mapping[str, Unsettled], now: float) -> None:
        """Drop the suspects that are settled, and set the time of the next look at held records."""
        count = sum(len(each) for held in unsettled.values() for each in held.values())
        look = LOOK_SHARE * (LOOK_SECONDS + LOOK_SECONDS_PER_RECORD * count)
        self._look_at = now + max(LOOK_EVERY, look)
        for partition in self.starts:
            end = self._states[partition].received_end or 0
            for name, sub in self._subs.items():
                sub.suspects.look(partition, unsettled[name].get(partition, {}), end)

    def running(
        self, unsettled: Mapping[str, Unsettled], progress: Progress, *, final: bool = False
    ) -> dict[TopicPartition, dict[str, RunningNote]]:
        """Return the running records by partition and subscription; with ``final`` no others."""
        found: dict[TopicPartition, dict[str, RunningNote]] = {}
        if not self.enabled:
            return found
        for name, sub in self._subs.items():
            running = _running(sub, unsettled[name], progress)
            for partition in running if final else {**running, **self.starts}:
                if start := None if final else self.starts.get(partition):
                    starting = start.next.suspects.get(name, ())
                    suspects = sub.suspects.named(partition, starting)
                    following = self._following(partition, start, sub, unsettled[name])
                else:
                    suspects, following = {}, []
                numbers = dict.fromkeys(following, WAITING)
                numbers |= dict.fromkeys(running.get(partition, ()), STARTED) | suspects
                turns = zip_longest(running.get(partition, ()), suspects, following)
                order = [each for turn in turns for each in turn if each is not None]
                if order:
                    named = RunningNote({offset: numbers[offset] for offset in order})
                    found.setdefault(partition, {})[name] = named
        return found

    def _following(
        self, partition: TopicPartition, start: _Start, sub: Subscription, held: Unsettled
    ) -> list[int]:
        """Return the records that may start after the next commit, or started after the last."""
        gate = start.gate if start.next.gate is None else start.next.gate
        if start.naming:
            # Any of them may have started already, or none. It only matters that some are named.
            return sorted(held.get(partition, ()))[:FIRST_RECORDS]
        deferred = set(map(coordinates_of, sub.suspects.waiting()))
        return sorted(
            offset
            for offset in held.get(partition, ())
            if offset < (gate or 0) and (partition, offset) not in deferred
        )

    def _next_suspects(self, unsettled: Mapping[str, Unsettled], now: float) -> None:
        """Note which suspects may start when the next commit is accepted.

        Suspects start when no other record is left, or when the others have had their time. Those
        that the fewest owners in a row have run start first. The number that starts doubles after
        each group that did no harm.
        """
        subs = self._subs.values()
        waiting = sum(1 for sub in subs for _ in sub.suspects.waiting())
        held = sum(len(each) for every in unsettled.values() for each in every.values())
        if waiting < held:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        ready = [
            (number, partition, name, offset)
            for name, sub in self._subs.items()
            for partition in sub.suspects.deferred
            for number, offset in sub.suspects.ready(partition)
        ]
        if self._alone_since is None or now - self._alone_since < ALONE_SECONDS:
            ready = [each for each in ready if self._began_before(each[1], now - CAREFUL_SECONDS)]
        if not ready:
            return
        running = any(sub.suspects.running(each) for sub in subs for each in self.starts)
        if running and now - self._group_at < PATIENCE:
            return
        # Some suspects with a lower number are not received yet; they come before worse ones.
        least = min(sub.suspects.least() for sub in subs)
        if now - self._group_at >= CAREFUL_SECONDS:
            least = min(number for number, *_ in ready)
        for _, partition, name, offset in sorted(each for each in ready if each[0] == least)[
            : self._group
        ]:
            self.starts[partition].next.suspects.setdefault(name, []).append(offset)

    def _began_before(self, partition: TopicPartition, when: float) -> bool:
        began = self.starts[partition].began
        return began is not None and began <= when

    def _next(
        self,
        partition: TopicPartition,
        start: _Start,
        held: Mapping[str, Collection[int]],
        now: float,
    ) -> _Next:
        """Return which records may start next.

        Their number grows only when they start, because several looks may lead to no commit.
        """
        end = self._states[partition].received_end or 0
        started = 0
        for name, sub in self._subs.items():
            below = sum(offset < (start.gate or 0) for offset in held.get(name, ()))
            started = max(started, below - sub.suspects.held(partition))
        limit = start.limit
        if 2 * started <= limit or now - start.grown_at >= GROW_AFTER:
            limit *= 2
        room = limit - started
        return _Next() if room < 1 else _Next(self._behind(partition, room, end), limit)

    def _behind(self, partition: TopicPartition, room: float, end: int) -> int:
        """Return one past the last of ``room`` parked records, or the received end."""
        for sub in self._subs.values():
            parked = sub.parking.parked.get(partition, [])
            if len(parked) > room:
                end = min(end, parked[int(room) - 1].offset() + 1)
        return end

    # --- records that a commit lets start ---

    def named(self) -> list[TopicPartition]:
        """Return the partitions whose records the next commit has to name."""
        return [each for each, start in self.starts.items() if start.next or start.naming]

    def sent(self, commits: Collection[Commit], behind: Collection[TopicPartition]) -> bool:
        """Note which commit names each start; return whether any record may start at once.

        A start that no commit names is named already, unless the broker has a later position
        (``behind``).
        """
        ready = False
        for partition, start in self.starts.items():
            start.naming = False
            if not start.next or start.named_by is not None:
                continue
            start.named_by = next((each for each in commits if partition in each.entries), None)
            ready = ready or (start.named_by is None and partition not in behind)
        return ready

    def answered(self, commit: Commit, now: float, *, accepted: bool) -> list[Command] | None:
        """Start the records that an accepted commit names; return None if there are none."""
        named = [each for each, start in self.starts.items() if start.named_by is commit]
        if accepted:
            return self._raise(named, now) if named else None
        for partition in named:
            self.starts[partition].named_by = None
        return None

    def unnamed(self, now: float) -> list[Command]:
        """Start records already named, or that cannot be named: the broker's limit may be low."""
        ready = [
            partition
            for partition, start in self.starts.items()
            if start.next and start.named_by is None
            if not start.small or now - start.raised_at >= LOOK_EVERY
        ]
        return self._raise(ready, now)

    def tick(self, now: float) -> list[Command]:
        """Start the records that have waited too long for their commit."""
        self._tick_at = now + LOOK_EVERY
        if (
            now - self._named_at >= CAREFUL_SECONDS
            and now >= self._look_at
            and any(sub.suspects for sub in self._subs.values())
        ):
            # No commit can be made that would show which records have settled.
            self._look(
                {name: collect(sub.unsettled.records({})) for name, sub in self._subs.items()}, now
            )
            self._next_suspects({}, now)
        late = []
        for partition, start in self.starts.items():
            if not start.next and (start.gate is None or not self._parked(partition)):
                continue
            if start.waits_since is None:
                start.waits_since = now
            elif now - start.waits_since >= PATIENCE:
                if start.gate is not None and not start.next:
                    end = self._states[partition].received_end or 0
                    start.next = _Next(self._behind(partition, start.limit, end))
                late.append(partition)
        return self._raise(late, now)

    def _raise(self, partitions: Iterable[TopicPartition], now: float) -> list[Command]:
        raised: list[Command] = []
        suspects = False
        for partition in partitions:
            start = self.starts[partition]
            start.named_by = None
            following, start.next, start.waits_since = start.next, _Next(), None
            if following.gate is not None:
                if following.limit > start.limit:
                    start.limit, start.grown_at = following.limit, now
                self._open(partition, start, following.gate, now)
            for name, offsets in following.suspects.items():
                suspects = True
                for offset in offsets:
                    sub = self._subs[name]
                    sub.routing.put_back(sub.suspects.start(partition, offset))
                raised.append(Notice(SuspectsStarting(_abouts(partition, offsets))))
        if suspects:
            self._group_at = now
            self._group *= 2
        return raised

    def _open(self, partition: TopicPartition, start: _Start, gate: int, now: float) -> None:
        start.began = now if start.began is None else start.began
        start.raised_at = now
        start.gate = gate if start.limit <= ALL_RECORDS else None
        for sub in self._subs.values():
            if start.gate is None:
                sub.parking.gates.pop(partition, None)
            else:
                sub.parking.gates[partition] = gate

    def _over(self, partition: TopicPartition, start: _Start, now: float) -> None:
        """Forget a start that is over: every record may run, and no suspect is left."""
        start.rests = False
        if start.began is None or start.next:
            return
        if start.small and now - start.began < CAREFUL_SECONDS:
            return
        left = [sub.suspects for sub in self._subs.values() if partition in sub.suspects.deferred]
        if left:
            start.rests = not any(each.to_come(partition) for each in left)
            return
        for sub in self._subs.values():
            sub.parking.gates.pop(partition, None)
        del self.starts[partition]


def _running(
    sub: Subscription, held: Unsettled, progress: Progress
) -> dict[TopicPartition, list[int]]:
    """Return the offsets of the running records, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for leased in sub.unsettled.leases():
        came = leased.slice.came
        for index in leased.running(progress):
            partition, offset = came.coordinates_of(index)
            if offset in held.get(partition, ()) and not sub.epochs.ended(leased, index):
                found.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def _unclean(unclean: Mapping[TopicPartition, Iterable[RunningNote]]) -> Notice:
    """Return the one notice of partitions whose last owner ended without a clean stop."""
    suspects: list[About] = []
    more = 0
    for partition, every in sorted(unclean.items()):
        for running in every:
            suspects += _abouts(partition, sorted(running.numbers))
            more += running.more
    return Notice(UncleanStops(sorted(unclean), suspects, more))


def _abouts(partition: TopicPartition, offsets: Iterable[int]) -> list[About]:
    return [About(partition, offset) for offset in offsets]
