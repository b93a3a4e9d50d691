"""How a member leaves its group, so that closing its client comes to an end.

``close()`` of librdkafka may stand for ever when it finds a rebalance under way (librdkafka #4041
and #4884). It tells the group that it leaves, and hands the assignment that still comes in to a
rebalance callback. When the answer to the leave is there first, the client's own part in the group
is over, and what the callback then says (``assign``, or the client itself in its place) waits for
an answer that nobody gives. confluent-kafka waits for it **with the interpreter lock**: no thread
of the process runs any more, no time-out passes, no signal is handled, no probe is answered.

So the group is left before, while everything still answers; then there is nothing to call back.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")

LEAVE_TIMEOUT = 2.0
"""Seconds in which a rebalance that is under way is to come so far that it can be left.

It takes milliseconds, unless others keep the whole group waiting. Then no assignment comes in
either, or only by the bad luck of coming in while the client closes.
"""

JOIN_TIMEOUT = 10.0
"""Seconds at most for the coordinator to answer a JoinGroup that is on its way.

The coordinator gives a new member its id in that answer, at once, and counts it as *pending* from
then on (KIP-394). A member that goes without knowing its id cannot leave, and no rebalance of its
group completes until its session is over. So the answer is waited for, and then the group is left.
"""

STEP = 0.01
"""Seconds of one poll."""


class Left(enum.Enum):
    """How far a member came out of its group before its client is closed."""

    YES = "left"
    JOINING = "its JoinGroup was not answered"
    REBALANCING = "the group is in a rebalance"
    REFUSED = "the client refuses to leave"


def leave(
    consumer: Consumer,
    *,
    keeps_id: bool,
    joining: bool = False,
    patience: Callable[[], float] = lambda: JOIN_TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
) -> Left:
    """Leave the group and call back what comes of it; return whether it has been left in time.

    ``unsubscribe`` is put off by the client while a rebalance is under way, and that goes on only
    with the answers of its callbacks. Out of the group the client has no member id, or, where it
    keeps one (``keeps_id``: it chooses its own in the protocol of KIP-848), no partitions. Records
    that are still taken off the queue are dropped; nothing counts them as received.

    A member that is ``joining`` and has no id yet is given so many seconds to get one as
    ``patience`` returns, and at most :data:`JOIN_TIMEOUT`. No other member asks for them.
    """
    is_member: Callable[[], object] = consumer.assignment if keeps_id else consumer.memberid
    try:
        if joining and not (keeps_id or consumer.memberid()):
            answered = clock() + min(patience(), JOIN_TIMEOUT)
            while not consumer.memberid():
                if clock() >= answered:
                    consumer.unsubscribe()
                    return Left.JOINING
                consumer.poll(STEP)
        deadline = clock() + LEAVE_TIMEOUT
        consumer.unsubscribe()
        consumer.poll(0)
        while is_member():
            if clock() >= deadline:
                return Left.REBALANCING
            consumer.poll(STEP)
    except KafkaException as error:
        log.debug("the group cannot be left before the client is closed: %s", error)
        return Left.REFUSED
    return Left.YES
