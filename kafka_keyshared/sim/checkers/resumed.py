"""Whether a member reads on that has nothing to do, once faults are over and all is resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.checkers.records import Assignment, Member

READ_WITHIN = 20.0
"""Seconds in which something comes of a partition, where nothing is in its way."""


class Idle:
    """Partitions with something to read, at members that have nothing in hand, and since when.

    Nothing holds such a partition back, unless somebody has paused it: every other reason is of
    records that the member has received and not settled.
    """

    def __init__(self, books: Books, free_since: Callable[[int], float]) -> None:
        self._books = books
        self._free_since = free_since
        # By assignment and what of it was delivered then.
        self._since: dict[tuple[int, int], float] = {}

    def unread(self, now: float) -> Iterator[tuple[Member, TopicPartition, int, float]]:
        """Yield what should have been read on by now: from which offset, and since when."""
        waits: dict[tuple[int, int], float] = {}
        for member in self._books.present.values():
            if self._is_busy(member, now):
                continue
            for partition, each in member.live.items():
                if not self._could_read(each):
                    continue
                place = each.number, each.end
                since = waits[place] = self._since.get(place, now)
                if now - since >= READ_WITHIN:
                    waits[place] = float("inf")  # said once
                    yield member, partition, max(each.end, each.start or 0), since
        self._since = waits

    def _is_busy(self, member: Member, now: float) -> bool:
        busy = member.stopping_at is not None or member.kept or any(member.open.values())
        return bool(busy) or self._free_since(member.number) > now

    def _could_read(self, each: Assignment) -> bool:
        if each.revoking_at is not None or each.misplaced or each.start is None or each.log.dead:
            return False
        if self._books.by_hand.wanted(each.member.number, each.partition):
            return False
        last = each.log.last_to_read()
        return last is not None and last >= max(each.end, each.start)
