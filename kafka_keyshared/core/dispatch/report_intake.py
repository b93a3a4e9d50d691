"""Dispatch of a pool's reports on leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.slices import Book, SliceState
from kafka_keyshared.core.failures import failed_attempts
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.meters import Meters
from kafka_keyshared.core.worker_changes import slot_draining, state_transfer, worker_lifecycle


def take_reports(
    reports: Iterable[ev.Report],
    subscriptions: Mapping[str, Subscription],
    book: Book,
    meters: Meters,
    now: float,
) -> tuple[list[Command], dict[str, Subscription]]:
    """Apply reports, oldest first; return the commands that follow, and the subscriptions."""
    commands: list[Command] = []
    touched: dict[str, Subscription] = {}
    drained: dict[str, slot_draining.Ended] = {}
    for report in reports:
        if isinstance(report, ev.SliceEnded | ev.SomeEnded):
            leased = book.find(report.slice)
            sub = subscriptions[leased.slice.subscription]
            some = _ended(sub, leased, report, meters, now)
            if sub.draining.count and slot_draining.is_waited_for(sub, leased):
                drained.setdefault(sub.name, []).append((leased, some))
        elif isinstance(report, ev.FencePassed):
            sub = subscriptions[report.subscription]
            failed_attempts.fence_passed(sub, report)
        elif isinstance(report, ev.Released):
            sub = subscriptions[report.subscription]
            commands += state_transfer.released(sub, report)
        else:
            leased = book.find(report.slice, report.index)
            sub = subscriptions[leased.slice.subscription]
            if isinstance(report, ev.Failed):
                commands += failed_attempts.failed(sub, leased, report, now)
            else:
                failed_attempts.set_aside(sub, leased, report)
        touched[sub.name] = sub
    # In one call, so that the originals of these records are looked up once.
    for name, those in drained.items():
        slot_draining.ended(touched[name], those)
    # Last: the state of drained slots has to be requested before a leaving worker is gone.
    for sub in touched.values():
        if sub.changing:
            commands += worker_lifecycle.slice_ended(sub)
    return commands, touched


def _ended(
    sub: Subscription,
    leased: SliceState,
    report: ev.SliceEnded | ev.SomeEnded,
    meters: Meters,
    now: float,
) -> Sequence[int] | None:
    """End leases of a slice; return their indices, None if the slice has no others left."""
    if isinstance(report, ev.SliceEnded):
        failed_attempts.ended(sub, leased, report)
        meters.ended(sub.counts, leased, leased.indices(), report.seconds, now)
        return None
    meters.ended(sub.counts, leased, report.indices, report.seconds, now)
    failed_attempts.some_ended(sub, leased, report)
    return report.indices
