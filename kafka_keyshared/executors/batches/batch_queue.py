"""Queues of batch workers, and the choice of the next call.

The owner adds records and takes them back. The worker's thread takes them out. Both hold the cell's
``bell`` while they do so. Started records are therefore never taken back, and a call starts as a
whole.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Container
from typing import Any, TypeAlias

from kafka_keyshared.core.contract.commands import Adopt, Release
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.key_chains import Given
from kafka_keyshared.executors.lease import Together
from kafka_keyshared.executors.thread_state import ThreadCell, WorkerSpec

Work: TypeAlias = list[Given] | Release | Adopt | None
"""The next task of a worker: a call, an order about state, or None to end."""


class BatchCell(ThreadCell):
    """One thread of a worker. ``given`` is all that the worker holds; ``current`` is its call.

    With a stuck call the thread is marked ``gone``, and another thread continues. That one has its
    own cell, which shares ``given`` and ``bell``. The stuck thread ends with its call.
    """

    def __init__(
        self, spec: WorkerSpec, rule: BatchRule, now: Callable[[], float], failed: FailedLanes
    ) -> None:
        super().__init__(spec, failed)
        self.given: dict[int, Given] = {}
        self.running: list[Given] = []
        self.bell = threading.Condition()
        self.closing = False
        self.gone = False
        self.tell_at = float("-inf")
        self._together: Together | None = None
        self._rule = rule
        self._now = now
        # By key if a call has one key; in the order in which their first records came.
        self._rows: dict[Lane | None, deque[Given]] = {}
        # Whether a recall has come since the current call began.
        self._asked = False
        # Records of a call that failed as a whole. Each is called alone, before all other records.
        self._alone: deque[Given] = deque()
        self._adopts: deque[Adopt] = deque()
        self._releases: deque[tuple[set[int], Release]] = deque()

    @property
    def current(self) -> Together | None:
        """Return the records of the current call; handlers look up their leases in it."""
        return self._together if self.running else None

    def following(self, failed: FailedLanes) -> BatchCell:
        """Return the cell of the thread that continues for this one; the caller holds the bell."""
        found = BatchCell(self.spec, self._rule, self._now, failed)
        found.given, found.bell = self.given, self.bell
        found._adopts, found._releases = self._adopts, self._releases
        self.gone = True
        for each in self.running:
            each.apart = True
        if self.thread is not None:
            self.thread.name += " (stuck)"
        return found

    # --- the owner; it holds the bell ---

    def add(self, given: Given) -> None:
        """Queue a record for a call."""
        given.since = self._now()
        row = self._rows.setdefault(given.lane if self._rule.same_key else None, deque())
        row.append(given)
        # In other cases the worker wakes by itself, when the first record of some row is due.
        if len(row) == 1 or len(row) == self._rule.size:
            self.bell.notify()

    def is_in(self, id_: int) -> bool:
        """Return whether the record of that slice is in the current call of the thread."""
        with self.bell:
            return any(each.slice.id == id_ for each in self.running)

    def finish(self) -> None:
        """Have the thread end when no work is left; the caller need not hold the bell."""
        with self.bell:
            self.closing = True
            self.bell.notify()

    def clear(self) -> None:
        """Do nothing: the child of a handler ends when the handler call returns."""

    def has_work(self) -> bool:
        """Return whether records or orders wait."""
        return bool(self._rows or self._alone or self._adopts or self._releases)

    def take_back(self, only: Container[int] | None = None) -> list[Given]:
        """Remove the waiting records of these slices, or all; return them in lease order."""
        self._asked = True
        back = [
            each
            for id_, each in self.given.items()
            if not each.started and (only is None or id_ in only)
        ]
        self._remove(back)
        return back

    def behind_others(self) -> list[Given]:
        """Remove all but the first record of each lane from the call; return the others."""
        lanes: set[Lane] = set()
        behind: list[Given] = []
        first: list[Given] = []
        for each in self.running:
            (behind if each.lane in lanes else first).append(each)
            if each.lane is not None:
                lanes.add(each.lane)
        self.running = first
        return behind

    def order(self, order: Release | Adopt) -> None:
        """Queue an order: adopt before all other work, release behind all records held now."""
        if isinstance(order, Adopt):
            self._adopts.append(order)
        else:
            self._releases.append((set(self.given), order))
        self.bell.notify()

    # --- the worker's thread ---

    def take(self) -> Work:
        """Wait for the next task and begin it."""
        with self.bell:
            while not self.gone:
                if self._adopts:
                    return self._adopts.popleft()
                if self._releases and self._releases[0][0].isdisjoint(self.given):
                    return self._releases.popleft()[1]
                batch, left = self._due()
                if batch:
                    return self._begin(batch)
                if self.closing:
                    return None
                self.bell.wait(left)
            return None

    def _begin(self, batch: list[Given]) -> list[Given]:
        self.running, self._together, self._asked = batch, Together(batch), False
        now = self._now()
        for each in batch:
            each.started, each.since = True, now
        return batch

    def _due(self) -> tuple[list[Given], float | None]:
        """Return the records of the next call; without any, the seconds until some are due."""
        if self._alone:
            return [self._alone.popleft()], None
        rule, soonest, now = self._rule, None, self._now()
        for key, row in self._rows.items():
            left = row[0].since + rule.wait - now
            if len(row) >= rule.size or left <= 0 or self._releases:
                batch = [row.popleft() for _ in range(min(len(row), rule.size))]
                del self._rows[key]
                if row:
                    self._rows[key] = row  # behind the other rows, which have waited longer
                return batch, None
            soonest = left if soonest is None else min(soonest, left)
        return [], soonest

    def put_back(self, batch: list[Given]) -> None:
        """Queue each of these records for a call alone, in order; the caller holds the bell."""
        self.running = []
        for each in batch:
            each.slice.came.restore(0)
            each.started, each.awaited = False, self._asked
        self._alone.extend(batch)

    def cut(self, lanes: Collection[Lane]) -> list[Given]:
        """Remove the waiting records of these lanes, in lease order; the caller holds the bell."""
        behind = [each for each in self.given.values() if not each.started and each.lane in lanes]
        self._remove(behind)
        return behind

    def _remove(self, those: list[Given]) -> None:
        if not those:
            return
        gone: Any = {id(each) for each in those}
        self._alone = deque(each for each in self._alone if id(each) not in gone)
        rows = {
            key: deque(each for each in row if id(each) not in gone)
            for key, row in self._rows.items()
        }
        self._rows = {key: row for key, row in rows.items() if row}
