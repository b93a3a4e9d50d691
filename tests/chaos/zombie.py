"""The ledger of a process that stood still past its session timeout, taken apart.

While it stands still the group gives its partitions away; when it wakes it knows nothing of that
until its client has been told. Three parts: its life *before* it stood still, the *twilight* from
waking until it has let go of the lost partitions, and its life *after*.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kafka_keyshared.observability.audit.ledger import (
    CommitAnswered,
    CommitSent,
    Ended,
    Event,
    MemoryLedger,
    Started,
)


@dataclass
class Parts:
    """``before`` and ``after`` are ledgers of two incarnations, ``twilight`` is a list of events.

    Handler calls that stood still are cut short in ``before``, as by a kill; their ends, and the
    whole of calls that began in the twilight, are only in ``twilight``.
    """

    before: MemoryLedger
    twilight: list[Event]
    after: MemoryLedger


def take_apart(ledger: MemoryLedger, stood_still: int, woke: int, let_go: int) -> Parts:
    """Divide the events by these monotonic times in ns."""
    parts = Parts(
        MemoryLedger(f"{ledger.incarnation}-before"),
        [],
        MemoryLedger(f"{ledger.incarnation}-after"),
    )
    early = {_number(event) for event in ledger.events if _at(event) <= stood_still}
    begun_early = {
        _number(event) for event in ledger.events if _at(event) <= let_go and _number(event) > 0
    }
    for event in ledger.events:
        at = _at(event)
        if at <= stood_still:
            parts.before.events.append(event)
        elif isinstance(event, CommitAnswered) and event.commit in early:
            # The broker had stored it while the member was alive; it was only heard of later.
            parts.before.events.append(msgspec.structs.replace(event, at=stood_still))
        elif at <= let_go or _number(event) in begun_early:
            assert at >= woke, f"it stood still, and yet: {event}"
            parts.twilight.append(event)
        else:
            parts.after.events.append(event)
    return parts


def _at(event: Event) -> int:
    at: int = event.at  # type: ignore[union-attr,assignment]
    return at


def _number(event: Event) -> int:
    """The number of a handler call or a commit, which share one sequence; 0 for other events."""
    if isinstance(event, Started | Ended):
        return event.attempt
    return event.commit if isinstance(event, CommitSent | CommitAnswered) else 0
