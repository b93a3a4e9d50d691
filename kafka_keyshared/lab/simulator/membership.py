"""Client's half of its group: background events, and work for its owner.

Callbacks run in the owner's next poll, consume or close, and nowhere else. Until a callback has
returned nothing is fetched, and the group may have to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError

from kafka_keyshared.client.port import Rebalance
from kafka_keyshared.lab.simulator.brokers import Brokers
from kafka_keyshared.lab.simulator.connection import Link
from kafka_keyshared.lab.simulator.fetching import Fetcher
from kafka_keyshared.lab.simulator.group import Group, Seat
from kafka_keyshared.lab.simulator.history import Owned, PartitionsReleased, RevokeBegan
from kafka_keyshared.lab.simulator.records import SimRecord, client_event
from kafka_keyshared.model import TopicPartition

JOIN_AGAIN_AFTER = 1.5
"""Seconds after which a client joins again that the group has refused."""

Op = Callable[[], SimRecord | None]
"""Work for the next poll. The poll returns its result."""


class Callbacks(NamedTuple):
    """The owner's rebalance callbacks."""

    assign: Rebalance
    revoke: Rebalance
    lost: Rebalance


class Membership:
    """State of a client in its group. ``ops`` is the work for the owner's next poll.

    A client with an ``instance`` is a static member (KIP-345): it never sends that it leaves.
    """

    instance = ""
    """Its ``group.instance.id``, to be set before it joins."""

    def __init__(
        self,
        member: int,
        topics: Sequence[str],
        cluster: Brokers,
        link: Link,
        reader: Fetcher,
        *,
        group: Group,
    ) -> None:
        self.member = member
        self.topics = topics
        self.link = link
        self._cluster = cluster
        self._group = group
        self._tell = cluster.history.tell
        self._reader = reader
        self._cooperative = cluster.settings.protocol != "eager"
        self._rounds = cluster.settings.protocol != "kip-848"
        self._callbacks: Callbacks | None = None
        self.ops: deque[Op] = deque()
        self.owned: dict[TopicPartition, None] = {}
        self.seat: Seat | None = None
        self.generation = -1
        self.closing = False
        # The group has given away the owned partitions. The due callback will be the one for a
        # loss.
        self.lost = False
        self._joining = False
        self._attempt = 0
        # Whether a callback is due or running, and the steps that follow it.
        self._calling = False
        self._rejoin = False
        self._then: list[TopicPartition] = []

    @property
    def joining(self) -> bool:
        """Whether it has no id yet, and has asked the coordinator for one."""
        asks = self._rounds and not self.instance
        return asks and self._joining and self.seat is None and not self.closing

    @property
    def subscribed(self) -> bool:
        """Whether it wants to be a member."""
        return self._callbacks is not None

    def subscribe(self, callbacks: Callbacks) -> None:
        """Join the group."""
        self._callbacks = callbacks
        self._join()

    # --- messages from the coordinator ---

    def joined(self, seat: Seat, generation: int) -> None:
        """Learn that all have joined. The assignment follows."""
        if seat is self.seat:
            self.generation = generation

    def given(self, seat: Seat, generation: int, partitions: list[TopicPartition]) -> None:
        """Receive the partitions of this member."""
        if seat is not self.seat or self.closing:
            return
        self._joining = False
        self.generation = generation
        if not self._cooperative:
            self._hand_over(partitions)
            return
        wanted = dict.fromkeys(partitions)
        gone = [each for each in self.owned if each not in wanted]
        new = [each for each in partitions if each not in self.owned]
        if gone:
            self._then = new
            self._rejoin = self._rounds
            self._take_away(gone)
        else:
            self._hand_over(new)

    def hear_rebalance(self, seat: Seat) -> None:
        """Learn that a round has begun. A member with nothing to give up first just joins."""
        if seat is not self.seat or self._joining or self.closing:
            return
        if self._calling:
            self._rejoin = True
        elif self._cooperative or not self.owned:
            self._join()
        else:
            self._rejoin = True
            self._take_away(list(self.owned))

    def join_again(self, seat: Seat) -> None:
        """Learn that another round has begun before this one was over."""
        if seat is self.seat:
            self._join()

    def thrown_out(self, seat: Seat) -> None:
        """Learn that the group does not know this member."""
        if seat is self.seat:
            self.lose()

    # --- events at the client ---

    def aged(self, *, unheard: bool) -> None:
        """Handle the refusal of a commit of an old generation.

        In a rebalance that means nothing: the new generation is on its way, or here. Otherwise all
        is lost. All is also lost while the JoinGroup is ``unheard``, because the client has broken
        the connection.
        """
        if unheard or not (self._joining or self._calling or self._rejoin):
            self.lose()

    def lose(self, *, left: bool = False) -> None:
        """Treat everything as lost, and join again; having ``left``, only in the next poll."""
        if self.closing:
            self.lost = True
            return
        seat, self.seat = self.seat, None
        self.generation = -1
        self._joining = False
        self._attempt += 1
        if seat is not None and not (seat.gone or left):
            self._group.abandon(seat)
        self.lost = True
        if self._calling:
            return
        if self.owned:
            self._take_away(list(self.owned))
        elif left:
            self._calling = True
            self.ops.append(self._called)
        else:
            self._called()

    def exceeded(self, told: SimRecord) -> None:
        """Leave the group because the owner has not polled for too long. It gets the error
        first.
        """
        self.ops.append(lambda: told)
        seat = self.seat
        if seat is not None and self.instance:
            self._group.abandon(seat)
        elif seat is not None:
            known = seat
            self.link.ask(lambda: self._group.leave(known))
        self.lose(left=True)

    # --- callbacks ---

    def serve(self) -> SimRecord | None:
        """Do the work that waits for a poll, up to the first item that the poll returns."""
        ops = self.ops
        while ops:
            told = ops.popleft()()
            if told is not None:
                return told
        return None

    def _take_away(self, partitions: list[TopicPartition]) -> None:
        self._calling = True
        self._reader.hold()
        self.ops.append(lambda: self._revoke(partitions))

    def _hand_over(self, partitions: list[TopicPartition]) -> None:
        self._calling = True
        self._reader.hold()
        self.ops.append(lambda: self._assign(partitions))

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        seat, lost = self.seat, self.lost
        self._tell(RevokeBegan(self.member, tuple(partitions), lost))
        if self._callbacks is not None:
            (self._callbacks.lost if lost else self._callbacks.revoke)(list(partitions))
        self._reader.unassign(partitions)
        for each in partitions:
            self.owned.pop(each, None)
        unasked = lost or self.lost or (seat is not None and seat.gone)
        self._tell(PartitionsReleased(self.member, tuple(partitions), unasked))
        self._called()

    def _assign(self, partitions: list[TopicPartition]) -> None:
        if not (self.lost or self.closing):
            self.owned.update(dict.fromkeys(partitions))
            stored = self._cluster.commits.stored
            known = {
                each: (found.position or 0, found.metadata or "")
                for each in partitions
                if (found := stored.get(each)) is not None
            }
            too_late = self.seat is not None and self.seat.gone
            self._tell(Owned(self.member, tuple(partitions), known, too_late))
            if self._callbacks is not None:
                self._callbacks.assign(list(partitions))
        self._called()

    def _called(self) -> None:
        """Continue with the steps that waited for the callback."""
        self._calling = False
        if self.closing:
            return
        if self.lost and self.owned:
            self._then = []
            self._take_away(list(self.owned))
            return
        if self.lost:
            self.lost = self._rejoin = False
            self._then = []
            self._reader.go_on()
            self._join()
        elif self._then:
            then, self._then = self._then, []
            self._hand_over(then)
        elif self._rejoin and self.owned and not self._cooperative:
            self._take_away(list(self.owned))
        elif self._rejoin:
            self._rejoin = False
            self._reader.go_on()
            self._join()
        else:
            self._reader.go_on()
            if self.seat is not None:
                seat = self.seat
                self.link.ask(lambda: self._group.quiet(seat))

    def _join(self) -> None:
        if self.closing or self._callbacks is None:
            return
        self._joining = True
        self._attempt += 1
        attempt = self._attempt

        def join() -> None:
            # A JoinGroup in flight reaches the broker although its sender has died.
            unheard = self.link.dead and not (self._rounds and self.seat is None)
            if attempt != self._attempt or unheard:
                return
            if self._cluster.rights.group:
                self._refused(join)
            else:
                self._group.join(self)

        self.link.ask(join)

    def identified(self, seat: Seat) -> None:
        """Receive the id of this member, and join with it (KIP-394)."""
        if self.joining:
            self.seat = seat
            self._join()

    def _refused(self, join: Callable[[], None]) -> None:
        """Report that the group refuses a join, and try again after a while."""
        why = "JoinGroup failed: Broker: Group authorization failed"
        told = client_event(KafkaError.GROUP_AUTHORIZATION_FAILED, why, TopicPartition("", -1))
        self.link.hear(lambda: self.ops.append(lambda: told))
        self._cluster.timeline.after(JOIN_AGAIN_AFTER, lambda: self.link.ask(join))

    # --- the end ---

    def close(self) -> None:
        """Give back the owned partitions, and leave the group if it is reachable."""
        self.closing = True
        self.serve()
        if self.owned:
            self._revoke(list(self.owned))
        seat, self._joining = self.seat, False
        if seat is None or seat.gone:
            return
        refused = self._cluster.rights.group
        if self.link.coordinated() and not self.instance and not refused:
            self._group.leave(seat)
        else:
            self._group.abandon(seat)
