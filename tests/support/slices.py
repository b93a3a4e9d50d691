"""Slices as the core makes them, for tests that hand them to a pool or a worker by themselves."""

from __future__ import annotations

import itertools

from kafka_keyshared.core.originals import Originals
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.model import Record

_ids = itertools.count(1_000)


def slice_of(*records: Record, worker: int = 0, epoch: int = 0, topic: str | None = None) -> Slice:
    """A slice of these records, with an id of its own; ``topic`` where it is known to be all's."""
    return Slice(next(_ids), "default", worker, epoch, list(records), Originals(records, topic))
