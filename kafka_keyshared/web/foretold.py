"""What another number of workers would move: asked of the ring, which follows from names alone."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from kafka_keyshared.core.metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.settings import worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.status import Status

WORKERS_MOST = 256
"""Workers that are foretold: whoever asks for a ring of very many would keep the process busy."""


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """What so many workers would come to; nothing has changed.

    ``moved`` slots would change hands, and so many ``leases`` of those that are told be waited for.
    ``shares`` are those of the workers then, and ``slots`` whose they are, as in a subscription's
    status: each run from its first to its last one, with the place among ``workers``.
    """

    workers: tuple[str, ...]
    moved: int
    leases: int
    shares: tuple[float, ...]
    slots: tuple[tuple[int, int, int], ...]


def foretell(
    status: Status, settings: RoutingSettings, workers: str, subscription: str = ""
) -> Foretold:
    """Return what ``scale`` to so many workers would do to a subscription.

    Raises :class:`ConfigError` for what is no number of workers or no subscription, and where slots
    do not follow from how many workers there are.
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
        # By number: the places of workers are in the order of the names here and there.
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
    """Return who has the slots on the ring of so many workers."""
    names = worker_names(workers)
    place = {name: at for at, name in enumerate(names)}
    there = {name: weight for name, weight in weights if name in place}
    spans = RoutingSettings(vnodes=vnodes, weights=there).of(names).spans()
    return tuple((each.first, each.last, place[str(each.owner)]) for each in spans)
