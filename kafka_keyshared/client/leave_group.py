"""The leave of a group, such that the client can close.

``close()`` of librdkafka may hang forever during a rebalance (librdkafka #4041 and #4884). It sends
a LeaveGroup, and passes an assignment that still arrives to a rebalance callback. If the LeaveGroup
is answered first, the client's own part in the group is over. The callback's ``assign``, or the
client's own in its place, then waits for an answer that never comes. The binding confluent-kafka
waits **with the interpreter lock**. No thread of the process runs any more, no timeout expires, no
signal is handled, no probe is answered.

So the member leaves the group before ``close()``, while all threads still run. Then there is
nothing to call back.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")

LEAVE_TIMEOUT = 2.0
"""Seconds for a rebalance under way to reach a state in which the member can leave.

It takes milliseconds, unless other members delay the whole group. In that case no assignment
arrives either, except by bad luck exactly while the client closes.
"""

JOIN_TIMEOUT = 10.0
"""Maximum seconds for the coordinator to answer a JoinGroup in flight.

The coordinator gives a new member its id in that answer, at once. From then on it counts the member
as *pending* (KIP-394). A member that goes without knowing its id cannot leave. No rebalance of its
group completes until its session expires. So the member waits for the answer and then leaves.
"""

STEP = 0.01
"""Seconds of one poll."""


class Left(enum.Enum):
    """Whether a member has left its group before its client is closed, or why not."""

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
    """Leave the group and run the callbacks that follow. Return whether it was left in time.

    The client delays ``unsubscribe`` during a rebalance, and a rebalance advances only with the
    answers of its callbacks. After the leave the client has no member id. With ``keeps_id`` (the
    client chooses its own id in the protocol of KIP-848) it has no partitions instead. Records that
    are still polled are dropped; nothing counts them as received.

    A member that is ``joining`` and has no id yet waits for one. It waits as many seconds as
    ``patience`` returns, at most :data:`JOIN_TIMEOUT`. ``patience`` is not called for other
    members.
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
