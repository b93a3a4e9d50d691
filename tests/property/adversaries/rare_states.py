"""Rare states that an event meets, counted, so that a test can say that they were reached."""

from __future__ import annotations

from collections import Counter

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import partition_of
from tests.support.core_harness import Harness


def note(reached: Counter[str], member: Harness, event: ev.Event) -> None:
    """Count what is rare about the state that an event meets."""
    for sub in member.core.subscriptions.values():
        lanes = sub.closed.lanes.values()
        if isinstance(event, ev.Recalled) and any(records for _, records in event.slices):
            reached["recall while a fence is pending"] += _remembers_failures(member, sub)
            reached["a retry is recalled"] += any(
                closed.attempt == id_ and closed.head is member.record(id_, at)
                for closed in lanes
                for id_, taken in event.slices
                for at in taken
            )
        if isinstance(event, ev.Revoking):
            waiting = any(closed.state is LaneState.WAITING for closed in lanes)
            reached["revoke while a retry waits"] += waiting
        if isinstance(event, ev.CommitDue):
            reached["parked beyond a ceiling"] += bool(sub.parking) and not sub.closing
            reached["unparked with an older backlog"] += _older_wait(sub)
        if isinstance(event, ev.Tick):
            reached["worker evicted"] += bool(sub.gone) or any(
                not worker.present for worker in sub.workers.values()
            )
        if isinstance(event, ev.Reported):
            reached["failure with later records leased"] += _overtaken(member, event)
            reached["granted at an eviction"] += _granted_to_the_gone(member, sub, event)
        reached["blocked"] += any(closed.state is LaneState.BLOCKED for closed in lanes)
    if isinstance(event, ev.Reported):
        reached["set aside"] += any(isinstance(each, ev.SetAside) for each in event.reports)
        reached["late failure of an old epoch"] += any(
            isinstance(each, ev.Failed) and _is_over(member, each) for each in event.reports
        )
    if isinstance(event, ev.DeadLetterAnswer) and event.error is None:
        reached["dead letter written after a failure"] += any(
            closed.publish_failures
            for sub in member.core.subscriptions.values()
            if (closed := sub.closed.get(event.publish.lane)) is not None
        )


def _granted_to_the_gone(member: Harness, sub: Subscription, event: ev.Reported) -> bool:
    """Whether, one lease per key, a lease ends behind which the next record goes to a gone one."""
    for report in event.reports:
        if isinstance(report, ev.SliceEnded):
            leased = member.core.leased(report.slice)
            slice_ = leased.slice
            if slice_.subscription == sub.name and not sub.workers[slice_.worker].present:
                return any(_waits(sub, sub.keys.lane(slice_.came[at])) for at in leased.indices())
    return False


def _is_over(member: Harness, report: ev.Failed) -> bool:
    leased = member.core.leased(report.slice)
    return member.sub(leased.slice.subscription).epochs.ended(leased, report.index)


def _waits(sub: Subscription, lane: Lane) -> bool:
    """Whether, one lease per key, a record waits for the end of the lane's lease."""
    waiting = sub.one_lease.waiting() if sub.one_lease is not None else ()
    return any(sub.keys.lane(each) == lane for each in waiting)


def _older_wait(sub: Subscription) -> bool:
    """Whether records of a partition wait in a backlog while newer ones of it are parked."""
    return any(
        partition_of(each) in sub.parking.parked and partition_of(each) not in sub.closing
        for worker in sub.workers.values()
        for each in worker.row.backlog.records
    )


def _remembers_failures(member: Harness, sub: Subscription) -> bool:
    workers = (member.worker(id_, sub.name) for id_ in sub.workers)
    return any(worker.failed.lanes for worker in workers)


def _overtaken(member: Harness, event: ev.Reported) -> bool:
    """Whether a failed record has later ones of its lane leased behind it."""
    for report in event.reports:
        if isinstance(report, ev.Failed):
            slice_ = member.core.leased(report.slice).slice
            lane_of = member.core.lanes(slice_.subscription)
            record = slice_.records[report.index]
            worker = member.worker(slice_.worker, slice_.subscription)
            return any(
                lane_of(leased.slice.came[at]) == lane_of(record)
                and leased.slice.records[at].offset() > record.offset()
                for leased in map(member.core.leased, worker.given)
                for at in leased.indices()
            )
    return False
