"""Who settled what ran again: a repeat needs somebody who was killed before it could commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kafka_keyshared.observability.audit.ledger import DROPPED, OK, MemoryLedger
from kafka_keyshared.observability.audit.trace import NEVER, Trace, Trail, build


@dataclass
class Repeats:
    """Records that ran again after they were settled, by the incarnation that had settled them.

    ``unexcused`` are in words those whose settler was not killed. ``stragglers`` are those that
    their settler had settled before it sent its last accepted commit of the partition, and which
    that commit did not cover all the same.
    """

    by_settler: Counter[str] = field(default_factory=Counter)
    unexcused: list[str] = field(default_factory=list)
    stragglers: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        """How many repeats there were; one record may be repeated after each kill."""
        return self.by_settler.total()


def repeats(ledgers: Iterable[MemoryLedger], killed: Collection[str]) -> Repeats:
    """Look up, for every record that ran again, who had settled it before."""
    trace = build(ledgers)
    found = Repeats()
    for trail in trace.all_trails():
        settlements = _settlements(trail)
        seen = set()
        for attempt in trail.attempts:
            before = [each for each in settlements if each[0] < attempt.start]
            if not before or before[-1] in seen:
                continue
            when, settler = before[-1]
            seen.add(before[-1])  # the attempts of one repeat count once
            found.by_settler[settler] += 1
            if settler not in killed:
                found.unexcused.append(
                    f"{trail} was settled by {settler}, ran again in {attempt.incarnation}"
                )
            if when < _last_accepted(trace, trail, settler):
                found.stragglers[settler] += 1
    return found


def _settlements(trail: Trail) -> list[tuple[int, str]]:
    found = [(a.end, a.incarnation) for a in trail.attempts if a.outcome in (OK, DROPPED)]
    for at in trail.acknowledged or ():
        last = max((a for a in trail.attempts if a.end <= at), key=lambda a: a.end)
        found.append((at, last.incarnation))
    return sorted(found)


def _last_accepted(trace: Trace, trail: Trail, incarnation: str) -> int:
    """When the incarnation sent the last commit of the partition that it knows was accepted."""
    return max(
        (
            commit.sent
            for commit in trace.commits.get(trail.partition, ())
            if commit.incarnation == incarnation and commit.accepted_at != NEVER
        ),
        default=-1,
    )
