"""Detaching of long-running records where workers share a backlog.

A worker runs one record after the other. When one runs for longer than ``detach_after``, the
worker's other leases are recalled and the record is *detached*. Its lane is closed until it has
ended, and its shard is ready for other workers. So only its own key waits for it. (A record that is
stuck past the ack timeout is the same case, later. Its worker gets another thread; see
:mod:`.stuck`.)

The workers are looked at only while some record waits for one that runs.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.failures import stuck
from kafka_keyshared.core.leasing import recall
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.shards import Detaching
from kafka_keyshared.core.workers.worker import Worker

LOOK_EVERY = 0.025
"""Seconds between two looks at the workers."""


def wanted(sub: Subscription, now: float) -> bool:
    """Return whether the workers should be looked at now."""
    detaching = sub.detaching
    if detaching is None or now < detaching.due:
        return False
    detaching.due = now + LOOK_EVERY
    return any(map(_is_waited_for, sub.workers.values()))


def _is_waited_for(worker: Worker) -> bool:
    """Return whether any record waits for the one that a worker runs."""
    if worker.idle or worker.waits or worker.recalls:
        return False
    return worker.leased - len(worker.apart) > 1 or any(True for _ in worker.row.behind(worker.id))


def look(sub: Subscription, progress: Progress, now: float) -> list[Command]:
    """Detach long-running records; ``progress`` is read as for a commit."""
    detaching = sub.detaching
    if detaching is None:
        return []
    commands: list[Command] = []
    before, detaching.seen = detaching.seen, {}
    for id_, worker in sub.workers.items():
        running = _running(worker, progress)
        if running is None:
            continue
        was, since = before.get(id_, (running, now))
        since = since if was == running else now
        detaching.seen[id_] = running, since
        if now - since >= detaching.after and _is_waited_for(worker):
            commands += _detach(sub, detaching, worker, running, progress)
    return commands


def _running(worker: Worker, progress: Progress) -> tuple[int, int] | None:
    for id_, leased in worker.slices.items():
        if id_ not in worker.apart:
            for index in leased.running(progress):
                return id_, index
    return None


def _detach(
    sub: Subscription,
    detaching: Detaching,
    worker: Worker,
    running: tuple[int, int],
    progress: Progress,
) -> list[Command]:
    id_, index = running
    those = [each for id_, each in worker.slices.items() if id_ not in worker.apart]
    if sum(len([*each.outstanding(progress)]) for each in those) > 1:
        detaching.asked[worker.id] = running
        return recall.recall(sub, [worker])
    _set_apart(sub, detaching, worker, id_, index)
    return []


def recalled(sub: Subscription, worker: Worker) -> None:
    """Detach the running record of a worker that has given back the rest."""
    detaching = sub.detaching
    asked = None if detaching is None else detaching.asked.get(worker.id)
    if detaching is None or asked is None or worker.recalls:
        return
    del detaching.asked[worker.id]
    id_, index = asked
    leased = worker.slices.get(id_)
    if leased is None or id_ in worker.apart or max(leased.indices(), default=-1) != index:
        return  # the worker has gone on since
    _set_apart(sub, detaching, worker, id_, index)


def _set_apart(
    sub: Subscription, detaching: Detaching, worker: Worker, id_: int, index: int
) -> None:
    leased = worker.slices[id_]
    if leased.has(index):
        stuck.set_beside(sub, worker, leased, index)
        detaching.total += 1
        there = {each.detached for each in sub.workers.values()}
        detaching.since = {each: at for each, at in detaching.since.items() if each in there}
        if (seen := detaching.seen.get(worker.id)) is not None and seen[0] == (id_, index):
            detaching.since[id_] = seen[1]
