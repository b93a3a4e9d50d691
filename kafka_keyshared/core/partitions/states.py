"""The ownership states of partitions and their transitions.

:mod:`kafka_keyshared.core.backpressure.pause_reasons` has the reasons why a partition is not
fetched. :mod:`.assignment` has the actions on assign and revoke.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Mapping

from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import TopicPartition


class PartitionOwnership(enum.Enum):
    """The ownership state of a partition."""

    ABSENT = "absent"
    """Not assigned to this member."""
    OWNED = "owned"
    """Assigned to this member: its records start and its positions are committed."""
    CLOSING = "closing"
    """Being revoked: none of its records start, and it may be committed once more."""


class PartitionEvent(enum.Enum):
    """An event of a partition; the text is the error where the event is impossible."""

    ASSIGNED = "assigned twice without being revoked"
    RECEIVED = "delivered records without being assigned, or while it is given up"
    REVOKING = "about to be given up without being assigned, or twice"
    FORGOTTEN = "forgotten without being assigned, or before it is given up"


_S, _E = PartitionOwnership, PartitionEvent

PARTITION_TABLE: Mapping[PartitionOwnership, Mapping[PartitionEvent, PartitionOwnership]] = {
    _S.ABSENT: {_E.ASSIGNED: _S.OWNED},
    _S.OWNED: {
        _E.RECEIVED: _S.OWNED,
        _E.REVOKING: _S.CLOSING,
    },
    _S.CLOSING: {
        _E.FORGOTTEN: _S.ABSENT,
    },
}
"""The next state by state and event; a missing entry is an impossible event.

The owner thread revokes a partition within one call. During that call it fetches nothing, and the
revoke is not announced a second time.
"""


def refuse_impossible(
    states: Container[TopicPartition],
    closing: Container[TopicPartition],
    event: PartitionEvent,
    partitions: Iterable[TopicPartition],
) -> None:
    """Raise :class:`InvariantError` naming all partitions for which the event is impossible.

    ``states`` has the assigned partitions, ``closing`` those of them that are being revoked.
    """
    refused = []
    for each in partitions:
        owned = PartitionOwnership.CLOSING if each in closing else PartitionOwnership.OWNED
        if event not in PARTITION_TABLE[owned if each in states else PartitionOwnership.ABSENT]:
            refused.append(each)
    if refused:
        raise InvariantError(f"{', '.join(map(str, sorted(refused)))} {event.value}")
