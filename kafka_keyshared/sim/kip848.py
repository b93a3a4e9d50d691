"""The protocol of KIP-848: no rounds; the coordinator tells each member by itself what is next.

First a member is told what it gives up, and only when it has is that told to the one who gets it.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.brokers import Brokers
from kafka_keyshared.sim.group import NO_ERROR, Group, GroupMember, Seat
from kafka_keyshared.sim.sharing import Shares, sticky


class Reconciling(Group):
    """The coordinator of such a group."""

    def __init__(self, cluster: Brokers) -> None:
        super().__init__(cluster)
        self._target: Shares = {}

    def join(self, membership: GroupMember) -> None:
        """Take a member in."""
        if self.seat(membership) is not None:
            self.changed()

    def quiet(self, seat: Seat) -> None:
        """Hear that a member has done what it was told, and go on with everybody."""
        if seat.gone or seat.expected is None:
            return
        seat.owned, seat.expected = seat.expected, None
        for each in self.seats.values():
            self._look_soon(each)

    def check(self, seat: Seat, generation: int) -> int:
        """Return what is wrong with a commit of that member and epoch."""
        if seat.gone:
            return KafkaError.UNKNOWN_MEMBER_ID
        return NO_ERROR if generation == seat.generation else KafkaError.STALE_MEMBER_EPOCH

    def changed(self) -> None:
        """Work out anew who is to have what."""
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
