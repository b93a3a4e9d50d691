"""Outages of a dependency of the handler.

While the circuit breaker of a subscription is open, nothing starts but probes, and nothing is
fetched. Failures that show the outage use up no attempt. When the breaker opens, unstarted records
are taken back from the workers. Otherwise each of them would fail once against the dependency.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract.commands import Command, Notice
from kafka_keyshared.core.contract.facts import OutageBegan, OutageEnded
from kafka_keyshared.core.lanes.closed import TRIED_AGAIN, ClosedLane, LaneState
from kafka_keyshared.core.leasing.recall import recall
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.limits.circuit_breaker import CircuitBreaker, Outage
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import TopicPartition

ONE_ERROR = 0.5
"""Share of the failures that one error needs, so that one dependency is their cause."""


def beat(
    sub: Subscription,
    breaker: CircuitBreaker,
    holds: Holds,
    partitions: Collection[TopicPartition],
    now: float,
) -> None:
    """Suspect an outage where most attempts fail; hold all partitions back during one."""
    if breaker.open:
        breaker.hurry(now)
        holds.hold_back(Reason.DEPENDENCY, partitions, sub.name)
        return
    breaker.look(now)
    holds.let_go(Reason.DEPENDENCY, holds.held_back_by(Reason.DEPENDENCY, sub.name), sub.name)
    for rate in sub.failure_watch.rates:
        whole = not rate.topic and rate.partition is None
        if rate.what == "attempts" and whole and rate.error_share >= ONE_ERROR:
            outage = Outage(rate.error, rate.where, rate.message, now - rate.seconds)
            breaker.suspect(outage, now)


def news(sub: Subscription, breaker: CircuitBreaker, now: float) -> list[Command]:
    """Open the breaker for a suspected outage, and report one that has ended."""
    commands: list[Command] = []
    if breaker.over is not None:
        outage, breaker.over = breaker.over, None
        for closed in list(sub.closed.lanes.values()):
            if closed.due is not None and _shows(closed, outage):
                closed.in_row = 0  # its delay was for the outage
                sub.closed.wake_at(closed, now)
        fact = OutageEnded(sub.name, outage.error, now - outage.since, breaker.probes)
        commands.append(Notice(fact))
    if breaker.suspected is not None:
        outage = breaker.trip(now)
        for closed in sub.closed.lanes.values():
            if _shows(closed, outage):
                closed.give_attempts_back()
        began = OutageBegan(sub.name, outage.error, outage.where, outage.message)
        commands += [Notice(began), *recall(sub, sub.workers.values())]
    return commands


def _shows(closed: ClosedLane, outage: Outage) -> bool:
    """Return whether the outage is the reason why the lane's head runs again."""
    last = closed.last
    again = closed.state in TRIED_AGAIN
    return again and last is not None and (last.waits or last.error_type == outage.error)


def probe(sub: Subscription, breaker: CircuitBreaker, now: float) -> list[Command]:
    """Lease one record if a probe is due: the failed one that has waited longest.

    Without a failed record that could run again the breaker closes. The records that showed the
    outage have then gone with their partitions.
    """
    due = breaker.next_due()
    if due is None or now < due:
        return []
    if not any(worker.row.retries for worker in sub.workers.values()):
        waiting = sub.closed.first_waiting()
        if waiting is not None:
            sub.closed.cancel(waiting)
            advance(sub, waiting)
        elif not any(each.state in _MAY_PROBE for each in sub.closed.lanes.values()):
            breaker.close(now)
            return []
    for worker in sorted(sub.workers.values(), key=lambda worker: worker.leased):
        if worker.row.retries and worker.room():
            for command in sub.lease_heads(worker, 1):
                breaker.begin_probe(command.slice.id, now)
                return [command]
    return []


_MAY_PROBE = TRIED_AGAIN | {LaneState.STUCK}
