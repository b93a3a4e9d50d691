"""Orders for a simulated member: pauses, released lanes and lifted limits."""

from __future__ import annotations

from collections.abc import Generator

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract.events import DlqLimitLifted, LaneAction, LaneOrder
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.member import Member
from kafka_keyshared.lab.simulator.pause_history import PauseOrdered, PauseTaken
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.pause_commands import pause, resume
from kafka_keyshared.runtime.pauses import Those

EVERYTHING = Those()
"""Everything that a member reads."""


def lift_limits(member: Member) -> None:
    """Resume all partitions of a member that their dead-letter limit has stopped, by an order."""

    def lift(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        stopped = sorted(loop.core.holds.held_back(Reason.DLQ_LIMIT))
        if stopped:
            member.lifted(stopped)
            loop.tell(DlqLimitLifted(stopped))

    member.order("lift limits", lift)


def release_blocked(member: Member) -> None:
    """Release all blocked lanes of a member, if there are any, by an order.

    A mended handler and a restart do that for all others. The exceptions are lanes that are
    diverted in one partition and blocked in another one, which has as many diverted lanes as it
    may.
    """

    def blocked() -> list[tuple[str, ClosedLane]]:
        return [
            (sub.name, closed)
            for sub in member.instance.core.subscriptions.values()
            for closed in sub.closed.lanes.values()
            if closed.state is LaneState.BLOCKED
        ]

    def release(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        for name, closed in blocked():
            if closed.head is not None:
                place = closed.partition, closed.head.offset()
                loop.tell(LaneOrder(name, LaneAction.UNBLOCK, None, *place))
        loop.lane_answers.clear()

    if blocked():
        member.order("release blocked lanes", release)


def order_a_pause(history: History, member: Member, those: Those, *, paused: bool) -> None:
    """Order a pause or a resume; report when it is ordered and when it has taken effect."""
    work = (pause if paused else resume)(those)
    member.by_hand = member.by_hand or paused

    def order(loop: Loop) -> Generator[None, None, None]:
        number = history.count
        told = PauseOrdered(member.number, number, those.topics, those.partitions, paused)
        history.tell(told)
        yield from work(loop)
        history.tell(PauseTaken(member.number, number))

    member.order("pause" if paused else "resume", order)
