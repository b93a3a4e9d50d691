"""Checker I2: records of one lane run one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Delivery, End
from kafka_keyshared.lab.simulator.history import History, Listener

MOMENT = 1e-9


class SerialChecker(Checker):
    """I2, serial: no two handler intervals of one lane overlap.

    In one process there are two exceptions. Nothing waits for a record without a key, which may
    overlap itself after its partition has gone and come back. A member that settles by offsets has
    several records of a lane, in order (``receives``: workers may be members).

    Between processes an overlap needs one of two reasons. One of them has lost the partition, known
    or not. A worker may start leased records until it has answered the recall. Or the earlier one
    released the partition after the deadline of the revoke (in seconds). Before the deadline,
    nothing may run when it is released.
    """

    invariant = "I2 serial"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        revoke_deadline: float = 5.0,
        receives: bool = True,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._deadline = revoke_deadline
        self._receives = receives

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to starts of records, and to partitions and processes that go."""
        return {
            happened.Began: self._began,
            happened.PartitionsReleased: self._released,
            happened.Gone: self._gone,
        }

    def _began(self, told: happened.Began) -> None:
        each = self.books.delivery
        if each is None or len(each.lane.running) == 1:
            return
        for other in each.lane.running[:-1]:
            if other.assignment.member is each.assignment.member:
                if not self._may_share(other, each, told):
                    self._overlap(other, each, told)
            elif other.fate.log is each.fate.log:
                before = other.assignment
                unheard = before.stolen or each.assignment.stolen
                late = each.assignment.is_not_given_back(
                    told.subscription, told.worker, self._deadline - MOMENT
                )
                if before.over is None and not (unheard or late):
                    self._overlap(other, each, told)

    def _may_share(self, other: Delivery, each: Delivery, told: happened.Began) -> bool:
        if each.lane.slot is None:
            return other.assignment is not each.assignment
        settings = self.settings[told.subscription]
        return (
            self._receives
            and settings.individually
            and not settings.one_in_flight_per_key
            and other.worker == told.worker
            and other is not each
        )

    def _overlap(self, other: Delivery, each: Delivery, told: happened.Began) -> None:
        self.violated(
            told.member,
            f"{each} began at worker {told.worker} {each.assignment} while {other.fate} runs at "
            f"worker {other.worker} {other.assignment}",
        )

    def _released(self, told: happened.PartitionsReleased) -> None:
        for assignment in self.books.ended:
            if assignment.over is not End.REVOKED or not assignment.running:
                continue
            member = assignment.member
            began = assignment.revoking_at
            waited = 0.0 if began is None else assignment.over_at - began
            if waited < self._deadline - MOMENT and member.stopping_at is None:
                runs = next(each for each in member.running if each.assignment is assignment)
                self.violated(
                    told.member,
                    f"{assignment.partition} was let go after {waited:.3f} s of "
                    f"{self._deadline:.3f} while {runs} runs at worker {runs.worker}",
                )

    def _gone(self, told: happened.Gone) -> None:
        if told.how != "stopped" or not told.clean:
            return
        for each in self.books.cut:
            if each.assignment.over is End.STOPPED:
                self.violated(told.member, f"a stop counts as clean and {each} still ran")
