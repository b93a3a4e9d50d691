"""Findings about hot keys, which get more records than one worker runs.

A hot key is named as soon as it holds its partition back, while the other partitions continue.
:mod:`.limits` names one that keeps the whole backlog from falling.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.model import counted, does, some
from kafka_keyshared.observability.diagnosis import causes
from kafka_keyshared.observability.diagnosis.finding_text import found, key_of
from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.shared_status import HotKey
from kafka_keyshared.status import PartitionStatus, Status, SubscriptionStatus

HELD = 5.0
"""Minimum seconds for which a hot key holds its partition back. A short burst ends earlier."""

SHARE_LEAST = 4
"""A hot key holds its partition back if one record in this many held ones waits for it."""

NAMED = 3

_HOLDS = (str(Reason.WAITING), str(Reason.BLOCKED))


def hot_keys(status: Status) -> Iterator[Finding]:
    """Yield a finding for each subscription with hot keys that hold partitions back."""
    for sub in status.subscriptions:
        held = [
            (hot, those)
            for hot in _hot(sub)
            if hot.waiting * SHARE_LEAST >= sub.records and (those := held_by(hot, sub, status))
        ]
        if not held:
            continue
        hot, those = held[0]
        seconds, first = max(those, key=lambda each: each[0])
        if seconds < HELD:
            continue
        names = some((f"{each.topic}-{each.partition}" for _, each in those), NAMED)
        key = key_of(hot.key, hot.slot)
        text = (
            f"{key} {rates(hot)}; {counted(hot.waiting, 'record')} of it "
            f"{does(hot.waiting, 'wait')}, so {names} "
            f"{'is' if len(those) == 1 else 'are'} held back; other partitions go on"
        )
        yield found(
            causes.HOT_KEY,
            text,
            sub=sub,
            topic=first.topic,
            partition=first.partition,
            key=hot.key,
            slot=hot.slot,
            seconds=seconds,
            count=hot.waiting,
        )


def hot_key_of(sub: SubscriptionStatus, slot: int | None) -> HotKey | None:
    """Return the hot key of a slot, None if it has none."""
    return next((each for each in _hot(sub) if each.slot == slot), None)


def rates(hot: HotKey) -> str:
    """Return the share of a hot key, its rate and its capacity, in words."""
    text = f"has {hot.share:.0%} of what arrives, {_per_second(hot.rate)} records/s"
    if hot.capacity is None:
        return text
    return f"{text}, and one worker runs {_per_second(hot.capacity)} records/s of it"


def held_by(
    hot: HotKey, sub: SubscriptionStatus, status: Status
) -> list[tuple[float, PartitionStatus]]:
    """Return the partitions of a hot key that are held back, with their seconds.

    If keys are blocked or diverted, a partition can be held back because of those instead.
    """
    blocked = any(sub.lanes.get(state) for state in ("blocked", "diverted", "diverting", "stuck"))
    reasons = _HOLDS[:1] if blocked else _HOLDS
    return [
        (seconds, each)
        for each in status.partitions
        if (each.topic, each.partition) in hot.partitions
        for reason, seconds in zip(each.held_back, each.held_seconds, strict=False)
        if reason in reasons
    ]


def _hot(sub: SubscriptionStatus) -> tuple[HotKey, ...]:
    return () if sub.shared is None else sub.shared.hot_keys


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
