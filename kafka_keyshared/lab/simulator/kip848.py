"""Coordinator of the KIP-848 protocol, which has no rounds.

It sends each member its next step separately. A member first learns what it gives up. Only after it
has done so does the next member get those partitions.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_keyshared.lab.simulator.assignors import Shares, sticky
from kafka_keyshared.lab.simulator.brokers import Brokers
from kafka_keyshared.lab.simulator.group import NO_ERROR, Group, GroupMember, Seat
from kafka_keyshared.model import TopicPartition


class Reconciling(Group):
    """The coordinator of a KIP-848 group."""

    def __init__(self, cluster: Brokers) -> None:
        super().__init__(cluster)
        self._target: Shares = {}

    def join(self, membership: GroupMember) -> None:
        """Take a member in."""
        if self.seat(membership) is not None:
            self.changed()

    def quiet(self, seat: Seat) -> None:
        """Learn that a member has carried out its assignment, and continue with all members."""
        if seat.gone or seat.expected is None:
            return
        seat.owned, seat.expected = seat.expected, None
        for each in self.seats.values():
            self._look_soon(each)

    def check(self, seat: Seat, generation: int) -> int:
        """Return the error code for a commit of that member and epoch."""
        if seat.gone:
            return KafkaError.UNKNOWN_MEMBER_ID
        return NO_ERROR if generation == seat.generation else KafkaError.STALE_MEMBER_EPOCH

    def changed(self) -> None:
        """Work out the target assignment again."""
        if not self.seats:
            return
        before = {number: seat.owned for number, seat in self.seats.items()}
        self._target = sticky(list(self.seats), self.partitions(), before)
        for seat in self.seats.values():
            self._look_soon(seat)

    def _look_soon(self, seat: Seat) -> None:
        if not seat.looked_at:
            seat.looked_at = True
            heartbeat = self.chance.random() * self.settings.heartbeat
            self.timeline.after(heartbeat, lambda: self._look(seat))

    def _look(self, seat: Seat) -> None:
        """Answer a heartbeat with the next step, if there is one."""
        seat.looked_at = False
        if seat.gone or seat.expected is not None:
            return
        target = self._target.get(seat.number, [])
        kept = [each for each in seat.owned if each in target]
        if len(kept) < len(seat.owned):
            self._tell(seat, kept)
            return
        taken = {each for other in self.seats.values() for each in _has(other)}
        new = [each for each in target if each not in taken]
        if new or seat.inherits or not seat.generation:
            seat.inherits = False
            seat.owned = kept + new
            self._tell(seat, seat.owned)

    def _tell(self, seat: Seat, partitions: list[TopicPartition]) -> None:
        self.generation += 1
        seat.generation = generation = self.generation
        seat.expected = partitions
        seat.membership.link.hear(lambda: seat.membership.given(seat, generation, partitions))

        def out_of_time() -> None:
            if seat.expected is partitions:
                self.expel(seat)

        self.timeline.after(self.settings.max_poll_interval, out_of_time)


def _has(seat: Seat) -> list[TopicPartition]:
    return seat.owned
