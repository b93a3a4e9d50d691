"""The stored form of a batch of replayed dead letters.

It is ``{"PARTITION:OFFSET": "MARK", ...}``. The mark is a hash of the dead letter, so it matches
nothing in a recreated topic of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_keyshared.dlq.letter import LetterPlace


def told_of(marks: Mapping[LetterPlace, int]) -> dict[str, str]:
    """Return a batch in its stored form."""
    return {str(place): f"{mark:016x}" for place, mark in marks.items()}


def marks_in(batch: Mapping[str, Any]) -> list[int]:
    """Return the marks of a batch; raise ValueError, TypeError or AttributeError if invalid."""
    return [int(mark, 16) for mark in batch.values()]


def places_in(batch: Mapping[str, Any]) -> list[LetterPlace]:
    """Return the places of a batch; raise ValueError for an invalid one."""
    return [LetterPlace(*map(int, at.split(":"))) for at in batch]
