"""Leases and dead letters that a subscription emits after each event."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.backpressure.pause_rules import stop_lettered, weigh_closed, weigh_parked
from kafka_keyshared.core.contract.commands import Command, RecordsDropped
from kafka_keyshared.core.failures import undecodable
from kafka_keyshared.core.failures.divert import next_letters, recognise
from kafka_keyshared.core.leasing import drop_when_full, shared_workers, unmatched_records
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import slot_draining, state_transfer


def go_on(
    sub: Subscription, holds: Holds, assigned: int, now: float, wall_offset: float | None
) -> list[Command]:
    """Weigh parked records, handle undecodable and unread keys, and lease what may start."""
    commands: list[Command] = []
    if sub.parking or holds.held_back(Reason.SET_FULL):
        commands += weigh_parked(holds, sub, now)
    if sub.keys.refused or sub.keys.unread:
        commands += undecodable.routed(sub, holds, now, wall_offset)
    if sub.keys.keyless is not None and sub.keys.keyless.news:
        commands += sub.keys.keyless.tell()
    return commands + hand_out(sub, holds, assigned, now, wall_offset)


def hand_out(
    sub: Subscription, holds: Holds, assigned: int, now: float, wall_offset: float | None
) -> list[Command]:
    """Handle records without a worker and return the commands that go out now.

    Afterwards the records behind closed lanes are weighed if they may exceed their bound.

    ``assigned`` is the number of partitions. ``wall_offset`` turns ``now`` into seconds since 1970.
    """
    if sub.draining.cleared:
        slot_draining.open_cleared(sub, now)
    if sub.diverted.arrived:
        recognise(sub)
    commands: list[Command] = []
    if sub.dlq_watch is not None and sub.dlq_watch.reached:
        commands += stop_lettered(holds, sub, sub.dlq_watch)
    if sub.hand_overs is not None and (sub.hand_overs.waiting or sub.hand_overs.back):
        commands += state_transfer.ask(sub, sub.hand_overs)
    if sub.routing.has_gaps:
        commands += unmatched_records.look(sub, now)
    commands += drop_when_full.shed(sub, now)
    if sub.dropped:
        commands.append(RecordsDropped(sub.name, sub.dropped))
        sub.dropped = []
    commands += _leases(sub)
    if sub.diverted.due or sub.diverted.to_fence:
        commands += next_letters(sub, now, wall_offset)
    look = sub.look_ahead
    if (sub.closed.lanes or look.slow or sub.routing.has_gaps) and look.due(now):
        commands += weigh_closed(holds, sub, assigned, now)
    return commands


def _leases(sub: Subscription) -> Iterable[Command]:
    """Lease all records that may start now; none when the subscription has stopped."""
    if sub.stopped:
        return ()
    return sub.flush() if sub.shared is None else shared_workers.flush(sub, sub.shared)
