"""State of simulated handlers: each worker's counts the records of every key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import SLOT_FUNCTIONS
from kafka_keyshared.lab.simulator import state_history as was
from kafka_keyshared.lab.simulator.identity import Site

Counts: TypeAlias = dict[int, dict[bytes, int]]
"""Number of records that have run, by slot and key."""


class States:
    """The state of all handlers of one process, and the reports about it.

    Only subscriptions have state whose handlers hand it over. Others report nothing.
    """

    def __init__(self, site: Site, settings: Iterable[SubscriptionSettings]) -> None:
        self._site = site
        self._slot_of = {
            each.name: SLOT_FUNCTIONS[each.slot_function] for each in settings if each.hands_over
        }
        self._counts: dict[tuple[str, int], Counts] = defaultdict(dict)
        # Slots that ever had state, by subscription.
        self._used: dict[str, set[int]] = defaultdict(set)
        # Workers that have left or were given up, even if they still run records.
        self._left: set[tuple[str, int]] = set()

    def ran(self, sub: str, worker: int, key: bytes | None) -> None:
        """Count a record that a worker has completed."""
        if key is None or sub not in self._slot_of or (sub, worker) in self._left:
            return
        slot = self._slot_of[sub](key)
        counts = self._counts[sub, worker].setdefault(slot, {})
        counts[key] = counts.get(key, 0) + 1
        self._used[sub].add(slot)
        member, _, history = self._site
        history.tell(was.Remembered(member, sub, worker, key, counts[key]))

    def release(self, sub: str, worker: int, slots: Sequence[int]) -> object:
        """Release the state of slots."""
        mine = self._counts[sub, worker]
        used = self._of(sub, slots)
        found = {slot: mine.pop(slot) for slot in used if slot in mine}
        member, _, history = self._site
        history.tell(was.StateReleased(member, sub, worker, used, _told(found)))
        return found

    def sent(self, sub: str, worker: int, slots: Sequence[int]) -> None:
        """Report that a worker is to adopt the state of slots."""
        member, _, history = self._site
        history.tell(was.StateSent(member, sub, worker, self._of(sub, slots)))
        if (sub, worker) in self._left:
            history.tell(was.StateLost(member, sub, worker, for_good=True))

    def adopt(self, sub: str, worker: int, slots: Sequence[int], state: object) -> None:
        """Adopt the state of slots."""
        found: Counts = state if isinstance(state, dict) else {}
        self._counts[sub, worker].update(found)
        member, _, history = self._site
        used = self._of(sub, slots)
        history.tell(was.StateAdopted(member, sub, worker, used, _told(found)))

    def lost(self, sub: str, worker: int, *, for_good: bool) -> None:
        """Lose a handler. Unless ``for_good`` is set, another one without state takes its place.

        Records that still run in a handler that is lost for good are not counted.
        """
        if for_good:
            self._left.add((sub, worker))
        if sub in self._slot_of:
            self._counts.pop((sub, worker), None)
            member, _, history = self._site
            history.tell(was.StateLost(member, sub, worker, for_good))

    def left(self, sub: str, worker: int) -> None:
        """Lose the handler of a worker that has left. It may still run a record."""
        self.lost(sub, worker, for_good=True)

    def ended(self, sub: str, worker: int) -> None:
        """End a handler in order."""
        if sub in self._slot_of:
            self._counts.pop((sub, worker), None)
            member, _, history = self._site
            history.tell(was.WorkerEnded(member, sub, worker))

    def _of(self, sub: str, slots: Sequence[int]) -> list[int]:
        """Return those of the slots that may have state."""
        # A worker that joins gets tens of thousands of slots, and few of them have state.
        return sorted(slot for slot in self._used[sub] if slot in slots)


def _told(counts: Counts) -> was.State:
    return tuple(sorted(each for keys in counts.values() for each in keys.items()))
