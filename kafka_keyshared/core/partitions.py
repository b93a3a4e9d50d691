"""The partitions of this member: in which state each is, and what may happen to it there.

Why one is not fetched from just now stands in :mod:`.holds`, what is done as it comes and goes in
:mod:`.assignment`.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Mapping

from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import TopicPartition


class Ownership(enum.Enum):
    """Whose a partition is."""

    ABSENT = "absent"
    """Not this member's."""
    OWNED = "owned"
    """This member's: its records start, its positions are committed."""
    CLOSING = "closing"
    """About to be given up: nothing of it starts any more, and it may be committed once more."""


class PartitionEvent(enum.Enum):
    """What can happen to a partition; the text says what it means where it cannot."""

    ASSIGNED = "assigned twice without being revoked"
    RECEIVED = "delivered records without being assigned, or while it is given up"
    REVOKING = "about to be given up without being assigned, or twice"
    FORGOTTEN = "forgotten without being assigned, or before it is given up"


_S, _E = Ownership, PartitionEvent

PARTITION_TABLE: Mapping[Ownership, Mapping[PartitionEvent, Ownership]] = {
    _S.ABSENT: {_E.ASSIGNED: _S.OWNED},
    _S.OWNED: {
        _E.RECEIVED: _S.OWNED,
        _E.REVOKING: _S.CLOSING,
    },
    _S.CLOSING: {
        _E.FORGOTTEN: _S.ABSENT,
    },
}
"""The state that follows; what is not here cannot happen.

An owner gives a partition up within one call: inside it nothing is fetched, and it is not announced
a second time.
"""


def refuse_impossible(
    states: Container[TopicPartition],
    closing: Container[TopicPartition],
    event: PartitionEvent,
    partitions: Iterable[TopicPartition],
) -> None:
    """Raise :class:`InvariantError` naming all of the partitions to which that cannot happen.

    ``states`` has those that are here, ``closing`` those of them that are about to be given up.
    """
    refused = []
    for each in partitions:
        owned = Ownership.CLOSING if each in closing else Ownership.OWNED
        if event not in PARTITION_TABLE[owned if each in states else Ownership.ABSENT]:
            refused.append(each)
    if refused:
        raise InvariantError(f"{', '.join(map(str, sorted(refused)))} {event.value}")
