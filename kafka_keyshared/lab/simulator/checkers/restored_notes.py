"""Attempts, copies and diverted lanes that an assignment begins with.

They come from the commit at which the assignment began. If several commits are possible, only notes
on which all of them agree are certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from kafka_keyshared.hashing import lane_hash
from kafka_keyshared.lab.simulator.checkers.records import Assignment, Delivery, LogModel
from kafka_keyshared.lab.simulator.commit_text import (
    NOTHING,
    CommitTextError,
    Notes,
    Whose,
    read_notes,
)

_T = TypeVar("_T")


def diverted(assignment: Assignment, sub: str) -> None:
    """Record the lanes that are diverted when the assignment begins, and those that may be."""
    lanes = [notes.get(sub, NOTHING).lanes for notes in assignment.notes]
    before = assignment.remembered
    # A member's own notes on a lost partition count, although the group may lack them.
    if before is not None:
        assignment.perhaps_diverted[sub].update(before.diverted[sub], before.perhaps_diverted[sub])
    else:
        assignment.diverted[sub].update(set.intersection(*lanes))
    assignment.perhaps_diverted[sub].update(*lanes)


def tried(assignment: Assignment, sub: str, each: Delivery) -> None:
    """Record how often a record was tried before this delivery."""
    counts, copied = {0} if not assignment.notes else set(), set()
    for notes in assignment.notes:
        times, archived = notes.get(sub, NOTHING).tried.get(each.offset, (0, False))
        counts.add(times)
        copied.add(archived)
    before = assignment.remembered
    while before is not None:
        known = before.deliveries[sub].get(each.offset)
        if known is None or known.fate is not each.fate:
            before = before.remembered
            continue
        counts.add(known.tries_most)
        copied.add(known.archived or known.fate.copied)
        break
    each.tries, each.tries_most = min(counts), max(counts)
    each.archived = copied == {True}


@lru_cache(maxsize=1_000)
def notes_of(text: str, position: int, whose: Whose) -> dict[str, Notes]:
    """Return the notes of lanes and records in a commit text, or none if it is of another log."""
    try:
        return read_notes(text, position, whose)
    except CommitTextError:
        return {}


def noted(entry: tuple[int, str] | None, start: int, log: LogModel) -> dict[str, Notes]:
    """Return the notes of an entry for an assignment that begins at ``start``.

    Notes of records beyond the end of the log are of another log. Records below ``start`` were
    removed by retention and do not run.
    """
    if entry is None:
        return {}

    def there(of: Mapping[int, _T]) -> dict[int, _T]:
        return {at: each for at, each in of.items() if start <= at <= log.last}

    return {
        sub: notes._replace(tried=there(notes.tried), running=there(notes.running))
        for sub, notes in notes_of(entry[1], entry[0], log.whose).items()
    }


def hash_of(topic: str, partition: int, key: bytes | None) -> bytes:
    """Return the hash of a lane in commit metadata, computed from the format's description."""
    if key is None:
        key = b"\x00null".ljust(65, b"\x00")
    name = topic.encode()
    return lane_hash(b"%d:%b%d:%b" % (len(name), name, partition, key))
