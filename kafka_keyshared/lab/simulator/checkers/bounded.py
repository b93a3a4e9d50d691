"""Checker I10: leases and windows stay within their limits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Delivery, Lane, MemberModel, Stage
from kafka_keyshared.lab.simulator.history import History, Listener

POLL_SHARE = 20
"""Polls at a full window may exceed it by one part in this many."""


FOUND_WITHIN = 10.0
"""Seconds within which a position that the client lost is found and reported.

In an eager group, one found position makes the client report the start of every partition. The
others may still be lost, and the member uses nothing from them.
"""


class Much(NamedTuple):
    """A surplus over a window: deadline for giving it back, count, and the last deliveries."""

    until: float
    held: int
    deliveries: list[Delivery]


class Bounded(Checker):
    """I10, bounded: leases and windows stay within their limits.

    A worker holds at most ``prefetch_records`` leases, not counting stuck records. With
    ``one_in_flight_per_key`` a lane has at most one lease. With ``prefetch_bytes`` a worker
    holds at most that many bytes, or one record.

    In an at-least-once subscription, the unsettled records stay within ``window_records``. They
    also stay within the number of smallest records that ``window_bytes`` holds. Polls at a full
    window may exceed this by a twentieth. A stopping member polls on and uses nothing that it gets.
    A member whose client lost its position uses nothing either, until it learns where to resume.
    Records that arrive until then count once a worker has them, or once they turn out not to arrive
    again. A member may give a surplus back in the same round and read it again.

    No record arrives from a partition that is paused by hand once the order is answered. This also
    holds after a rebalance, unless the client refuses the pause.
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
        # When each member's client last lost a position.
        self._lost_at: dict[int, float] = {}
        self._alone = {each.name for each in settings if each.one_in_flight_per_key}
        self.books.before.append(self._judge)
        self._most = {each.name: _most_records(each) for each in settings}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to deliveries, and to every lease that starts or ends."""
        return {
            happened.Delivered: self._delivered,
            happened.ReadingFrom: self._placed,
            happened.Misplaced: self._placed,
            happened.PartitionsReleased: self._placed,
            happened.Appended: self._appended,
            happened.CommitRequested: self._anything,
            happened.Finished: self._finished,
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.WentOn: self._went_on,
            happened.HandlerEnded: self._ended,
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
                continue  # drops are not reported there
            taken_in = count - _loose(member, sub) - _unsure(member, sub)
            if taken_in > self._most[sub]:
                those = [each for each in self.books.deliveries if each.fate.sub == sub]
                until = self.books.now
                if until - self._lost_at.get(told.member, float("-inf")) < FOUND_WITHIN:
                    until += FOUND_WITHIN
                before = self._much.get((told.member, sub))
                until = until if before is None else min(until, before.until)
                self._much[told.member, sub] = Much(until, taken_in, those)

    def _placed(
        self, told: happened.ReadingFrom | happened.Misplaced | happened.PartitionsReleased
    ) -> None:
        """Forget a surplus that the member did not use and will read again.

        Also forget it once its partition has gone.
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
                # The last record that fits may be slightly too large, and a poll may bring one
                # more.
                self._most[sub] = min(_most_records(settings), fit + 2)

    def _anything(self, told: object) -> None:
        del told
        self._judge()

    def _finished(self, told: happened.Finished) -> None:
        del told
        self._judge(float("inf"))

    def _judge(self, now: float | None = None) -> None:
        """Report each surplus that was not given back in time."""
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
        count, most = leases[sub, worker], self.settings[sub].prefetch_records
        if count > most:
            self.violated(told.member, f"worker {worker} of {sub!r} has {count} leases of {most}")
        in_bytes = self.settings[sub].prefetch_bytes
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
                    continue  # no record waits for it, not even itself in another assignment
                of_lane[each.lane] += 1
                # A record without a key may still run from before its partition was revoked.
                if of_lane[each.lane] > 1 and each.lane.slot is not None:
                    self.violated(
                        told.member, f"{each} was given out while another one of its lane is"
                    )

    def _taken_back(self, told: happened.TakenBack) -> None:
        self._back(told.member, told.subscription, told.worker, self.books.deliveries)

    def _went_on(self, told: happened.WentOn) -> None:
        self._beside(told, -1)

    def _beside(self, told: happened.WentOn | happened.HandlerEnded, times: int) -> None:
        """Exclude a record that its worker has gone on beside from the leases, until it ends."""
        if self.books.delivery is not None:
            self._leases[told.member][told.subscription, told.worker] += times
            size = times * _size(self.books.delivery)
            self._bytes[told.member][told.subscription, told.worker] += size

    def _ended(self, told: happened.HandlerEnded) -> None:
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


def _unsure(member: MemberModel, sub: str) -> int:
    """Return the number of records that may have been dropped, if attempts were not given back."""
    return sum(
        each.fate.sub == sub and each.stage is Stage.UNSURE
        for assignment in member.live.values()
        for each in assignment.unsure
    )


def _loose(member: MemberModel, sub: str) -> int:
    """Return the number of unsettled records that the member may never have taken in."""
    return sum(
        each.fate.sub == sub and each.stage is Stage.OPEN and each.worker is None
        for assignment in member.live.values()
        for each in assignment.loose
    )
