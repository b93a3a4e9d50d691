"""What happened to the state of handlers, as values beside those of :mod:`.history`.

State is what a worker's handler remembers of keys; here, how often a record of the key has run. It
is told of slots of which anything was ever remembered in the process; of others there is no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

State = tuple[tuple[bytes, int], ...]
"""Keys, and what is remembered of each, in their order."""


class Remembered(NamedTuple):
    """A handler has run a record well, and has ``runs`` of the key in its memory by now."""

    member: int
    subscription: str
    worker: int
    key: bytes
    runs: int


class StateReleased(NamedTuple):
    """The handler of a worker has given up the state of these slots; it was in its hands."""

    member: int
    subscription: str
    worker: int
    slots: Sequence[int]
    state: State


class StateSent(NamedTuple):
    """The worker is told to adopt the state of these slots; it gets to that after what it has."""

    member: int
    subscription: str
    worker: int
    slots: Sequence[int]


class StateAdopted(NamedTuple):
    """The handler of the worker has taken the state of these slots over."""

    member: int
    subscription: str
    worker: int
    slots: Sequence[int]
    state: State


class StateLost(NamedTuple):
    """The handler of a worker is no more, with all that it remembered.

    ``for_good``: nobody takes its place, so what was on its way to it, or asked of it, is lost too.
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
