"""How a batch of replayed letters is written down: ``{"PARTITION:OFFSET": "MARK", ...}``.

The mark is a hash of the letter, so it says nothing about a topic of the same name that was made
anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_keyshared.dlq.letter import LetterPlace


def told_of(marks: Mapping[LetterPlace, int]) -> dict[str, str]:
    """Return a batch as it is written."""
    return {str(place): f"{mark:016x}" for place, mark in marks.items()}


def marks_in(batch: Mapping[str, Any]) -> list[int]:
    """Return the marks of a batch; raise ValueError, TypeError or AttributeError where none is."""
    return [int(mark, 16) for mark in batch.values()]


def places_in(batch: Mapping[str, Any]) -> list[LetterPlace]:
    """Return the places of a batch; raise ValueError for what names none."""
    return [LetterPlace(*map(int, at.split(":"))) for at in batch]
