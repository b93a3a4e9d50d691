"""For how long a record has waited until its handler was called, and how much of that for its key.

Asked for by spans alone (:mod:`.tracing`): an app without them notes nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kafka_keyshared.core.lane_identity import Lane, is_keyless, lane_of
from kafka_keyshared.model import Record, TopicPartition, partition_of

Arrived: TypeAlias = Callable[[TopicPartition, int], "float | None"]
"""Says when the record of a partition at an offset was fetched, None where nobody knows."""


class Wait(NamedTuple):
    """What is known at the start of a call, in seconds. None: not known.

    ``behind_key`` is how much of ``queued`` went by until the call before it of its key had ended,
    be that its own earlier attempt; the rest it has waited for a worker, or for its retry.
    """

    lane: Lane
    queued: float | None
    behind_key: float | None


def _unknown(partition: TopicPartition, offset: int) -> None:
    del partition, offset


class Waits:
    """The waits of an app's records. All its workers share one; ``clock`` is the owner's.

    It remembers of the last ``most`` lanes when their last call ended: what waits behind a call is
    in the window, so a window full of others has been run before that is forgotten.
    """

    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self._clock = clock
        self._most = most
        self._arrived: Arrived = _unknown
        self._lane_of: Callable[[Record], Lane] = lane_of
        self._ended: dict[Lane, float] = {}
        self._ended_before: dict[Lane, float] = {}

    def learn(self, arrived: Arrived, lane_of: Callable[[Record], Lane]) -> None:
        """Go by what the core knows, from the start of the instance on."""
        self._arrived, self._lane_of = arrived, lane_of

    def begins(self, record: Record) -> Wait:
        """Return for how long a record has waited whose handler is called now."""
        lane = self._lane_of(record)
        try:
            since = self._arrived(partition_of(record), record.offset())
        except IndexError:  # the owner, on another thread, has just forgotten some
            since = None
        if since is None:
            return Wait(lane, None, None)
        queued = max(0.0, self._clock() - since)
        if is_keyless(lane):
            return Wait(lane, queued, 0.0)
        ended = self._ended.get(lane)
        if ended is None:
            ended = self._ended_before.get(lane, since)
        return Wait(lane, queued, min(queued, max(0.0, ended - since)))

    def ends(self, lane: Lane) -> None:
        """Note that a call of a lane has ended."""
        if is_keyless(lane):
            return
        self._ended[lane] = self._clock()
        if len(self._ended) >= self._most:
            self._ended_before, self._ended = self._ended, {}
