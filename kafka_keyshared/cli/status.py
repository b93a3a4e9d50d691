"""The line that ``keyshared run`` writes while it runs, so that one sees how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from kafka_keyshared.logs import log_of
from kafka_keyshared.runtime.loop import Loop

log = log_of("kafka_keyshared.status")

LOOK_EVERY = 0.25
LINE_EVERY = 5.0


class Progress(NamedTuple):
    """How far the instance is. ``lag`` is None while the end of a partition is not known."""

    settled: int
    dead_lettered: int
    held: int
    closed_keys: int
    partitions: int
    lag: int | None

    @property
    def caught_up(self) -> bool:
        """Whether all that is in its partitions is settled and committed."""
        return self.partitions > 0 and self.lag == 0 and self.held == 0

    def line(self, per_second: float) -> str:
        """Return the line for a person."""
        lag = "not known yet" if self.lag is None else f"{self.lag:,}"
        held = f", {self.held:,} held" if self.held else ""
        closed = f", {self.closed_keys:,} keys waiting for a retry" if self.closed_keys else ""
        return (
            f"{'caught up: ' if self.caught_up else ''}settled {self.settled:,} "
            f"({per_second:,.0f}/s), dead letters {self.dead_lettered:,}{held}{closed}; "
            f"{self.partitions} partitions, lag {lag}"
        )


class StatusLine:
    """A hook for every step of the loop: one line every few seconds, and one on catching up.

    Nothing is written while nothing changes. The lag is what Kafka's own tools call so: the end of
    the log less the committed position, over the partitions that are assigned. ``from_start`` says
    where a partition without a committed position is read from.
    """

    def __init__(
        self,
        *,
        from_start: bool,
        say: Callable[[str], None] = log.info,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._from_start = from_start
        self._say = say
        self._clock = clock
        self._look_at = 0.0
        self._said_at = clock()
        self._said: Progress | None = None

    def __call__(self, loop: Loop) -> None:
        """Look at the instance a few times a second, and say what is new."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        status = self._progress(loop)
        if status == self._said:
            return
        # A stream that trickles catches up after every record: that is worth one line in a while.
        news = status.caught_up and not (self._said is not None and self._said.caught_up)
        if not news and now - self._said_at < LINE_EVERY:
            return
        before = self._said.settled if self._said else 0
        seconds = max(now - self._said_at, LOOK_EVERY)
        self._said, self._said_at = status, now
        self._say(status.line((status.settled - before) / seconds))

    def _progress(self, loop: Loop) -> Progress:
        subscriptions = loop.core.subscriptions.values()
        counts = [sub.counts for sub in subscriptions]
        return Progress(
            settled=sum(each.ok + each.dropped + each.dead_lettered for each in counts),
            dead_lettered=sum(each.dead_lettered for each in counts),
            held=max(sub.window.records for sub in subscriptions),
            closed_keys=sum(len(sub.closed) for sub in subscriptions),
            partitions=len(loop.core.partitions),
            lag=self._lag(loop),
        )

    def _lag(self, loop: Loop) -> int | None:
        lag = 0
        ends = loop.ports.client.log_ends()
        for partition, state in loop.core.partitions.items():
            end = ends.get(partition)
            committed = loop.core.commits.committed(partition)
            if end is None:
                return None
            if committed is not None:
                lag += max(0, end - committed)
            elif state.received_end is not None:
                return None  # the first commit is still to come
            elif self._from_start:
                lag += end
        return lag
