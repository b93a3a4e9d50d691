"""What the faults of a soak excuse, and what of the ledgers is left to be judged.

Three kinds of excuse, each as narrow as the contract:

- *Time*: while a broker is away, a member stands still or a killed one is mourned, a partition may
  stand still.
- *Repeats*: what somebody had settled and not got committed when it was killed, or when the group
  took its partitions away, may run again. Nothing else may.
- *Twilight*: a member that the group has taken for dead cannot know that until it is told. What it
  ran in between is left out; to all others it must look as if it had been killed before.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kafka_keyshared.audit.ledger import (
    CommitAnswered,
    CommitSent,
    DeadLettered,
    Ended,
    Event,
    MemoryLedger,
    OwnershipChanged,
    Started,
)
from kafka_keyshared.demo.ledgers import settled_in
from kafka_keyshared.model import TopicPartition
from tests.chaos.soak_evidence import NEVER, NS, Evidence, Fault, Life, Spans, united
from tests.chaos.soak_letters import letters_of
from tests.chaos.soak_schedule import HARD, LONG

RECOVERY = 10.0
"""Seconds after the session in which somebody may learn that the group took him for dead."""

JOINING = 15.0
"""Seconds that a process needs until it has its first partitions, on a machine that does much."""

FORGETTING = 1.0

OUTLASTED = 4.5
"""Seconds that a handler has run for at least when a revoke gives up on it: 5 s is its deadline."""


def aftermath(evidence: Evidence, fault: Fault) -> tuple[int, int]:
    """Return from when to when a fault explains what is lost or late."""
    session = int((evidence.scenario.session + RECOVERY) * NS)
    if fault.what == "nap":
        session = int(RECOVERY * NS)
    return fault.start, min(NEVER, fault.end + session)


def excused_times(evidence: Evidence, partition: TopicPartition) -> Spans:
    """Return the times in which the partition may stand still."""
    # A session and no more: what it takes to find together again is in the limit. Faults follow
    # each other so closely that with more nothing would ever be without excuse.
    session = int(evidence.scenario.session * NS)
    spans = []
    for fault in evidence.faults:
        end = fault.end + (session if fault.what in HARD else 0)
        if fault.partitions is not None and partition not in fault.partitions:
            # Others go on at once, but for the group's own broker, which may be the one.
            end = min(end, fault.start + session)
        spans.append((fault.start, min(NEVER, end)))
    return united([*spans, *_unread(evidence, partition.topic)])


def occupied_times(evidence: Evidence, partition: TopicPartition) -> Spans:
    """Return when one long record kept all that the partition's owner could hold waiting behind it.

    Only while that record ran in the very member that had the partition, and only from when that
    member had begun nothing else of any partition: had there been room, it would have. A partition
    that stands still while its owner gets on with others is not excused, nor is a member that
    stands still without such a record.
    """
    spans = []
    for ledger in evidence.ledgers:
        life = evidence.life(ledger.incarnation)
        ends = {event.attempt: event.at for event in ledger.events if isinstance(event, Ended)}
        begun = sorted(event.at for event in ledger.events if isinstance(event, Started))
        owned = _owned(ledger, partition)
        for event in ledger.events:
            if not isinstance(event, Started) or not (event.key or b"").startswith(LONG):
                continue
            # One that a stop gave up on ran for as long as its process.
            end = ends.get(event.attempt, life.end if life is not None else event.at)
            last = begun[bisect_left(begun, end) - 1]
            spans += [(max(last, first), min(end, until)) for first, until in owned]
    return [(start, end) for start, end in spans if start < end]


def _owned(ledger: MemoryLedger, partition: TopicPartition) -> Spans:
    """Return when the incarnation had the partition."""
    spans, since = [], None
    for event in ledger.events:
        if isinstance(event, OwnershipChanged) and (event.topic, event.partition) == partition:
            if since is not None:
                spans.append((since, event.at))
            since = event.at if event.change == "assigned" else None
    return spans if since is None else [*spans, (since, NEVER)]


def _unread(evidence: Evidence, topic: str) -> Spans:
    """Return when nobody read the topic, or whoever did was only just starting or ending."""
    reading = [
        (_joined(evidence, life), life.asked or life.end)
        for life in evidence.lives
        if life.topic == topic
    ]
    here = united((start, end) for start, end in reading if start < end)
    edges = [evidence.start, *(edge for span in here for edge in span), NEVER]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


def _joined(evidence: Evidence, life: Life) -> int:
    """Return when it had its first partitions, or should have had them."""
    assigned = (
        event.at
        for ledger in evidence.ledgers
        if ledger.incarnation == life.name
        for event in ledger.events
        if isinstance(event, OwnershipChanged)
    )
    return min([life.start + int(JOINING * NS), *itertools.islice(assigned, 1)])


@dataclass
class Losses:
    """When an incarnation could not commit what it had settled: by partition, or as a whole.

    Each loss is when the incarnation was told, and from when on others may have had the partition.
    """

    whole: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    parts: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = field(default_factory=dict)

    def after(self, incarnation: str, partition: TopicPartition, at: int) -> tuple[int, int] | None:
        """Return the first loss of which was told at or after that time; None without one."""
        found = [
            *self.whole.get(incarnation, ()),
            *self.parts.get((incarnation, partition), ()),
        ]
        return min((loss for loss in found if loss[0] >= at), default=None)


def losses(evidence: Evidence) -> Losses:
    """Return every loss that a fault explains."""
    found = Losses()
    for life in evidence.lives:
        if life.killed or (life.asked is not None and _in_outage(evidence, life.asked, life.end)):
            # Told or not: a member that is asked to leave in an outage may be thought to be gone.
            begun = life.end if life.killed else (life.asked or life.end)
            found.whole.setdefault(life.name, []).append((life.end, begun))
    for ledger in evidence.ledgers:
        for event in ledger.events:
            if not isinstance(event, OwnershipChanged) or event.change == "assigned":
                continue
            fault = _why(evidence, ledger.incarnation, event)
            if fault is not None:
                place = ledger.incarnation, TopicPartition(event.topic, event.partition)
                begun = fault.start if event.change == "lost" else event.at
                found.parts.setdefault(place, []).append((event.at, begun))
    return found


def _in_outage(evidence: Evidence, start: int, end: int) -> bool:
    spans = [aftermath(evidence, fault) for fault in evidence.faults if fault.outage]
    return any(first <= end and start <= last for first, last in spans)


def _why(evidence: Evidence, incarnation: str, event: OwnershipChanged) -> Fault | None:
    """Return the fault for which the incarnation was not heard when it gave the partition up."""
    own = [fault for fault in evidence.faults if fault.who == incarnation and not fault.outage]
    for fault in [*own, *(fault for fault in evidence.faults if fault.outage)]:
        start, end = aftermath(evidence, fault)
        # Whom the group takes for dead in the middle of a revoke hears of no loss.
        unheard = fault.outage or event.change == "lost" or fault.what == "coma"
        if unheard and start <= event.at <= end:
            return fault
    return None


def told_of_losses(evidence: Evidence) -> dict[tuple[str, TopicPartition], list[int]]:
    """Return when incarnations were told that a partition was lost, whatever the reason.

    The group may throw a member out without a fault. What runs then, or is on its way to the
    dead-letter topic, may run again; what had settled before may not, if it comes straight back.
    """
    found: dict[tuple[str, TopicPartition], list[int]] = {}
    for ledger in evidence.ledgers:
        for event in ledger.events:
            if isinstance(event, OwnershipChanged) and event.change == "lost":
                place = ledger.incarnation, TopicPartition(event.topic, event.partition)
                found.setdefault(place, []).append(event.at)
    return found


@dataclass
class Twilight:
    """A time in which nothing counts that the incarnation did in the partition."""

    partition: TopicPartition
    start: int
    end: int


Begun = Mapping[TopicPartition, Sequence[tuple[int, str]]]
"""When which incarnation began a record of the partition, in order."""


def begun_by(evidence: Evidence) -> Begun:
    """Return every beginning of a handler call."""
    found: dict[TopicPartition, list[tuple[int, str]]] = {}
    for ledger in evidence.ledgers:
        for event in ledger.events:
            if isinstance(event, Started):
                place = TopicPartition(event.topic, event.partition)
                found.setdefault(place, []).append((event.at, ledger.incarnation))
    return {place: sorted(each) for place, each in found.items()}


def twilights(evidence: Evidence, ledger: MemoryLedger, begun: Begun) -> list[Twilight]:
    """Return what was done by somebody who had lost the partition and had not been told.

    It begins with the fault, or with the last commit sent that the broker took all the same; it
    ends when the partition has been forgotten. There is none where the partition comes back before
    anybody else has begun anything of it: then what was done there counts.
    """
    found: dict[tuple[TopicPartition, int], Twilight] = {}
    for event in ledger.events:
        if not isinstance(event, OwnershipChanged) or event.change == "assigned":
            continue
        fault = _why(evidence, ledger.incarnation, event)
        if fault is None or (event.change == "revoked" and fault.what != "coma"):
            continue
        partition = TopicPartition(event.topic, event.partition)
        start = max(fault.start, _last_stored(evidence, ledger, partition, event.at))
        back = _next_assigned(ledger, partition, event.at)
        if back < NEVER and _untouched(begun, ledger.incarnation, partition, start, back):
            continue
        one = found.setdefault((partition, start), Twilight(partition, start, event.at))
        one.end = max(one.end, event.at + int(FORGETTING * NS))
        one.end = min(one.end, back)
    return list(found.values())


def _untouched(
    begun: Begun, incarnation: str, partition: TopicPartition, start: int, end: int
) -> bool:
    """Whether nobody else began anything of the partition in between."""
    times = begun.get(partition, ())
    between = times[bisect_left(times, (start, "")) : bisect_left(times, (end, ""))]
    return all(who == incarnation for _, who in between)


def _next_assigned(ledger: MemoryLedger, partition: TopicPartition, after: int) -> int:
    """Return when the incarnation got the partition again, which may be at once."""
    times = (
        event.at
        for event in ledger.events
        if isinstance(event, OwnershipChanged)
        and event.change == "assigned"
        and (event.topic, event.partition) == partition
        and event.at > after
    )
    return min(times, default=NEVER)


def _last_stored(
    evidence: Evidence, ledger: MemoryLedger, partition: TopicPartition, before: int
) -> int:
    """Return when the last commit of the partition was sent that the broker took.

    It may have taken one whose answer never arrived: then it has written it down, as it was sent.
    """
    accepted = {e.commit for e in ledger.events if isinstance(e, CommitAnswered) and e.accepted}
    written = {
        (each.position, settled_in(each.metadata, each.position))
        for each in evidence.stored
        if each.partition == partition
    }
    sent = (
        event.at
        for event in ledger.events
        if isinstance(event, CommitSent)
        and (event.topic, event.partition) == partition
        and event.at <= before
        and (event.commit in accepted or (event.position, event.settled) in written)
    )
    return max(sent, default=0)


def without_twilight(evidence: Evidence, ledger: MemoryLedger, started: Begun) -> MemoryLedger:
    """Return the ledger without what was done in twilight; what ran then is cut short.

    Cut short is also what a revoke gave up on at its deadline: that may run again by the contract.
    """
    dark = twilights(evidence, ledger, started)
    revoked = [
        (TopicPartition(event.topic, event.partition), event.at)
        for event in ledger.events
        if isinstance(event, OwnershipChanged) and event.change == "revoked"
    ]
    left = MemoryLedger(ledger.incarnation)
    gone: set[int] = set()
    begun: dict[int, Started] = {}
    letters = letters_of([ledger])
    for event in sorted(ledger.events, key=lambda e: getattr(e, "at", None) or 0):
        place = _place(event, begun)
        if isinstance(event, Started):
            begun[event.attempt] = event
        now = _within(dark, place, event)
        if isinstance(event, Started | CommitSent):
            if now is not None:
                gone.add(_number(event))
                continue
        elif isinstance(event, Ended | CommitAnswered) and _number(event) in gone:
            continue
        elif isinstance(event, DeadLettered) and place is not None and event.at is not None:
            letter = letters.get((place, event.offset, event.at))
            if letter is not None and letter.attempt in gone:
                continue  # of an attempt that nobody could know of, whenever the broker answered
        cut = None
        if isinstance(event, Ended) and place is not None:
            cut = _cut_short(dark, revoked, place, begun[event.attempt].at, event.at)
        if isinstance(event, Ended) and cut is not None:
            # As if it had been killed then: settled by nobody.
            left.events.append(msgspec.structs.replace(event, outcome="failed", at=cut))
        else:
            left.events.append(event)
    return left


def _cut_short(
    dark: Iterable[Twilight],
    revoked: Iterable[tuple[TopicPartition, int]],
    place: TopicPartition,
    start: int,
    end: int,
) -> int | None:
    """Return when a handler call ceased to count, if it did."""
    deadline = int(OUTLASTED * NS)
    cuts = [t.start for t in dark if t.partition == place and start <= t.start < end]
    cuts += [at for each, at in revoked if each == place and start + deadline <= at < end]
    return min(cuts, default=None)


def _number(event: Started | Ended | CommitSent | CommitAnswered) -> int:
    return event.attempt if isinstance(event, Started | Ended) else event.commit


def _place(event: Event, begun: dict[int, Started]) -> TopicPartition | None:
    if isinstance(event, Ended):
        start = begun.get(event.attempt)
        return None if start is None else TopicPartition(start.topic, start.partition)
    if isinstance(event, CommitAnswered | OwnershipChanged):
        return None
    return TopicPartition(event.topic, event.partition)


def _within(
    dark: Iterable[Twilight], place: TopicPartition | None, event: Event
) -> Twilight | None:
    at = getattr(event, "at", None)
    if place is None or at is None:
        return None
    return next((t for t in dark if t.partition == place and t.start < at <= t.end), None)
