"""The partitions of this member: in which state each is, and what may happen to it there.

Why one is not fetched from just now stands in :mod:`.holds`, what is done as it comes and goes in
:mod:`.assignment`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from kafka_keyshared.core.offsets import PartitionState
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
    RECEIVED = "delivered records without being assigned"
    REVOKING = "about to be revoked without being assigned"
    FORGOTTEN = "forgotten without being assigned"


_S, _E = Ownership, PartitionEvent

PARTITION_TABLE: Mapping[Ownership, Mapping[PartitionEvent, Ownership]] = {
    _S.ABSENT: {_E.ASSIGNED: _S.OWNED},
    _S.OWNED: {
        _E.RECEIVED: _S.OWNED,
        _E.REVOKING: _S.CLOSING,
        _E.FORGOTTEN: _S.ABSENT,
    },
    _S.CLOSING: {
        _E.RECEIVED: _S.CLOSING,
        _E.REVOKING: _S.CLOSING,
        _E.FORGOTTEN: _S.ABSENT,
    },
}
"""The state that follows; what is not here cannot happen."""


def follow(
    states: Mapping[TopicPartition, PartitionState],
    closing: Iterable[TopicPartition],
    event: PartitionEvent,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, Ownership]:
    """Return what becomes of the partitions; ``states`` are those that are here.

    Raises :class:`InvariantError` naming all to which that cannot happen.
    """
    given_up = set(closing)
    following: dict[TopicPartition, Ownership] = {}
    refused: list[TopicPartition] = []
    for each in partitions:
        held = Ownership.CLOSING if each in given_up else Ownership.OWNED
        now = PARTITION_TABLE[held if each in states else Ownership.ABSENT].get(event)
        if now is None:
            refused.append(each)
        else:
            following[each] = now
    if refused:
        raise InvariantError(f"{', '.join(map(str, sorted(refused)))} {event.value}")
    return following
