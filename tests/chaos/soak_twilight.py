"""What of a soak's ledgers is left to be judged.

A member that the group has taken for dead cannot know that until it is told. What it ran in
between, in the *twilight*, is left out; to all others it must look as if it had been killed before.
So is what a revoke gave up on at its deadline.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from kafka_keyshared.lab.demo.ledgers import settled_in
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    CommitAnswered,
    CommitSent,
    DeadLettered,
    Ended,
    Event,
    MemoryLedger,
    OwnershipChanged,
    Started,
)
from tests.chaos.soak_evidence import NEVER, NS, Evidence
from tests.chaos.soak_excuses import unheard_in
from tests.chaos.soak_letters import Acknowledged, Letter, letters_of

FORGETTING = 1.0

OUTLASTED = 4.5
"""Seconds that a handler has run for at least when a revoke gives up on it: 5 s is its deadline."""


@dataclass
class Twilight:
    """A time in which nothing counts that the incarnation did in the partition."""

    partition: TopicPartition
    start: int
    end: int


Written = tuple[int, tuple[tuple[int, int], ...]]
"""A position, and what was settled beyond it."""


@dataclass(frozen=True)
class Known:
    """What is read out of all of a soak's evidence once, for all of its ledgers.

    ``begun`` says when which incarnation began a record of the partition, in order; ``written`` are
    the commits that the brokers wrote down, as positions and what was settled beyond, ``given_up``
    those that were not accepted as far as their members know; ``letters`` are the acknowledged dead
    letters.
    """

    begun: Mapping[TopicPartition, Sequence[tuple[int, str]]]
    written: Mapping[TopicPartition, Set[Written]]
    given_up: Set[tuple[TopicPartition, int]]
    letters: Mapping[Acknowledged, Letter]


def known(evidence: Evidence) -> Known:
    """Read it."""
    begun: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    given_up: set[tuple[TopicPartition, int]] = set()
    for ledger in evidence.ledgers:
        accepted = _accepted(ledger)
        for event in ledger.events:
            if isinstance(event, Started):
                place = TopicPartition(event.topic, event.partition)
                begun[place].append((event.at, ledger.incarnation))
            elif isinstance(event, CommitSent) and event.commit not in accepted:
                given_up.add((TopicPartition(event.topic, event.partition), event.position))
    written: defaultdict[TopicPartition, set[Written]] = defaultdict(set)
    for each in evidence.stored:
        settled = settled_in(each.metadata, each.partition, each.position)
        written[each.partition].add((each.position, settled))
    return Known(
        {place: sorted(each) for place, each in begun.items()},
        written,
        given_up,
        letters_of(evidence.ledgers),
    )


def _accepted(ledger: MemoryLedger) -> set[int]:
    return {e.commit for e in ledger.events if isinstance(e, CommitAnswered) and e.accepted}


def twilights(evidence: Evidence, ledger: MemoryLedger, all_known: Known) -> list[Twilight]:
    """Return what was done by somebody who had lost the partition and had not been told.

    It begins with the fault, or with the last commit sent that the broker took all the same; it
    ends when the partition has been forgotten. There is none where the partition comes back before
    anybody else has begun anything of it: then what was done there counts.
    """
    found: dict[tuple[TopicPartition, int], Twilight] = {}
    for event in ledger.events:
        if not isinstance(event, OwnershipChanged) or event.change == "assigned":
            continue
        fault = unheard_in(evidence, ledger.incarnation, event)
        if fault is None or (event.change == "revoked" and fault.what != "coma"):
            continue
        partition = TopicPartition(event.topic, event.partition)
        start = max(fault.start, _last_stored(ledger, partition, event.at, all_known))
        back = _next_assigned(ledger, partition, event.at)
        if back < NEVER and _untouched(all_known, ledger.incarnation, partition, start, back):
            continue
        one = found.setdefault((partition, start), Twilight(partition, start, event.at))
        one.end = max(one.end, event.at + int(FORGETTING * NS))
        one.end = min(one.end, back)
    return list(found.values())


def _untouched(
    all_known: Known, incarnation: str, partition: TopicPartition, start: int, end: int
) -> bool:
    """Whether nobody else began anything of the partition in between."""
    times = all_known.begun.get(partition, ())
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
    ledger: MemoryLedger, partition: TopicPartition, before: int, all_known: Known
) -> int:
    """Return when the last commit of the partition was sent that the broker took.

    It may have taken one whose answer never arrived: then it has written it down, as it was sent.
    """
    accepted = _accepted(ledger)
    written = all_known.written.get(partition, frozenset())
    sent = (
        event.at
        for event in ledger.events
        if isinstance(event, CommitSent)
        and (event.topic, event.partition) == partition
        and event.at <= before
        and (event.commit in accepted or (event.position, event.settled) in written)
    )
    return max(sent, default=0)


def without_twilight(evidence: Evidence, ledger: MemoryLedger, all_known: Known) -> MemoryLedger:
    """Return the ledger without what was done in twilight; what ran then is cut short.

    Cut short is also what a revoke gave up on at its deadline: that may run again by the contract.
    """
    dark = twilights(evidence, ledger, all_known)
    revoked = [
        (TopicPartition(event.topic, event.partition), event.at)
        for event in ledger.events
        if isinstance(event, OwnershipChanged) and event.change == "revoked"
    ]
    left = MemoryLedger(ledger.incarnation)
    gone: set[int] = set()
    begun: dict[int, Started] = {}
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
            letter = all_known.letters.get((place, event.offset, event.at))
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
