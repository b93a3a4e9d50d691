"""Orders for closed lanes: operator decisions, and the list of lanes."""

from __future__ import annotations

from collections.abc import Callable, Generator

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.failures import lane_actions
from kafka_keyshared.executors.notice_words import order_text
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.command_queue import OrderRefusedError, named
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.status import LaneStatus


def give(order: ev.LaneOrder) -> Callable[[Loop], Generator[None, None, str]]:
    """Return the work that passes the order to the core and answers with its result."""

    def work(loop: Loop) -> Generator[None, None, str]:
        yield from ()  # makes it a generator; the answer is there in the same round
        named(loop.core.subscriptions, order.subscription)
        loop.tell(order)
        answer = loop.lane_answers.pop()
        if answer.done is None:
            raise OrderRefusedError(answer.refused)
        return order_text(answer.done)

    return work


def lift_dlq_limit(loop: Loop) -> Generator[None, None, list[TopicPartition]]:
    """Resume every partition that its dead-letter limit stopped; return those partitions."""
    yield from ()
    stopped = sorted(loop.core.holds.held_back(Reason.DLQ_LIMIT))
    if not stopped:
        raise OrderRefusedError("no partition is stopped by its dead-letter limit")
    loop.tell(ev.DlqLimitLifted(stopped))
    return stopped


def closed_lanes(loop: Loop) -> Generator[None, None, list[LaneStatus]]:
    """Return every closed lane, those that need an operator first."""
    yield from ()
    now, wall = loop.ports.clock(), loop.ports.clock.wall()
    return [
        each
        for sub in loop.core.subscriptions.values()
        for each in lane_actions.listing(sub, now, wall)
    ]
