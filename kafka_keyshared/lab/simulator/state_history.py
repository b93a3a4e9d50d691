"""Events of the state of handlers, beside those of :mod:`.history`.

State is the memory of keys in a worker's handler; here, how often a record of the key has run. The
events are about slots that ever had state in the process. Other slots have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

State = tuple[tuple[bytes, int], ...]
"""Keys and their state, in their order."""


class Remembered(NamedTuple):
    """A handler has completed a record, and now remembers ``runs`` of its key."""

    member: int
    subscription: str
    worker: int
    key: bytes
    runs: int


class StateReleased(NamedTuple):
    """A worker's handler has released its state of these slots."""

    member: int
    subscription: str
    worker: int
    slots: Sequence[int]
    state: State


class StateSent(NamedTuple):
    """The worker is to adopt the state of these slots, after its earlier work."""

    member: int
    subscription: str
    worker: int
    slots: Sequence[int]


class StateAdopted(NamedTuple):
    """The worker's handler has adopted the state of these slots."""

    member: int
    subscription: str
    worker: int
    slots: Sequence[int]
    state: State


class StateLost(NamedTuple):
    """A worker's handler has ended, and all its state is lost.

    ``for_good``: it is not replaced. State that it was to adopt or to release is lost too.
    """

    member: int
    subscription: str
    worker: int
    for_good: bool


class WorkerEnded(NamedTuple):
    """A worker has ended in order, and its handler with it."""

    member: int
    subscription: str
    worker: int
