"""Slices as the core makes them, for tests that hand them to a pool or a worker by themselves."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from kafka_keyshared.core.contract.slices import ENDED, RUNS, Scattered, Slice
from kafka_keyshared.core.records.pristine import Originals
from kafka_keyshared.model import Record

_ids = itertools.count(1_000)


def slice_of(*records: Record, worker: int = 0, epoch: int = 0, topic: str | None = None) -> Slice:
    """A slice of these records, with an id of its own; ``topic`` where it is known to be all's."""
    return Slice(next(_ids), "default", worker, epoch, list(records), Originals(records, topic))


def scattered(count: int, *, runs: Collection[int] = (), ended: Collection[int] = ()) -> Scattered:
    """How far a worker is in so many records, of which these run and those have ended."""
    marks = [RUNS if at in runs else ENDED if at in ended else 0 for at in range(count)]
    return Scattered(bytes(marks))
