"""I10: nobody has more than he may."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.records import Delivery, Lane, Member, Stage
from kafka_keyshared.sim.history import History, Listener

POLL_SHARE = 20
"""The polls of a full window may bring one part in so many of it."""


FOUND_WITHIN = 10.0
"""Seconds in which the place of a partition is found and told that the client has lost.

A member of an eager group is told where to read all of its partitions when one has been found:
the others may be lost still, and nothing of them is used.
"""


class Much(NamedTuple):
    """More than a window holds, until when it may be given back, how many, and what came then."""

    until: float
    held: int
    deliveries: list[Delivery]


class Bounded(Checker):
    """I10, bounded: leases and windows are kept.

    A worker has no more in hand than ``leases_per_worker``, beside what is stuck, with
    ``max_leases_per_key`` no more of one lane, and with ``lease_bytes_per_worker`` no more bytes,
    or one record. Where it is reliable, a member has received no more of what is not settled than
    ``window_records``, or than ``window_bytes`` has of the smallest records, and what the polls of
    a full window may bring: a twentieth of it. One that stops polls on, and uses nothing of what it
    gets. Nor does one whose client has lost its place, until it is told where to read on: what
    comes meanwhile counts once a worker has it, or it turns out not to come again. What comes too
    much may be given back in the same round, and read again.

    Of what is paused by hand nothing comes once the order is answered, also after a rebalance,
    unless the client refuses to pause it.
    """

    invariant = "I10 bounded"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._leases: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        self._of_lane: dict[int, Counter[Lane]] = defaultdict(Counter)
        self._bytes: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        self._smallest: int | None = None
        self._much: dict[tuple[int, str], Much] = {}
        # When the client of each member last lost a place.
        self._lost_at: dict[int, float] = {}
        self._alone = {each.name for each in settings if each.max_leases_per_key is not None}
        self.books.before.append(self._judge)
        self._most = {each.name: _most_records(each) for each in settings}

    def listeners(self) -> Mapping[type, Listener]:
        """It looks at what is delivered, and at all that a worker gets or gives back."""
        return {
            happened.Delivered: self._delivered,
            happened.Reading: self._placed,
            happened.Misplaced: self._placed,
            happened.Released: self._placed,
            happened.Appended: self._appended,
            happened.CommitSent: self._anything,
            happened.Finished: self._finished,
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.WentOn: self._went_on,
            happened.Ended: self._ended,
            happened.Gone: self._gone,
        }

    def _delivered(self, told: happened.Delivered) -> None:
        self._judge()
        if self.books.by_hand.holds(told.member, told.partition):
            self.violated(
                told.member,
                f"{told.partition} is paused by hand, and {told.offsets[0]} of it has come",
            )
        member = self.books.members[told.member]
        for sub, count in member.open.items():
            if count <= self._most[sub] or member.stopping_at or sub not in self.books.tracked:
                continue  # of what is dropped nobody hears
            taken_in = count - _loose(member, sub)
            if taken_in > self._most[sub]:
                those = [each for each in self.books.deliveries if each.fate.sub == sub]
                until = self.books.now
                if until - self._lost_at.get(told.member, float("-inf")) < FOUND_WITHIN:
                    until += FOUND_WITHIN
                before = self._much.get((told.member, sub))
                until = until if before is None else min(until, before.until)
                self._much[told.member, sub] = Much(until, taken_in, those)

    def _placed(self, told: happened.Reading | happened.Misplaced | happened.Released) -> None:
        """Let go of what came too much, and is to come again: its member has not used it.

        Or its partition has gone.
        """
        member = self.books.members[told.member]
        if isinstance(told, happened.Misplaced):
            self._lost_at[told.member] = self.books.now
        for sub in self.settings:
            much = self._much.get((told.member, sub))
            if much is None:
                continue
            if isinstance(told, happened.Misplaced):
                for each in much.deliveries:
                    if each.assignment.partition in told.partitions:
                        each.assignment.loose.append(each)
            if member.open[sub] - _loose(member, sub) <= self._most[sub]:
                del self._much[told.member, sub]

    def _appended(self, told: happened.Appended) -> None:
        self._judge()
        if self._smallest is None or told.size < self._smallest:
            self._smallest = told.size
            for sub, settings in self.settings.items():
                spare = settings.window_bytes // POLL_SHARE
                fit = (settings.window_bytes + spare) // max(1, told.size)
                # The last one that fits may be a little too large, and one more come by a poll.
                self._most[sub] = min(_most_records(settings), fit + 2)

    def _anything(self, told: object) -> None:
        del told
        self._judge()

    def _finished(self, told: happened.Finished) -> None:
        del told
        self._judge(float("inf"))

    def _judge(self, now: float | None = None) -> None:
        """Say what has come too much and was not given back in time."""
        if not self._much:
            return
        for (number, sub), much in list(self._much.items()):
            if (self.books.now if now is None else now) > much.until:
                del self._much[number, sub]
                last = much.deliveries[-1].assignment.partition if much.deliveries else "nowhere"
                self.violated(
                    number,
                    f"{much.held} received records are not settled in {sub!r}, its window holds "
                    f"{self._holds(sub)} (the last came of {last})",
                )

    def _holds(self, sub: str) -> str:
        settings = self.settings[sub]
        if self._most[sub] == _most_records(settings):
            return f"{settings.window_records}"
        return f"{settings.window_bytes} bytes, of which each has {self._smallest}"

    def _handed_over(self, told: happened.HandedOver) -> None:
        sub, worker = told.subscription, told.worker
        leases = self._leases[told.member]
        leases[sub, worker] += len(told.records)
        count, most = leases[sub, worker], self.settings[sub].leases_per_worker
        if count > most:
            self.violated(told.member, f"worker {worker} of {sub!r} has {count} leases of {most}")
        in_bytes = self.settings[sub].lease_bytes_per_worker
        if in_bytes is not None:
            held = self._bytes[told.member]
            held[sub, worker] += sum(map(_size, self.books.deliveries))
            if held[sub, worker] > in_bytes and count > 1:
                self.violated(
                    told.member,
                    f"worker {worker} of {sub!r} has {held[sub, worker]} bytes of {in_bytes}",
                )
        if sub in self._alone:
            of_lane = self._of_lane[told.member]
            for each in self.books.deliveries:
                if each.lane.slot is None:
                    continue  # nothing waits for it, nor does it for itself of another assignment
                of_lane[each.lane] += 1
                # One without a key may still run from before its partition went.
                if of_lane[each.lane] > 1 and each.lane.slot is not None:
                    self.violated(
                        told.member, f"{each} was given out while another one of its lane is"
                    )

    def _taken_back(self, told: happened.TakenBack) -> None:
        self._back(told.member, told.subscription, told.worker, self.books.deliveries)

    def _went_on(self, told: happened.WentOn) -> None:
        self._beside(told, -1)

    def _beside(self, told: happened.WentOn | happened.Ended, times: int) -> None:
        """What a worker has gone on beside is not in its hands, until it has ended."""
        if self.books.delivery is not None:
            self._leases[told.member][told.subscription, told.worker] += times
            size = times * _size(self.books.delivery)
            self._bytes[told.member][told.subscription, told.worker] += size

    def _ended(self, told: happened.Ended) -> None:
        if self.books.beside:
            self._beside(told, 1)
        if self.books.delivery is not None:
            self._back(told.member, told.subscription, told.worker, (self.books.delivery,))

    def _back(self, member: int, sub: str, worker: int, those: Iterable[Delivery]) -> None:
        for each in those:
            self._leases[member][sub, worker] -= 1
            self._bytes[member][sub, worker] -= _size(each)
            if sub in self._alone and each.lane.slot is not None:
                of_lane = self._of_lane[member]
                of_lane[each.lane] -= 1
                if not of_lane[each.lane]:
                    del of_lane[each.lane]

    def _gone(self, told: happened.Gone) -> None:
        self._leases.pop(told.member, None)
        self._of_lane.pop(told.member, None)
        self._bytes.pop(told.member, None)
        self._judge()
        for number, sub in list(self._much):
            if number == told.member:
                del self._much[number, sub]


def _most_records(settings: SubscriptionSettings) -> int:
    return settings.window_records + settings.window_records // POLL_SHARE


def _size(each: Delivery) -> int:
    return each.fate.log.sizes[each.offset]


def _loose(member: Member, sub: str) -> int:
    """Return how many of those that are not settled may never have been taken in."""
    return sum(
        each.fate.sub == sub and each.stage is Stage.OPEN and each.worker is None
        for assignment in member.live.values()
        for each in assignment.loose
    )
