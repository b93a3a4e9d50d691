"""Settled offsets of a batch, merged from the reports of its tasks.

Runs here start at the begin of the batch. They cover all settled offsets from there on, including
those before the first unsettled record. Each task counts the records of other tasks as settled.
Therefore the runs of a partition are the intersection of all tasks' runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.core.offsets.settled_set_codec import Runs


def from_begin(begin: int, position: int, beyond: Runs) -> Runs:
    """Return a position and the settled offsets beyond it as runs from ``begin`` on."""
    return ((begin, position), *beyond) if position > begin else tuple(beyond)


def without(runs: Runs, offsets: Iterable[int]) -> Runs:
    """Return the runs without these offsets, which ascend."""
    found: list[tuple[int, int]] = []
    left = iter(offsets)
    offset = next(left, None)
    for low, end in runs:
        start = low
        while offset is not None and offset < end:
            if offset >= start:
                if offset > start:
                    found.append((start, offset))
                start = offset + 1
            offset = next(left, None)
        if end > start:
            found.append((start, end))
    return tuple(found)


def common(one: Runs, other: Runs) -> Runs:
    """Return the intersection of two runs."""
    found: list[tuple[int, int]] = []
    ones, others = iter(one), iter(other)
    a, b = next(ones, None), next(others, None)
    while a is not None and b is not None:
        low, end = max(a[0], b[0]), min(a[1], b[1])
        if low < end:
            found.append((low, end))
        if a[1] <= b[1]:
            a = next(ones, None)
        else:
            b = next(others, None)
    return tuple(found)


def to_position(begin: int, runs: Runs) -> tuple[int, Runs]:
    """Return the position that these runs stand for, and the settled offsets beyond it."""
    if runs and runs[0][0] <= begin:
        return runs[0][1], runs[1:]
    return begin, runs
