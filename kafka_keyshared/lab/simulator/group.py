"""Coordinator of a simulated group: its members and its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

from kafka_keyshared.lab.simulator.brokers import Brokers
from kafka_keyshared.lab.simulator.connection import Link
from kafka_keyshared.lab.simulator.history import CameBack, Expelled
from kafka_keyshared.lab.simulator.timeline import Action
from kafka_keyshared.model import TopicPartition

NO_ERROR = 0


class GroupMember(Protocol):
    """A member of the group, as the coordinator calls it."""

    member: int
    topics: Sequence[str]
    instance: str
    link: Link
    seat: Seat | None

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions that it has."""

    def identified(self, seat: Seat) -> None:
        """Receive its id."""

    def joined(self, seat: Seat, generation: int) -> None:
        """Learn that all have joined."""

    def given(self, seat: Seat, generation: int, partitions: list[TopicPartition]) -> None:
        """Receive the partitions that it is to have."""

    def hear_rebalance(self, seat: Seat) -> None:
        """Learn that a round has begun."""

    def join_again(self, seat: Seat) -> None:
        """Learn that another round has begun before this one was over."""

    def thrown_out(self, seat: Seat) -> None:
        """Learn that the group does not know it."""


class Seat:
    """A member as the coordinator knows it. A member that joins again after a loss gets another.

    ``owned`` are the partitions that no other member may have. ``behind_join`` are requests that
    the member sent after its JoinGroup. The connection answers the JoinGroup first.
    """

    __slots__ = (
        "behind_join",
        "expected",
        "generation",
        "gone",
        "inherits",
        "joined",
        "looked_at",
        "membership",
        "number",
        "owned",
    )

    def __init__(self, number: int, membership: GroupMember) -> None:
        self.number = number
        self.membership = membership
        self.generation = 0
        self.joined = False
        self.gone = False
        # It has taken over from another process of its instance, and does not know that yet.
        self.inherits = False
        self.owned: list[TopicPartition] = []
        self.behind_join: list[Action] = []
        # Under KIP-848: the assignment that it has not carried out, and whether a look is due.
        self.expected: list[TopicPartition] | None = None
        self.looked_at = False


class Group(ABC):
    """The common part of the protocols. Everything here happens at the coordinator."""

    def __init__(self, cluster: Brokers) -> None:
        self.cluster = cluster
        self.timeline = cluster.timeline
        self.settings = cluster.settings
        self.chance = cluster.chance("group")
        self.seats: dict[int, Seat] = {}
        self.generation = 0
        self._seated = 0

    # --- requests of members ---

    @abstractmethod
    def join(self, membership: GroupMember) -> None:
        """Take a member in, or in again."""

    @abstractmethod
    def quiet(self, seat: Seat) -> None:
        """Learn that the member has carried out its assignment, and waits for nothing."""

    @abstractmethod
    def check(self, seat: Seat, generation: int) -> int:
        """Return the error code with which a commit of that generation is refused."""

    def leave(self, seat: Seat) -> None:
        """Let a member leave that asks for it."""
        if not seat.gone:
            self._remove(seat)

    # --- ends of members ---

    @abstractmethod
    def changed(self) -> None:
        """Assign the partitions again: a member has gone, or there are more partitions."""

    def expel(self, seat: Seat) -> None:
        """Expel a member without asking. It learns of that at a heartbeat or a commit."""
        if seat.gone:
            return
        self.cluster.history.tell(Expelled(seat.membership.member))
        self.at_heartbeat(seat, lambda: seat.membership.thrown_out(seat))
        self._remove(seat)

    def abandon(self, seat: Seat) -> None:
        """Give the member up when its session is over: it sends nothing more."""

        def over() -> None:
            if self.cluster.coordinator_there():
                self.expel(seat)
            elif not seat.gone:
                self.abandon(seat)  # the sessions start again with the coordinator

        timeout = self.settings.session_timeout
        self.timeline.after(timeout - self.chance.random() * self.settings.heartbeat, over)

    def at_heartbeat(self, seat: Seat, action: Action) -> None:
        """Run the action at the member with the answer to its next heartbeat."""
        link = seat.membership.link
        self.timeline.after(
            self.chance.random() * self.settings.heartbeat, lambda: link.hear(action)
        )

    def seat(self, membership: GroupMember) -> Seat | None:
        """Return the member's seat, a new one if it has none; None for one that is gone."""
        seat = membership.seat
        if seat is None:
            seat = membership.seat = self.new_seat(membership)
            self._take_over(seat)
            self.seats[seat.number] = seat
            if membership.link.dead:  # a JoinGroup that arrives after the end of its process
                self.abandon(seat)
        if not seat.gone:
            return seat
        known = seat
        membership.link.hear(lambda: membership.thrown_out(known))
        return None

    def new_seat(self, membership: GroupMember) -> Seat:
        """Return a seat that no member has had."""
        self._seated += 1
        return Seat(self._seated, membership)

    def _take_over(self, seat: Seat) -> None:
        """Give a static member that comes back its former seat. No other member learns of that."""
        instance = seat.membership.instance
        before = [each for each in self.seats.values() if each.membership.instance == instance]
        if not instance or not before:
            return
        old = before[0]
        # An assignment that was not carried out is carried out with the end of its process.
        seat.owned = old.owned if old.expected is None else old.expected
        seat.generation, seat.inherits = old.generation, True
        old.gone, old.joined, old.owned = True, False, []
        del self.seats[old.number]
        waiting, old.behind_join = old.behind_join, []
        for action in waiting:
            action()
        self.cluster.history.tell(CameBack(seat.membership.member))

    def _remove(self, seat: Seat) -> None:
        seat.gone, seat.joined = True, False
        self.seats.pop(seat.number, None)
        seat.owned = []
        waiting, seat.behind_join = seat.behind_join, []
        for action in waiting:
            action()
        self.changed()

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions of all topics that the members have subscribed to."""
        topics: dict[str, None] = {}
        for seat in self.seats.values():
            topics |= dict.fromkeys(seat.membership.topics)
        return self.cluster.partitions(topics)
