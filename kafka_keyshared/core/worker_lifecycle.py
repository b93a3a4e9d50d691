"""Workers coming and going: whoever joins gets its slots when they have drained, whoever leaves
keeps its own until its last lease has ended.

Both is the same rule: at no time do two workers have leases of one key.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.core import failures, returns
from kafka_keyshared.core.commands import (
    AbandonWorker,
    Command,
    Halt,
    Level,
    Notice,
    ReplaceWorker,
    StartWorker,
)
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker, WorkerEvent, WorkerState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record, counted

EVICT_AFTER = 6
"""Beats without a live thread or process after which a worker's keys go to the others."""

# --- joining ---


def join(sub: Subscription, name: str) -> list[Command]:
    """Add a worker. It takes its slots from the others, and starts when they have drained there.

    What waits in its slots waits in its row from now on, which has no holder until then.
    """
    if name in (worker.name for worker in sub.workers.values()):
        raise ConfigError(f"subscription {sub.name!r} has a worker {name!r} already")
    sub.gone.pop(name, None)
    sub.mixed = True
    others = [*sub.workers.values()]
    joined = sub.add(name, WorkerState.JOINING)
    sub.changing.append(joined)
    sub.table.project(sub.workers.values())
    for worker in others:
        _hand_over(sub, worker)
    slots = {slot for slot, owner in enumerate(sub.table.owners) if owner == joined.id}
    commands: list[Command] = [StartWorker(sub.name, joined.id, name)]
    commands += returns.recall(sub, others, returns.of_slots(sub, slots))
    _start_drained(sub)
    return commands


def _hand_over(sub: Subscription, worker: Worker) -> None:
    """Move what waits at a worker and is not in its slots any more to those who have them.

    It is younger than what its slots still have at the worker and comes back later: so it stays
    behind the place where that is put.
    """
    backlog = worker.row.merge()
    kept: list[Record] = []
    moved: dict[int, list[Record]] = {}
    for record in backlog.records:
        owner = sub.owner(record)
        (kept if owner is worker else moved.setdefault(owner.id, [])).append(record)
    backlog.replace(kept)
    for id_, records in moved.items():
        sub.workers[id_].row.backlog.extend(records)
    granted, worker.row.granted = worker.row.granted, []
    for grant in granted:
        sub.owner(grant[1]).row.granted.append(grant)
    _hand_heads_over(sub, worker)


def _hand_heads_over(sub: Subscription, worker: Worker) -> None:
    """Let the lanes that are to run again at the worker do so at whoever owns their slots now."""
    heads = list(worker.row.retries)
    worker.row.retries.clear()
    for closed in heads:
        if closed.head is not None:
            sub.owner(closed.head).row.ready(closed)


def _start_drained(sub: Subscription) -> None:
    """Let workers start whose slots have drained."""
    for joined in sub.changing[:]:
        if joined.state is WorkerState.JOINING and not any(
            _has_of(sub, worker, joined) for worker in sub.workers.values()
        ):
            sub.changing.remove(joined)
            joined.on(WorkerEvent.DRAINED)


def _has_of(sub: Subscription, worker: Worker, joined: Worker) -> bool:
    """Say whether a worker has leases in the slots of another one."""
    if worker is joined:
        return False
    owners, keys = sub.table.owners, sub.keys
    return any(
        (key := keys.key(leased.slice.came[index])) is not None
        and owners[keys.slot(key)] == joined.id
        for leased in worker.slices.values()
        for index in leased.indices()
    )


# --- leaving ---


def eviction(sub: Subscription, dead: Sequence[int]) -> list[Command]:
    """Replace workers that are gone under the same name; evict after six beats.

    Eviction redelivers: what the worker held runs again elsewhere. (Danube's dispatcher settles it
    instead, which loses it.)
    """
    commands: list[Command] = []
    for worker in [*sub.workers.values()]:
        if worker.id not in dead:
            worker.idle_beats = 0
            continue
        worker.idle_beats += 1
        if worker.idle_beats < EVICT_AFTER:
            worker.restarts += 1
            commands.append(ReplaceWorker(sub.name, worker.id))
        elif worker.present:
            commands += evict(sub, worker)
    return commands


def evict(sub: Subscription, worker: Worker) -> list[Command]:
    """Give up a worker that could not be restarted."""
    others = [other for other in sub.workers.values() if other.present and other is not worker]
    if not others:
        return [Halt(f"{worker.name} could not be restarted and there is no other worker")]
    text = (
        f"{worker.name} could not be restarted in {EVICT_AFTER} heartbeats; its keys go to the "
        f"{counted(len(others), 'worker')} left, what it held runs again"
    )
    return _leave(sub, worker, WorkerEvent.EVICTED, Notice(Level.ERROR, text))


def departures(sub: Subscription, left: Sequence[int]) -> list[Command]:
    """Give the keys of members that have left to the others."""
    commands: list[Command] = []
    for id_ in left:
        worker = sub.workers.get(id_)
        others = (other for other in sub.workers.values() if other.id not in left)
        if worker is not None and worker.present and any(other.present for other in others):
            text = (
                f"{worker.name} has left; its keys go to the others, what it had not settled "
                "runs again"
            )
            commands += _leave(sub, worker, WorkerEvent.LEFT, Notice(Level.INFO, text))
    return commands


def _leave(sub: Subscription, worker: Worker, event: WorkerEvent, notice: Notice) -> list[Command]:
    """Give up a worker. Its slots move when its last lease has ended, and only its slots."""
    worker.on(event)
    if worker not in sub.changing:
        sub.changing.append(worker)
    commands: list[Command] = [*returns.recall(sub, [worker]), notice]
    return commands if worker.recalls else [*abandon(sub, worker), *commands]


def abandon(sub: Subscription, worker: Worker) -> list[Command]:
    """Have the pool report what a worker that leaves still has: it has answered its recall."""
    if not worker.slices:
        _give_slots_away(sub, worker)
    return [AbandonWorker(sub.name, worker.id)]


def slice_ended(sub: Subscription, id_: int) -> None:
    """See to what may have waited for the end of a slice of this worker."""
    worker = sub.workers[id_]
    if worker.state is WorkerState.LEAVING and not worker.slices and not worker.recalls:
        _give_slots_away(sub, worker)
    _start_drained(sub)


def recall_answered(sub: Subscription, worker: Worker) -> list[Command]:
    """Go on with whoever leaves or joins, now that unstarted leases have come back."""
    _start_drained(sub)
    if worker.state is WorkerState.LEAVING and not worker.recalls:
        return abandon(sub, worker)
    return []


def _give_slots_away(sub: Subscription, worker: Worker) -> None:
    """Give the slots of a worker to the others, now that all its leases have ended.

    Not sooner: what it was running has failed and must close its lane before the next one starts.
    """
    # Lanes first: what waits in them is older than what their keys have in the worker's backlog.
    for closed in list(sub.closed.lanes.values()):
        if closed.fence_at == worker.id:
            closed.fence_at = None
            failures.advance(sub, closed)
    sub.mixed = True
    worker.on(WorkerEvent.EMPTIED)
    sub.changing.remove(worker)
    sub.drop(worker)
    sub.table.project(sub.workers.values())
    granted, worker.row.granted = worker.row.granted, []
    waiting: list[Record] = worker.row.merge().take(len(worker.row))[0]
    for _, record in granted:
        sub.put_back([record])
        sub.give_back(record)
    sub.put_back(waiting)
    _hand_heads_over(sub, worker)
