"""Orders that pause and resume fetching by hand."""

from __future__ import annotations

from collections.abc import Generator

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition, some
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.pauses import Those
from kafka_keyshared.runtime.scaling import Ordered

log = log_of("kafka_keyshared.loop")


def pause(those: Those) -> Ordered[list[TopicPartition]]:
    """Return an order that pauses these and waits until the client has paused them.

    The answer lists the partitions of this member that are then paused by hand.
    """
    return _order(those, paused=True)


def resume(those: Those) -> Ordered[list[TopicPartition]]:
    """Return an order that resumes these; it answers with the partitions still paused by hand."""
    return _order(those, paused=False)


def _order(those: Those, *, paused: bool) -> Ordered[list[TopicPartition]]:
    def work(loop: Loop) -> Generator[None, None, list[TopicPartition]]:
        _refuse_unknown(loop, those)
        holds = loop.core.holds
        loop.by_hand.order(those, paused=paused, here=loop.core.partitions)
        held = holds.held_back(Reason.BY_HAND)
        log.info(
            "%s %s by hand; partitions of this instance that are paused by hand: %s",
            "paused" if paused else "resumed",
            those,
            some(sorted(held)),
        )
        loop.pause_and_resume()
        while not held <= loop.paused():  # the client refused; the pause is sent again
            yield
        return sorted(held)

    return work


def _refuse_unknown(loop: Loop, those: Those) -> None:
    """Refuse a partition that is not assigned, was never named, and is not in its topic."""
    for each in those.partitions or ():
        known = each in loop.core.partitions or loop.by_hand.names(each)
        if not known and loop.ports.client.is_new(each):
            raise OrderRefusedError(f"no partition {each} is known to this instance")
