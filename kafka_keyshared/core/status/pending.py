"""Pending acknowledgements: records that are leased to a worker and not settled.

Pulsar lists them the same way for a subscription. The list is computed on request; no state is kept
for it.
"""

from __future__ import annotations

from itertools import islice

from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.status import PendingAck


def pending_acks(
    sub: Subscription, progress: Progress, most: int | None = None
) -> list[PendingAck]:
    """Return all open leases of a subscription, by worker, oldest first.

    ``progress`` is the same as for a commit. ``most`` limits the leases of each worker.
    """
    keys = sub.keys
    found: list[PendingAck] = []
    for worker in sub.workers.values():
        end = None if most is None else len(found) + most
        for leased in worker.slices.values():
            if end is not None and len(found) >= end:
                break
            running = leased.running(progress)
            left = None if end is None else end - len(found)
            for index in islice(leased.outstanding(progress), left):
                (topic, partition), offset = leased.slice.came.coordinates_of(index)
                key = keys.key(leased.slice.came[index])
                slot = None if key is None else keys.slot(key)
                found.append(
                    PendingAck(
                        worker=worker.name,
                        topic=topic,
                        partition=partition,
                        offset=offset,
                        slot=None if slot is None else slot % SLOTS,
                        running=index in running,
                        draining=slot is not None and sub.routing.waits_for(slot, worker.id),
                    )
                )
    return found
