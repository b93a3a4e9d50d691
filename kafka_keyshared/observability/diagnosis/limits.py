"""The limit of a member's throughput, if its backlog does not fall.

A falling backlog with all workers busy is no fault. A finding needs a backlog that has not fallen
in a minute and that would take some time to process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kafka_keyshared.observability.diagnosis import causes
from kafka_keyshared.observability.diagnosis.finding_text import found, key_of
from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.observability.diagnosis.hot import hot_key_of, rates
from kafka_keyshared.status import Lately, Status

WORK_LEAST = 10.0
RECORDS_LEAST = 1_000
"""Minimum backlog: the records settled in this many seconds, and this many records."""

BUSY = 0.8
"""Share of busy workers from which they are the limit. They are idle between two slices."""
IDLE = 0.5
FULL = 0.8
ROOM = 0.2
"""Shares of the time for which the window was full."""
HOT = 0.5
"""Share of one key in all held records."""

_EXPLAINED = frozenset(
    {
        *(causes.LOOP_SILENT.code, causes.BROKERS_AWAY.code, causes.COORDINATOR_LOST.code),
        *(causes.REBALANCE.code, causes.PAUSED.code, causes.DLQ_LIMIT.code),
        *(causes.KEY_UNREADABLE.code, causes.SET_FULL.code, causes.WORKER_ABSENT.code),
        *causes.OUTAGES,
    }
)
"""Causes that make a backlog grow regardless of the limit."""


def limits(status: Status, named: Collection[str]) -> Iterator[Finding]:
    """Yield at most one limit. ``named`` are the codes found so far."""
    lately = status.lately
    backlogs = [each.backlog for each in status.partitions if each.backlog is not None]
    if lately is None or not _EXPLAINED.isdisjoint(named) or len(backlogs) != lately.partitions:
        return
    backlog = sum(backlogs)
    per_second = lately.settled / lately.seconds
    if backlog < max(RECORDS_LEAST, WORK_LEAST * per_second) or backlog < lately.backlog:
        return
    grows = (
        f"a backlog of {backlog:,} has not fallen in {lately.seconds:.0f} s at "
        f"{per_second:,.0f} records/s"
    )
    yield from _which(status, lately, grows, named)


def _which(status: Status, lately: Lately, grows: str, named: Collection[str]) -> Iterator[Finding]:
    seconds = lately.seconds
    share = f"{lately.busy:.0%} of the workers were busy"
    if causes.HOT_KEY.code in named and lately.busy < BUSY:
        return
    for sub in status.subscriptions:
        if len(sub.workers) > 1 and lately.busy < IDLE and sub.hottest > HOT * sub.records > 0:
            key = key_of(sub.hottest_key, sub.hottest_slot)
            text = f"{grows}: {sub.hottest:,} of the {sub.records:,} held are of {key}"
            hot = hot_key_of(sub, sub.hottest_slot)
            text += f"; {share}" if hot is None else f", which {rates(hot)}; {share}"
            yield found(
                causes.HOT_KEY,
                text,
                sub=sub,
                key=sub.hottest_key,
                slot=sub.hottest_slot,
                seconds=seconds,
                count=sub.hottest,
            )
            return
    if lately.busy >= BUSY:
        yield found(causes.WORKERS_LIMIT, f"{grows}: {share}", seconds=seconds)
    elif lately.busy < IDLE and lately.full >= FULL:
        text = f"{grows}: the window is full, and {share}"
        yield found(causes.WINDOW_FULL, text, seconds=seconds)
    elif lately.busy < IDLE and lately.full < ROOM:
        text = f"{grows}: {lately.fetched:,} were fetched in that time, and {share}"
        yield found(causes.BROKER_LIMIT, text, seconds=seconds)
