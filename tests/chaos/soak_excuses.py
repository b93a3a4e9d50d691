"""What the faults of a soak excuse.

Two kinds of excuse, each as narrow as the contract:

- *Time*: while a broker is away, a member stands still or a killed one is mourned, a partition may
  stand still.
- *Repeats*: what somebody had settled and not got committed when it was killed, or when the group
  took its partitions away, may run again. Nothing else may.

What nobody could know of is left out of the ledgers before (``soak_twilight.py``).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass, field

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    Ended,
    MemoryLedger,
    OwnershipChanged,
    Started,
)
from tests.chaos.soak_evidence import NEVER, NS, Evidence, Fault, Life, Spans, united
from tests.chaos.soak_schedule import HARD, LONG

RECOVERY = 10.0
"""Seconds after the session in which somebody may learn that the group took him for dead."""

JOINING = 15.0
"""Seconds that a process needs until it has its first partitions, on a machine that does much."""


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

    ``told`` is when it was told that a partition was lost, whatever the reason: the group may throw
    a member out without a fault. What runs then, or is on its way to the dead-letter topic, may run
    again; what had settled before may not, if the partition comes straight back.
    """

    whole: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    parts: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = field(default_factory=dict)
    told: dict[tuple[str, TopicPartition], list[int]] = field(default_factory=dict)

    def told_within(
        self, incarnation: str, partition: TopicPartition, start: int, end: int
    ) -> list[int]:
        """Return when in between it was told that the partition was lost."""
        times = self.told.get((incarnation, partition), ())
        return [at for at in times if start <= at <= end]

    def after(self, incarnation: str, partition: TopicPartition, at: int) -> tuple[int, int] | None:
        """Return the first loss of which was told at or after that time; None without one."""
        found = [
            *self.whole.get(incarnation, ()),
            *self.parts.get((incarnation, partition), ()),
        ]
        return min((loss for loss in found if loss[0] >= at), default=None)


def losses(evidence: Evidence) -> Losses:
    """Return every loss that a fault explains, and every one that was told."""
    found = Losses()
    for life in evidence.lives:
        if life.killed or (life.asked is not None and in_outage(evidence, life.asked, life.end)):
            # Told or not: a member that is asked to leave in an outage may be thought to be gone.
            begun = life.end if life.killed else (life.asked or life.end)
            found.whole.setdefault(life.name, []).append((life.end, begun))
    for ledger in evidence.ledgers:
        for event in ledger.events:
            if not isinstance(event, OwnershipChanged) or event.change == "assigned":
                continue
            place = ledger.incarnation, TopicPartition(event.topic, event.partition)
            if event.change == "lost":
                found.told.setdefault(place, []).append(event.at)
            fault = unheard_in(evidence, ledger.incarnation, event)
            if fault is not None:
                begun = fault.start if event.change == "lost" else event.at
                found.parts.setdefault(place, []).append((event.at, begun))
    return found


def in_outage(evidence: Evidence, start: int, end: int) -> bool:
    """Whether a broker was away then, or its absence was still felt."""
    spans = [aftermath(evidence, fault) for fault in evidence.faults if fault.outage]
    return any(first <= end and start <= last for first, last in spans)


def unheard_in(evidence: Evidence, incarnation: str, event: OwnershipChanged) -> Fault | None:
    """Return the fault for which the incarnation was not heard when it gave the partition up."""
    own = [fault for fault in evidence.faults if fault.who == incarnation and not fault.outage]
    for fault in [*own, *(fault for fault in evidence.faults if fault.outage)]:
        start, end = aftermath(evidence, fault)
        # Whom the group takes for dead in the middle of a revoke hears of no loss.
        unheard = fault.outage or event.change == "lost" or fault.what == "coma"
        if unheard and start <= event.at <= end:
            return fault
    return None
