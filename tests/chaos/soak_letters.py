"""Whose a dead letter is, of which attempt: what its acknowledgement alone does not say.

A letter may be on its way for as long as a broker stands still. Meanwhile its member may lose the
partition, get it again and try the record anew; the letter is of the attempts before that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    FAILED,
    DeadLettered,
    Ended,
    MemoryLedger,
    OwnershipChanged,
    Started,
)
from tests.chaos.soak_schedule import ATTEMPTS

Acknowledged = tuple[TopicPartition, int, int]
"""The place of the record, and when the broker's answer came."""


@dataclass(frozen=True)
class Letter:
    """A letter's last attempt: who made it, and when it ended."""

    incarnation: str
    attempt: int
    tried: int


def letters_of(ledgers: Iterable[MemoryLedger]) -> dict[Acknowledged, Letter]:
    """Return every letter that was acknowledged, with the attempt that it is of."""
    return {key: letter for ledger in ledgers for key, letter in _of_one(ledger)}


@dataclass
class _Tried:
    """What a record had been through in one ownership of its partition."""

    failed: int = 0
    last: Letter | None = None


def _of_one(ledger: MemoryLedger) -> list[tuple[Acknowledged, Letter]]:
    found: list[tuple[Acknowledged, Letter]] = []
    ownership: defaultdict[TopicPartition, int] = defaultdict(int)
    begun: dict[int, tuple[TopicPartition, int, int]] = {}
    tried: defaultdict[tuple[TopicPartition, int, int], _Tried] = defaultdict(_Tried)
    for event in sorted(ledger.events, key=lambda e: getattr(e, "at", None) or 0):
        if isinstance(event, OwnershipChanged) and event.change == "assigned":
            ownership[TopicPartition(event.topic, event.partition)] += 1
        elif isinstance(event, Started):
            place = TopicPartition(event.topic, event.partition)
            begun[event.attempt] = place, event.offset, ownership[place]
        elif isinstance(event, Ended) and event.attempt in begun:
            record = tried[begun[event.attempt]]
            record.failed += event.outcome == FAILED
            record.last = Letter(ledger.incarnation, event.attempt, event.at)
        elif isinstance(event, DeadLettered) and event.at is not None:
            place = TopicPartition(event.topic, event.partition)
            turns = range(ownership[place], -1, -1)
            of_turns = [tried[place, event.offset, turn] for turn in turns]
            letter = _last_that_may_write(of_turns)
            if letter is not None:
                found.append(((place, event.offset, event.at), letter))
    return found


def _last_that_may_write(of_turns: list[_Tried]) -> Letter | None:
    """Return the attempt of the latest ownership in which the record had failed often enough.

    Where there is none, a handler has asked for the letter: then of the latest that tried at all.
    """
    often = [each.last for each in of_turns if each.failed >= ATTEMPTS]
    tried = [each.last for each in of_turns if each.last is not None]
    return next(iter([*often, *tried]), None)
