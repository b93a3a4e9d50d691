"""Coordinator of the eager and cooperative protocols, which rebalance in rounds.

In a round all members join again, then all get their partitions. No member gets any before the last
one has joined. A member that does not join in time is expelled. An eager member first gives up
everything, a cooperative one (KIP-429) only the partitions that move.
"""

from __future__ import annotations

import enum

from confluent_kafka import KafkaError

from kafka_keyshared.lab.simulator.assignors import Shares, ranges, sticky
from kafka_keyshared.lab.simulator.brokers import Brokers
from kafka_keyshared.lab.simulator.group import NO_ERROR, Group, GroupMember, Seat
from kafka_keyshared.lab.simulator.member_events import PendingGivenUp
from kafka_keyshared.model import TopicPartition

GATHERING = 0.05
"""Most seconds that a coordinator waits for more members once all known ones have joined."""


class Phase(enum.Enum):
    """Phases of a round. COMPLETING: all have joined, and the leader works out the assignment."""

    STABLE = "stable"
    PREPARING = "preparing"
    COMPLETING = "completing"


class Classic(Group):
    """The coordinator of an eager or a cooperative group."""

    phase = Phase.STABLE
    _round = 0

    def __init__(self, cluster: Brokers) -> None:
        super().__init__(cluster)
        # Members that have an id and have not joined with it. No round ends before they have.
        self._pending: dict[int, Seat] = {}

    def _expect(self, membership: GroupMember) -> None:
        """Send a new member its id, and wait for it to join until its session is over."""
        seat = self.new_seat(membership)
        self._pending[seat.number] = seat
        membership.link.hear(lambda: membership.identified(seat))
        self._give_up_later(seat)

    def _give_up_later(self, seat: Seat) -> None:
        def over() -> None:
            if seat.number not in self._pending:
                return
            if not self.cluster.coordinator_there():
                self._give_up_later(seat)
                return
            self.cluster.history.tell(PendingGivenUp(seat.membership.member))
            self._remove(seat)

        self.timeline.after(self.settings.session_timeout, over)

    def _remove(self, seat: Seat) -> None:
        if self._pending.pop(seat.number, None) is None:
            super()._remove(seat)
            return
        seat.gone = True
        if self.phase is Phase.PREPARING:
            self._complete_soon()

    def join(self, membership: GroupMember) -> None:
        """Take a member in, or in again. A round begins, unless one is on.

        A new member first gets an id, and is pending until it joins with that (KIP-394). A static
        member is known by its own id.
        """
        if membership.seat is None and not membership.instance:
            self._expect(membership)
            return
        pending = membership.seat
        if pending is not None and self._pending.pop(pending.number, None) is not None:
            self.seats[pending.number] = pending
        seat = self.seat(membership)
        if seat is None:
            return
        inherits, seat.inherits = seat.inherits, False
        if inherits and self.phase is Phase.STABLE:
            self._answer_join(seat, seat.generation)
            self._give(seat, seat.generation, seat.owned)
            return
        seat.joined = True
        seat.owned = list(membership.owned)
        if self.phase is not Phase.PREPARING:
            self._prepare()
        self._complete_soon()

    def quiet(self, seat: Seat) -> None:
        """Ask a member to join again, because it may not have received the first request."""
        if self.phase is Phase.PREPARING and not (seat.joined or seat.gone):
            self._call(seat)

    def check(self, seat: Seat, generation: int) -> int:
        """Return the error code for a commit of that member and generation."""
        if seat.gone:
            return KafkaError.UNKNOWN_MEMBER_ID
        if generation != seat.generation:
            return KafkaError.ILLEGAL_GENERATION
        if self.phase is Phase.COMPLETING:
            return KafkaError.REBALANCE_IN_PROGRESS
        return NO_ERROR

    def changed(self) -> None:
        """Begin a round, or complete the current one if only the departed member was missing."""
        if not self.seats:
            self.phase = Phase.STABLE
        elif self.phase is Phase.PREPARING:
            self._complete_soon()
        else:
            self._prepare()

    def _call(self, seat: Seat) -> None:
        self.at_heartbeat(seat, lambda: seat.membership.hear_rebalance(seat))

    def _prepare(self) -> None:
        waited_for_leader = self.phase is Phase.COMPLETING
        self.phase = Phase.PREPARING
        self._round += 1
        number = self._round
        for seat in list(self.seats.values()):
            if seat.joined:
                continue
            if waited_for_leader:
                self._call_back(seat)
            else:
                self._call(seat)
        self.timeline.after(self.settings.max_poll_interval, lambda: self._out_of_time(number))

    def _call_back(self, seat: Seat) -> None:
        seat.membership.link.hear(lambda: seat.membership.join_again(seat))

    def _out_of_time(self, number: int) -> None:
        if self.phase is Phase.PREPARING and self._round == number:
            for seat in [each for each in self.seats.values() if not each.joined]:
                self.expel(seat)

    def _complete_soon(self) -> None:
        if self._all_joined():
            number = self._round
            wait = self.chance.random() * GATHERING
            self.timeline.after(wait, lambda: self._complete(number))

    def _all_joined(self) -> bool:
        return not self._pending and all(seat.joined for seat in self.seats.values())

    def _complete(self, number: int) -> None:
        seats = list(self.seats.values())
        over = self.phase is not Phase.PREPARING or self._round != number
        if over or not seats or not self._all_joined():
            return
        self.phase = Phase.COMPLETING
        self.generation = generation = self.generation + 1
        shares = self._share()
        for seat in seats:
            seat.joined = False
            seat.generation = generation
            self._answer_join(seat, generation)
            waiting, seat.behind_join = seat.behind_join, []
            for action in waiting:
                action()
        self.timeline.after(self.cluster.latency() * 3, lambda: self._complete_round(shares))

    def _answer_join(self, seat: Seat, generation: int) -> None:
        seat.membership.link.hear(lambda: seat.membership.joined(seat, generation))

    def _share(self) -> Shares:
        """Work out the assignment. A cooperative one has no partition that another member has."""
        partitions = self.partitions()
        if self.settings.protocol == "eager":
            # By the member names, which the coordinator assigns at random.
            order = list(self.seats)
            self.chance.shuffle(order)
            return ranges(order, partitions)
        before = {number: seat.owned for number, seat in self.seats.items()}
        has = {each: number for number, owned in before.items() for each in owned}
        shares = sticky(list(self.seats), partitions, before)
        return {
            number: [each for each in share if has.get(each, number) == number]
            for number, share in shares.items()
        }

    def _complete_round(self, shares: Shares) -> None:
        if self.phase is not Phase.COMPLETING:
            return
        self.phase = Phase.STABLE
        for seat in self.seats.values():
            seat.owned = shares.get(seat.number, [])
            self._give(seat, self.generation, seat.owned)

    def _give(self, seat: Seat, generation: int, share: list[TopicPartition]) -> None:
        seat.membership.link.hear(lambda: seat.membership.given(seat, generation, share))
