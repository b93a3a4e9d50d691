"""Construction of findings, and the wording of places and keys."""

from __future__ import annotations

from typing import Any, Protocol

from kafka_keyshared.observability.diagnosis.causes import Cause
from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.status import SubscriptionStatus


class LogPlace(Protocol):
    """An object with a position in a log."""

    @property
    def topic(self) -> str:
        """Return its topic."""

    @property
    def partition(self) -> int:
        """Return its partition."""

    @property
    def offset(self) -> int:
        """Return its offset."""


def place(at: LogPlace) -> str:
    """Return a record's place as the log names it."""
    return f"{at.topic}-{at.partition}@{at.offset}"


def key_of(key: str | None, slot: int | None) -> str:
    """Return a key in words: its text, its slot if it is hidden, or that there is none."""
    if key is not None:
        return f"key {key!r}"
    return "a record without a key" if slot is None else f"a key of slot {slot:#06x}"


def found(
    cause: Cause,
    sentence: str,
    *,
    sub: SubscriptionStatus | None = None,
    at: LogPlace | None = None,
    **more: Any,
) -> Finding:
    """Return a finding of the cause. ``at`` is the record that it is about, with its attributes."""
    told: dict[str, Any] = {
        name: value
        for name in ("topic", "partition", "offset", "key", "slot", "seconds")
        if (value := getattr(at, name, None)) is not None
    }
    told.setdefault("level", cause.level)
    return Finding(
        code=cause.code,
        number=cause.number,
        sentence=sentence,
        cause=cause.means,
        cure=cause.cure,
        page=cause.page,
        subscription="" if sub is None else sub.name,
        **(told | more),
    )
