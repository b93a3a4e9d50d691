"""The step that leases what may start in a subscription."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.backpressure.pause_rules import stop_lettered, weigh_closed, weigh_parked
from kafka_keyshared.core.contract.commands import Command, RecordsDropped
from kafka_keyshared.core.failures import outage, undecodable
from kafka_keyshared.core.failures.divert import next_letters, recognise
from kafka_keyshared.core.leasing import drop_when_full, shared_workers, unmatched_records
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import slot_draining, state_transfer


@dataclass(frozen=True, slots=True)
class LeaseStep:
    """The step as part of one event. Its fields are the context that all its parts share.

    ``holds`` are the reasons why partitions are paused. ``assigned`` is the number of partitions.
    ``now`` is in monotonic seconds. ``wall_offset`` turns it into seconds since 1970; it is None
    before the first heartbeat.
    """

    holds: Holds
    assigned: int
    now: float
    wall_offset: float | None

    def run(self, sub: Subscription) -> list[Command]:
        """Settle what cannot start, lease what can, and weigh what waits.

        The dispatcher runs it once per event and subscription, never per record. Without anything
        new it does nothing, so an event that may have changed something simply runs it.
        """
        commands = self._routed(sub)
        commands += self._before_leases(sub)
        commands += self._leases(sub)
        if sub.diverted.due or sub.diverted.to_fence:
            commands += next_letters(sub, self.now, self.wall_offset)
        # Last: leases take records of closed lanes to their lanes, and these may be too many now.
        look = sub.look_ahead
        if (sub.closed.lanes or look.slow or sub.routing.has_gaps) and look.due(self.now):
            commands += weigh_closed(self.holds, sub, self.assigned, self.now)
        return commands

    def _routed(self, sub: Subscription) -> list[Command]:
        """Follow up on records that have just been routed: parked, without a key, or unreadable."""
        commands: list[Command] = []
        if sub.parking or self.holds.held_back(Reason.SET_FULL):
            commands += weigh_parked(self.holds, sub, self.now)
        if sub.keys.refused or sub.keys.unread:
            commands += undecodable.routed(sub, self.holds, self.now, self.wall_offset)
        if sub.keys.keyless is not None and sub.keys.keyless.news:
            commands += sub.keys.keyless.tell()
        return commands

    def _leases(self, sub: Subscription) -> Iterable[Command]:
        """Lease all records that may start now.

        These are none when the subscription has stopped, and only a probe while it waits for a
        dependency.
        """
        if sub.stopped:
            return ()
        if (breaker := sub.breaker) is not None and breaker.open:
            commands = outage.probe(sub, breaker, self.now)
            if breaker.open:
                return commands
        if sub.shared is None:
            return sub.lease_rows()
        return shared_workers.lease_shards(sub, sub.shared)

    def _before_leases(self, sub: Subscription) -> list[Command]:
        """Bring records to their rows, and keep those from starting that must not."""
        if sub.draining.cleared:
            slot_draining.open_cleared(sub, self.now)
        if sub.diverted.arrived:
            recognise(sub)
        commands: list[Command] = []
        if (breaker := sub.breaker) is not None and (breaker.suspected or breaker.over):
            commands += outage.news(sub, breaker, self.now)
        if sub.dlq_watch is not None and sub.dlq_watch.reached:
            commands += stop_lettered(self.holds, sub, sub.dlq_watch)
        if sub.hand_overs is not None and (sub.hand_overs.waiting or sub.hand_overs.back):
            commands += state_transfer.ask(sub, sub.hand_overs)
        if sub.routing.has_gaps:
            commands += unmatched_records.look(sub, self.now)
        if not sub.settings.at_least_once:
            commands += drop_when_full.shed(sub, self.now)
        # The row about a dropped record is written before the next record of its key starts.
        if sub.dropped:
            commands.append(RecordsDropped(sub.name, sub.dropped))
            sub.dropped = []
        return commands
