"""Partitions that an idle member fails to read after the faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.records import Assignment, MemberModel
from kafka_keyshared.model import TopicPartition

READ_WITHIN = 20.0
"""Seconds within which a record of an unobstructed partition arrives."""


class Idle:
    """Partitions with unread records at idle members, and since when.

    Only a pause by hand holds such a partition back. Every other reason needs records that the
    member has received and not settled.
    """

    def __init__(self, books: Books, free_since: Callable[[int], float]) -> None:
        self._books = books
        self._free_since = free_since
        # By assignment and its received end.
        self._since: dict[tuple[int, int], float] = {}

    def unread(self, now: float) -> Iterator[tuple[MemberModel, TopicPartition, int, float]]:
        """Yield each partition that should have been read on: from which offset, and since when."""
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
                    waits[place] = float("inf")  # reported once
                    yield member, partition, max(each.end, each.start or 0), since
        self._since = waits

    def _is_busy(self, member: MemberModel, now: float) -> bool:
        busy = member.stopping_at is not None or member.kept or any(member.open.values())
        return bool(busy) or self._free_since(member.number) > now

    def _could_read(self, each: Assignment) -> bool:
        if each.revoking_at is not None or each.misplaced or each.start is None or each.log.dead:
            return False
        if self._books.by_hand.wanted(each.member.number, each.partition):
            return False
        last = each.log.last_to_read()
        return last is not None and last >= max(each.end, each.start)
