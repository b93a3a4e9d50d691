"""New read positions for partitions that lost their place.

A log that ends before the received end was truncated, or belongs to a recreated topic. Starting at
the end of a new log would skip its records. Starting at the beginning of an old log would run all
its remaining records again.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.topic_ids import TopicId

log = log_of("kafka_keyshared.loop")

NO_ID = TopicId()


class ReadOn(NamedTuple):
    """A read position and the state of the log.

    ``another`` says that the log differs from the one that was read. ``remade`` says that nothing
    of the old log is left.
    """

    position: int | None
    another: bool = False
    remade: bool = False


def inside(
    partition: TopicPartition,
    position: int | None,
    bounds: LogBounds,
    epoch: int,
    id_: TopicId = NO_ID,
    *,
    settled_end: int | None = None,
) -> ReadOn:
    """Return where to read on in a log with these bounds; log the records this loses.

    ``settled_end`` is one past the last settled offset, if that is beyond the position. New records
    below it would be taken for settled.

    ``epoch`` is the leader epoch of the last received record. A topic with another id was deleted
    and recreated. With the same id, or without one, a log that ends too early was truncated. That
    happens when a lagging replica becomes the leader, and it raises the epoch. If the epoch has not
    risen, the topic was recreated and its id was queried too late. If neither id nor epoch is
    known, the log is read from its start. It is better to run records again than to skip some.
    """
    start, end, _ = bounds
    if position is None:
        return ReadOn(None)
    if id_.changed:
        log.error(
            "%s: its topic has another id (%s, was %s): the topic was deleted and recreated; "
            "records held of the old one are dropped, the new one is read from its start, %d",
            partition,
            id_.now,
            id_.began,
            start,
        )
        return ReadOn(start, another=True, remade=True)
    if position < start:
        log.warning(
            "%s: retention has removed the log up to %d, past the received end %d; %d offsets are "
            "gone, reading goes on at the start of the log",
            partition,
            start,
            position,
            start - position,
        )
        return ReadOn(start)
    if position > end:
        return _ends_too_early(partition, position, bounds, epoch, id_)
    if settled_end is not None and settled_end > end:
        log.error(
            "%s: the log ends at %d, before %d, up to which records had settled: it was cut off; "
            "settled records beyond its end are forgotten, reading continues at %d",
            partition,
            end,
            settled_end,
            position,
        )
        return ReadOn(position, another=True)
    log.info("%s: out of range at %d, which the log has; reading on there", partition, position)
    return ReadOn(position)


def _ends_too_early(
    partition: TopicPartition, position: int, bounds: LogBounds, epoch: int, id_: TopicId
) -> ReadOn:
    start, end, epoch_now = bounds
    without = "" if id_.known else " (decided without the topic's id)"
    unknown = epoch < 0 or epoch_now < 0
    if 0 <= epoch_now <= epoch:
        log.error(
            "%s: the log ends at %d, before the received end %d, and its leader's epoch has not "
            "risen (%d, was %d): the topic was deleted and recreated%s; records held of the old "
            "one are dropped, the new one is read from its start, %d",
            partition,
            end,
            position,
            epoch_now,
            epoch,
            without,
            start,
        )
        return ReadOn(start, another=True, remade=True)
    if unknown and not id_.known:
        log.error(
            "%s: the log ends at %d, before the received end %d, and neither the topic's id nor "
            "the epoch of its leader says why: it is read from its start, %d, and settled records "
            "of it may run again",
            partition,
            end,
            position,
            start,
        )
        return ReadOn(start, another=True, remade=True)
    log.error(
        "%s: the log ends at %d, before the received end %d: it was cut off (as by the "
        "election of a leader that lagged behind)%s; %d offsets are gone, reading goes on at its "
        "end",
        partition,
        end,
        position,
        without,
        position - end,
    )
    return ReadOn(end, another=True)
