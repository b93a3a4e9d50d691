"""Bound on the key and value bytes leased to one worker.

Each record is weighed when it is leased. Nothing is sampled, and without the bound it costs
nothing. One record is always leased, however large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice

from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.records.window import length_of
from kafka_keyshared.model import Record


class LeaseBytes:
    """Bytes leased to a worker, and their bound ``most``; None means no bound."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.held = 0
        # By slice and index, for leased records.
        self._sizes: dict[int, dict[int, int]] = {}

    def fitting(
        self, records: Collection[Record | None], most: int, *beside: Sequence[Record]
    ) -> int:
        """Return how many of the records fit, at most ``most``.

        The current leases and the records in ``beside`` take their bytes first.
        """
        most = min(most, len(records))
        if self.most is None:
            return most
        left = self.most - self.held - sum(map(size_of, chain(*beside)))
        alone = not (self._sizes or any(beside))
        count = 0
        for record in islice(records, most):
            left -= size_of(record)
            if left < 0 and not alone:
                break
            alone = False
            count += 1
        return count

    def lease(self, leased: SliceState) -> None:
        """Count the bytes of a slice that is leased."""
        if self.most is not None:
            sizes = dict(enumerate(map(size_of, leased.slice.records)))
            self._sizes[leased.slice.id] = sizes
            self.held += sum(sizes.values())

    def take_back(self, leased: SliceState, indices: Iterable[int]) -> None:
        """Subtract the bytes of leases that were taken back."""
        if self.most is not None:
            sizes = self._sizes[leased.slice.id]
            self.held -= sum([sizes.pop(index) for index in indices])

    def release(self, leased: SliceState) -> None:
        """Subtract a slice that has ended or of which only a stuck record is left."""
        if self.most is not None:
            self.held -= sum(self._sizes.pop(leased.slice.id, {}).values())

    def is_true_of(self, slices: Mapping[int, SliceState]) -> bool:
        """Return whether the counted bytes match these slices; the invariant checks use this."""
        if self.most is None:
            return True
        counted = {(id_, index) for id_, sizes in self._sizes.items() for index in sizes}
        leased = {(id_, index) for id_, each in slices.items() for index in each.indices()}
        total = sum(sum(sizes.values()) for sizes in self._sizes.values())
        over = self.held > self.most and len(leased) > 1
        return counted == leased and total == self.held and not over


def size_of(record: Record | None) -> int:
    """Return the bytes of a record's key and value, 0 for a head that is forgotten."""
    return 0 if record is None else length_of([record.key(), record.value()])
