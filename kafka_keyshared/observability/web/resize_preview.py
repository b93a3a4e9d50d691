"""The effect of another number of workers on the ring.

The ring follows from the workers' names alone.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from kafka_keyshared.core.offsets.commit_metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.status import Status

WORKERS_MOST = 256
"""Maximum number of workers to compute. A very large ring would keep the process busy."""


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of another number of workers. Nothing has changed yet.

    ``moved`` slots would change hands, and ``leases`` of the listed pending ones would have to end
    first. ``shares`` are those of the workers then. ``slots`` are their runs of slots, as in a
    subscription's status. Each run has its first slot, its last slot, and the index in ``workers``.
    """

    workers: tuple[str, ...]
    moved: int
    leases: int
    shares: tuple[float, ...]
    slots: tuple[tuple[int, int, int], ...]


def foretell(
    status: Status, settings: RoutingSettings, workers: str, subscription: str = ""
) -> Foretold:
    """Return the effect on a subscription of ``scale`` to this number of workers.

    Raises :class:`ConfigError` for an invalid number of workers or an unknown subscription. Raises
    it also if slots do not follow from the number of workers.
    """
    if not (workers.isascii() and workers.isdecimal() and 1 <= int(workers[:9]) <= WORKERS_MOST):
        raise ConfigError(f"workers={workers!r}: give a number from 1 to {WORKERS_MOST}")
    name = subscription or DEFAULT_SUBSCRIPTION
    sub = next((each for each in status.subscriptions if each.name == name), None)
    if sub is None:
        raise ConfigError(f"there is no subscription {name!r}")
    if sub.routing != "ring" or not sub.slots:
        raise ConfigError(
            f"routing {sub.routing}: what would move is foretold of the ring alone, whose slots "
            "follow from how many workers there are"
        )
    if {each.name for each in sub.workers} != {*worker_names(len(sub.workers))}:
        raise ConfigError("the workers have names of their own: they come and go by themselves")
    names = worker_names(int(workers))
    runs = _runs(int(workers), settings.vnodes, tuple(sorted(settings.weights.items())))
    now = [-1] * SLOTS
    for first, last, at in sub.slots:
        # Compare by number: workers are in the order of their names in both lists.
        now[first : last + 1] = [_number(sub.workers[at].name) if at >= 0 else -1] * (
            last + 1 - first
        )
    moving, shares = bytearray(SLOTS), [0] * len(names)
    for first, last, at in runs:
        shares[at] += last + 1 - first
        for slot in range(first, last + 1):
            moving[slot] = now[slot] != at
    leases = (each.slot for each in sub.pending or ())
    return Foretold(
        workers=names,
        moved=sum(moving),
        leases=sum(slot is not None and moving[slot & (SLOTS - 1)] for slot in leases),
        shares=tuple(each / SLOTS for each in shares),
        slots=runs,
    )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


@lru_cache(maxsize=8)
def _runs(
    workers: int, vnodes: int, weights: tuple[tuple[str, float], ...]
) -> tuple[tuple[int, int, int], ...]:
    """Return the runs of slots on the ring of this number of workers."""
    names = worker_names(workers)
    place = {name: at for at, name in enumerate(names)}
    there = {name: weight for name, weight in weights if name in place}
    spans = RoutingSettings(vnodes=vnodes, weights=there).of(names).spans()
    return tuple((each.first, each.last, place[str(each.owner)]) for each in spans)
