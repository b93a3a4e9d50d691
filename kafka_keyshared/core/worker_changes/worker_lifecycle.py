"""Workers that join and leave.

Their slots move at once, and drain if they have leases (:mod:`.slot_draining`). So two workers
never have leases of one key at the same time. A leaving worker gets no new leases, and is gone when
its last lease has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_keyshared.core.contract.commands import (
    AbandonWorker,
    Command,
    EndWorker,
    Halt,
    Notice,
    ReplaceWorker,
    StartWorker,
)
from kafka_keyshared.core.contract.events import Tick
from kafka_keyshared.core.contract.facts import (
    LastWorkerDead,
    WorkerDeparted,
    WorkerEvicted,
    WorkersAllLeft,
)
from kafka_keyshared.core.leasing import recall
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import slot_draining, state_transfer
from kafka_keyshared.core.workers.worker import Worker, WorkerEvent, WorkerState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition

EVICT_AFTER = 6
"""Heartbeats without a successful restart after which a worker's keys go to the others."""

Partitions = Mapping[TopicPartition, PartitionState]


def resize(
    sub: Subscription,
    names: Collection[str],
    partitions: Partitions,
    filters: Sequence[str | bytes] | None = None,
) -> list[Command]:
    """Change the subscription to exactly these workers: missing ones join, others leave.

    The table changes once for all of them. A name may be that of a worker that is still leaving.
    ``filters`` are the keys of the joining workers; None: their declared filters, or every key.

    Raises :class:`ConfigError`, and changes nothing, if there are no names, or an empty or repeated
    one.
    """
    if not names or "" in names or len(set(names)) < len(names):
        raise ConfigError(
            f"subscription {sub.name!r} cannot have the workers {list(names)}: give at least one "
            "name, none of them empty or twice"
        )
    present = {worker.name: worker for worker in sub.workers.values() if worker.present}
    joining = [name for name in names if name not in present]
    declared = sub.routing.declared_with(joining, filters)
    commands: list[Command] = [_add(sub, name, partitions) for name in joining]
    leaving = [worker for name, worker in present.items() if name not in names]
    for worker in leaving:
        _send_away(sub, worker, WorkerEvent.DISMISSED)
    if commands or leaving:
        commands += slot_draining.change(sub, filters=declared)
        commands += recall.recall(sub, leaving)
        commands += _gone(sub)
    return commands


# --- joining ---


def join(
    sub: Subscription,
    name: str,
    partitions: Partitions,
    filters: Sequence[str | bytes] | None = None,
) -> list[Command]:
    """Add a worker, which takes its slots from the others.

    Raises :class:`ConfigError`, and changes nothing, if the name is in use or the worker cannot
    have the filters.
    """
    names = [worker.name for worker in sub.workers.values() if worker.present]
    if name in names:
        raise ConfigError(f"subscription {sub.name!r} has a worker {name!r} already")
    return resize(sub, [*names, name], partitions, filters)


def _add(sub: Subscription, name: str, partitions: Partitions) -> StartWorker:
    waits = sub.settings.new_workers_wait and sub.window.records > 0
    joined = sub.routing.add(name, WorkerState.JOINING if waits else WorkerState.ACTIVE)
    sub.gone.pop(name, None)
    if waits:
        sub.changing.append(joined)
        ends = {each: state.received_end for each, state in partitions.items()}
        joined.joined_at = {each: end for each, end in ends.items() if end is not None}
    return StartWorker(sub.name, joined.id, name)


def caught_up(sub: Subscription) -> None:
    """Activate joining workers once all records received before they joined are settled.

    If no active worker is left, those that have caught up become active. If none have, all joining
    workers do.
    """
    joining = [worker for worker in sub.changing if worker.state is WorkerState.JOINING]
    if not joining:
        return
    held = [(each, record.offset()) for each, record in sub.unsettled.records({})]
    found = [
        worker
        for worker in joining
        if not any(offset < worker.joined_at.get(each, 0) for each, offset in held)
    ]
    if not any(worker.state is WorkerState.ACTIVE for worker in sub.workers.values()):
        found = found or joining
    for worker in found:
        sub.changing.remove(worker)
        worker.on(WorkerEvent.CAUGHT_UP)
        worker.end_later()
        worker.joined_at = {}
        sub.routing.mixed = True


# --- leaving ---


def eviction(sub: Subscription, beat: Tick) -> list[Command]:
    """Replace dead workers under the same name; evict those not back within six heartbeats.

    A worker that comes back and dies again starts a new count. It dies of records, and those have
    limited attempts.
    """
    commands: list[Command] = []
    for worker in [*sub.workers.values()]:
        place = sub.name, worker.id
        dead = place in beat.dead_workers
        if not dead or place in beat.revived:
            worker.idle_beats = 0
        if not dead:
            continue
        worker.idle_beats += 1
        if worker.idle_beats < EVICT_AFTER:
            worker.restarts += 1
            commands.append(ReplaceWorker(sub.name, worker.id))
        elif worker.present:
            commands += evict(sub, worker)
        else:
            commands += _never_finishes(sub, worker)
    return commands


def _never_finishes(sub: Subscription, worker: Worker) -> list[Command]:
    """Give up a dismissed worker that died before it finished its leases."""
    if not worker.dismissed:
        return []
    worker.dismissed = False
    return _abandon(sub, worker)


def evict(sub: Subscription, worker: Worker) -> list[Command]:
    """Give up a worker that could not be restarted.

    Its leases run again at other workers, in order. With ``on_evict="ack"`` they count as settled
    and are lost instead, the rule of Danube's dispatcher.
    """
    others = [other for other in sub.workers.values() if other.present and other is not worker]
    if not others:
        return [Halt(LastWorkerDead(worker.name))]
    worker.evicted = True
    worker.written_off = sub.settings.on_evict == "ack"
    evicted = WorkerEvicted(
        worker.name, EVICT_AFTER, len(others), worker.leased, worker.written_off
    )
    return _leave(sub, worker, WorkerEvent.EVICTED, Notice(evicted))


def departures(sub: Subscription, left: Sequence[int]) -> list[Command]:
    """Give the keys of members that left to the others; warn once if there is no other."""
    commands: list[Command] = []
    for id_ in left:
        worker = sub.workers.get(id_)
        others = (other for other in sub.workers.values() if other.id not in left)
        if worker is not None and not worker.present:
            commands += _never_finishes(sub, worker)
        elif worker is not None and any(other.present for other in others):
            commands += _leave(sub, worker, WorkerEvent.LEFT, Notice(WorkerDeparted(worker.name)))
    last = [each for each in sub.workers.values() if each.present and each.id in left]
    if any(not each.alone for each in last):
        for each in last:
            each.alone = True
        commands.append(Notice(WorkersAllLeft([each.name for each in last])))
    return commands


def _leave(sub: Subscription, worker: Worker, event: WorkerEvent, notice: Notice) -> list[Command]:
    """Give up a worker: others get its slots as they drain, and its unstarted records."""
    _send_away(sub, worker, event)
    kept = () if worker.written_off else recall.recall(sub, [worker])
    commands = [*slot_draining.change(sub), *kept, notice]
    return [*commands, *_abandon(sub, worker)]


def _send_away(sub: Subscription, worker: Worker, event: WorkerEvent) -> None:
    worker.on(event)
    worker.dismissed = event is WorkerEvent.DISMISSED
    if worker not in sub.changing:
        sub.changing.append(worker)


def _abandon(sub: Subscription, worker: Worker) -> list[Command]:
    """Abandon a worker in the pool, which then reports its remaining leases.

    The worker must have answered its recall. Its running records have failed, and each must close
    its lane before the next record of it starts. So its slots drain until they are reported.
    """
    if worker.recalls or worker.dismissed:
        return []
    lost = () if sub.hand_overs is None else state_transfer.lost(sub, sub.hand_overs, worker)
    return [AbandonWorker(sub.name, worker.id, worker.written_off), *lost, *_gone(sub)]


def recall_answered(sub: Subscription, worker: Worker) -> list[Command]:
    """Continue the departure of a worker after its unstarted leases have come back."""
    if worker.state is not WorkerState.LEAVING:
        return []
    return _gone(sub) if worker.dismissed else _abandon(sub, worker)


def slice_ended(sub: Subscription) -> list[Command]:
    """Remove workers that were waiting for the end of a slice."""
    return _gone(sub)


def _gone(sub: Subscription) -> list[Command]:
    """Remove leaving workers that have no leases and no recall to answer."""
    commands: list[Command] = []
    for worker in sub.changing[:]:
        if worker.state is not WorkerState.LEAVING or worker.slices or worker.recalls:
            continue
        if sub.hand_overs is None or not worker.dismissed or not sub.hand_overs.asked(worker):
            for closed in list(sub.closed.lanes.values()):
                if closed.fence_at == worker.id:
                    closed.fence_at = None
                    advance(sub, closed)
            worker.on(WorkerEvent.EMPTIED)
            sub.changing.remove(worker)
            sub.routing.drop(worker)
            commands.append(EndWorker(sub.name, worker.id))
    return commands
