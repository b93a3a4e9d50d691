"""Orders to fetch nothing from something any more, and to fetch from it again."""

from __future__ import annotations

from collections.abc import Generator

from kafka_keyshared.core.holds import Reason
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition, some
from kafka_keyshared.owner.by_hand import Those
from kafka_keyshared.owner.loop import Loop
from kafka_keyshared.owner.orders import OrderRefusedError
from kafka_keyshared.owner.scaling import Ordered

log = log_of("kafka_keyshared.loop")


def pause(those: Those) -> Ordered[list[TopicPartition]]:
    """Return what pauses these, and waits until the client fetches nothing from them.

    Its answer are the partitions of this member that are paused by hand then.
    """
    return _order(those, paused=True)


def resume(those: Those) -> Ordered[list[TopicPartition]]:
    """Return what ends that; its answer are the partitions that are paused by hand still."""
    return _order(those, paused=False)


def _order(those: Those, *, paused: bool) -> Ordered[list[TopicPartition]]:
    def work(loop: Loop) -> Generator[None, None, list[TopicPartition]]:
        _refuse_unknown(loop, those)
        holds = loop.core.holds
        loop.by_hand.order(those, paused=paused, here=loop.core.partitions)
        held = holds.held_back(Reason.BY_HAND)
        log.info(
            "%s %s by hand; of what is here nothing is fetched for that reason from %s",
            "paused" if paused else "resumed",
            those,
            some(sorted(held)),
        )
        loop.pause_and_resume()
        while not held <= loop.paused():  # refused by the client, and told again
            yield
        return sorted(held)

    return work


def _refuse_unknown(loop: Loop, those: Those) -> None:
    """Refuse a partition that is not here, was not named before, and is not in its topic."""
    for each in those.partitions or ():
        known = each in loop.core.partitions or loop.by_hand.names(each)
        if not known and loop.ports.client.is_new(each):
            raise OrderRefusedError(f"there is no partition {each}, as far as this instance knows")
