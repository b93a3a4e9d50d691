"""The coordinator of a simulated group: who is a member, and what it says to those who are not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.brokers import Brokers
from kafka_keyshared.sim.history import CameBack, Expelled
from kafka_keyshared.sim.link import Link
from kafka_keyshared.sim.timeline import Action

NO_ERROR = 0


class GroupMember(Protocol):
    """A member of the group, as the coordinator speaks with it."""

    member: int
    topics: Sequence[str]
    instance: str
    link: Link
    seat: Seat | None

    @property
    def owned(self) -> Collection[TopicPartition]:
        """What it has."""

    def identified(self, seat: Seat) -> None:
        """Hear which id it has."""

    def joined(self, seat: Seat, generation: int) -> None:
        """Hear that all have joined."""

    def given(self, seat: Seat, generation: int, partitions: list[TopicPartition]) -> None:
        """Hear which partitions it is to have."""

    def hear_rebalance(self, seat: Seat) -> None:
        """Hear that a round has begun."""

    def join_again(self, seat: Seat) -> None:
        """Hear that another round has begun before this one was over."""

    def thrown_out(self, seat: Seat) -> None:
        """Hear that the group does not know it."""


class Seat:
    """A member as the coordinator knows it; one that joins again after a loss gets another.

    ``owned`` are the partitions that nobody else may have. ``behind_join`` is what the member has
    sent behind its JoinGroup, which the connection answers first.
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
        # It has taken over what another process of its instance had, and has not been told.
        self.inherits = False
        self.owned: list[TopicPartition] = []
        self.behind_join: list[Action] = []
        # Under KIP-848: what it was told and has not carried out, and whether it will be looked at.
        self.expected: list[TopicPartition] | None = None
        self.looked_at = False


class Group(ABC):
    """What the protocols have in common. Everything here happens at the coordinator."""

    def __init__(self, cluster: Brokers) -> None:
        self.cluster = cluster
        self.timeline = cluster.timeline
        self.settings = cluster.settings
        self.chance = cluster.chance("group")
        self.seats: dict[int, Seat] = {}
        self.generation = 0
        self._seated = 0

    # --- what members send ---

    @abstractmethod
    def join(self, membership: GroupMember) -> None:
        """Take a member in, or in again."""

    @abstractmethod
    def quiet(self, seat: Seat) -> None:
        """Hear that the member has done what it was told, and waits for nothing."""

    @abstractmethod
    def check(self, seat: Seat, generation: int) -> int:
        """Return the code of the error with which a commit of that generation is refused."""

    def leave(self, seat: Seat) -> None:
        """Let a member go that says so."""
        if not seat.gone:
            self._remove(seat)

    # --- what becomes of members ---

    @abstractmethod
    def changed(self) -> None:
        """Share the partitions anew: a member has gone, or there are more partitions."""

    def expel(self, seat: Seat) -> None:
        """Take all from a member without asking it; it hears of that at a heartbeat or a commit."""
        if seat.gone:
            return
        self.cluster.history.tell(Expelled(seat.membership.member))
        self.at_heartbeat(seat, lambda: seat.membership.thrown_out(seat))
        self._remove(seat)

    def abandon(self, seat: Seat) -> None:
        """Give the member up when its session is over: nothing will be heard of it."""

        def over() -> None:
            if self.cluster.coordinator_there():
                self.expel(seat)
            elif not seat.gone:
                self.abandon(seat)  # the sessions begin anew with the coordinator

        timeout = self.settings.session_timeout
        self.timeline.after(timeout - self.chance.random() * self.settings.heartbeat, over)

    def at_heartbeat(self, seat: Seat, action: Action) -> None:
        """Have the member hear that with the answer to its next heartbeat."""
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
            if membership.link.dead:  # a JoinGroup that lands behind the end of its process
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
        """Have a static member that comes back sit where it sat: nobody else hears of that."""
        instance = seat.membership.instance
        before = [each for each in self.seats.values() if each.membership.instance == instance]
        if not instance or not before:
            return
        old = before[0]
        # What it was told and has not carried out, it has with the end of its process.
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
