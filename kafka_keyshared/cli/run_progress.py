"""The progress line of ``keyshared run``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kafka_keyshared.cli.status_line import Live
from kafka_keyshared.core.lanes.closed import LETTERS_ON_THEIR_WAY, LaneState
from kafka_keyshared.core.status.shared_workers import lane_states
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import counted
from kafka_keyshared.runtime.instance_view import InstanceView

log = log_of("kafka_keyshared.status")

LOOK_EVERY = 0.25
LINE_EVERY = 5.0
DRAW_EVERY = 0.5
RATE_EVERY = 1.0
SAME_EVERY = 60.0
"""Seconds between two identical lines."""
WAITING_EVERY = 15.0
"""The same before the first assignment; a dead member times out within three such lines."""


class InstanceProgress(NamedTuple):
    """The progress of the instance. ``lag`` is None while the end of a partition is not known.

    ``running`` counts records whose handlers have not returned, ``held`` all unsettled ones. Keys
    are ``retrying``, ``stuck`` or ``blocked``. ``writing`` counts unacknowledged dead letters.
    ``joined`` means that partitions were assigned. ``shed`` records were dropped because their
    workers were full. ``detached`` records take long, and all but their keys continues.
    """

    settled: int
    dead_lettered: int
    held: int
    running: int
    retrying: int
    writing: int
    blocked: int
    partitions: int
    lag: int | None
    joined: bool = True
    shed: int = 0
    stuck: int = 0
    detached: int = 0

    @property
    def caught_up(self) -> bool:
        """Whether all records of its partitions are settled and committed."""
        return self.partitions > 0 and self.lag == 0 and self.held == 0

    def line(self, per_second: float, waiting: str = "") -> str:
        """Return the progress line; ``waiting`` is added while no partitions are assigned."""
        parts = [
            f"settled {self.settled:,} ({per_second:,.0f}/s)",
            f"dead letters {self.dead_lettered:,}",
        ]
        if self.shed:
            parts.append(f"{self.shed:,} dropped at full workers")
        if self.held:
            parts.append(f"{self.held:,} held")
        for count, what, how in (
            (self.running, "record", "running"),
            (self.detached, "record", "detached"),
            (self.retrying, "key", "waiting for a retry"),
            (self.writing, "dead letter", f"on {_its(self.writing)} way"),
            (self.stuck, "key", "stuck"),
            (self.blocked, "key", "blocked"),
        ):
            if count:
                parts.append(f"{counted(count, what)} {how}")
        return f"{', '.join(parts)}; {self._place(waiting)}"

    def _place(self, waiting: str) -> str:
        if not self.partitions:
            return "no partitions" if self.joined else f"waiting for partitions{waiting}"
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        return f"{counted(self.partitions, 'partition')}, lag {lag}"

    def end_line(self, seconds: float) -> str:
        """Return the line for the moment of catching up, ``seconds`` after the start."""
        return (
            f"caught up after {seconds:,.1f} s: settled {self.settled:,} "
            f"({self.settled / max(seconds, 0.001):,.0f}/s over all), "
            f"dead letters {self.dead_lettered:,}; {counted(self.partitions, 'partition')}, lag 0"
        )


class StatusLine:
    """A hook for every round of the instance: one line every few seconds, and one on catching up.

    Without a change there is one line a minute while any record is unsettled, and no line when all
    are settled. With a ``live`` line the progress goes there, and only catching up is logged.

    The lag is the same as in Kafka's own tools, summed over the assigned partitions: the log end
    less the committed position. ``from_start`` says whether a partition without a committed
    position is read from its start. ``session`` is the session timeout in seconds.
    """

    def __init__(
        self,
        *,
        from_start: bool,
        session: float = 45.0,
        live: Live | None = None,
        say: Callable[[str], None] = log.info,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._from_start = from_start
        self._session = session
        self._waiting_since: float | None = None
        self._live = live
        # When the rate of the live line was last taken, at how many settled records, and the rate.
        self._rated = clock(), 0, 0.0
        self._say = say
        self._clock = clock
        self._look_at = 0.0
        self._began_at: float | None = None
        self._said_at = clock()
        self._said: InstanceProgress | None = None

    def __call__(self, view: InstanceView) -> None:
        """Check the instance a few times a second, and log changes."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + (LOOK_EVERY if self._live is None else DRAW_EVERY)
        if self._began_at is None:
            self._began_at = now
        if view.joined:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if self._live is not None:
            self._draw(self._live, view, now)
        else:
            self._write(view, now)

    def _draw(self, live: Live, view: InstanceView, now: float) -> None:
        """Update the live line; log the moment of catching up, at most once a minute."""
        status = self._progress(view)
        live.text = status.line(self._rate(status.settled, now), self._waiting(status, now))
        again = self._was_caught_up() and now - self._said_at < SAME_EVERY
        if status.caught_up and status != self._said and not again:
            self._tell(status, now)

    def _write(self, view: InstanceView, now: float) -> None:
        waited = now - self._said_at
        # A stream of single records catches up after each. That is worth one line from time to
        # time.
        if waited < LINE_EVERY and (self._was_caught_up() or _held(view)):
            return
        status = self._progress(view)
        if waited < LINE_EVERY and not status.caught_up:
            return
        left = status.held or status.lag
        again = SAME_EVERY if status.joined else WAITING_EVERY
        if status != self._said or ((left or not status.joined) and waited >= again):
            self._tell(status, now)

    def _was_caught_up(self) -> bool:
        return self._said is not None and self._said.caught_up

    def _tell(self, status: InstanceProgress, now: float) -> None:
        if status.caught_up:
            line = status.end_line(now - (self._began_at or now))
        else:
            before = self._said.settled if self._said else 0
            rate = (status.settled - before) / max(now - self._said_at, LOOK_EVERY)
            line = status.line(rate, self._waiting(status, now))
        self._said, self._said_at = status, now
        self._say(line)

    def _waiting(self, status: InstanceProgress, now: float) -> str:
        """Return how long no partitions have been assigned, and a possible reason."""
        if status.joined or self._waiting_since is None:
            return ""
        return (
            f" for {now - self._waiting_since:.0f} s; a crashed member keeps its "
            f"partitions for up to session.timeout.ms ({self._session:g} s)"
        )

    def _rate(self, settled: int, now: float) -> float:
        """Return the recent rate of settled records per second."""
        since, before, rate = self._rated
        if now - since >= RATE_EVERY:
            rate = (settled - before) / (now - since)
            self._rated = now, settled, rate
        return rate

    def _progress(self, view: InstanceView) -> InstanceProgress:
        subscriptions = view.subscriptions.values()
        states: Counter[LaneState] = Counter()
        for sub in subscriptions:
            states += lane_states(sub)
        progress = view.progress()
        # The core counts a slice as a whole, at its end. With a slow handler that may take minutes.
        early = sum(sub.unsettled.ended_early(progress) for sub in subscriptions)
        return InstanceProgress(
            settled=view.settled() + early,
            dead_lettered=sum(sub.counts.dead_lettered for sub in subscriptions),
            held=max(0, _held(view) - early),
            running=sum(len(each.running()) for each in progress.values()),
            retrying=states[LaneState.WAITING],
            writing=sum(states[each] for each in LETTERS_ON_THEIR_WAY),
            blocked=states[LaneState.BLOCKED],
            partitions=len(view.partitions),
            lag=self._lag(view),
            joined=view.joined,
            shed=sum(worker.shed for sub in subscriptions for worker in sub.workers.values()),
            stuck=states[LaneState.STUCK],
            detached=sum(
                each.detached is not None for sub in subscriptions for each in sub.workers.values()
            ),
        )

    def _lag(self, view: InstanceView) -> int | None:
        lag = 0
        ends = view.log_ends()
        # Without reliability there are no commits, and received records count as done.
        tracked = any(sub.settings.at_least_once for sub in view.subscriptions.values())
        for partition, state in view.partitions.items():
            end = ends.get(partition)
            committed = view.committed(partition) if tracked else state.received_end
            if end is None:
                return None
            if committed is not None:
                lag += max(0, end - committed)
            elif state.received_end is not None:
                return None  # the first commit is still to come
            elif self._from_start:
                lag += end
        return lag


def _its(count: int) -> str:
    return "its" if count == 1 else "their"


def _held(view: InstanceView) -> int:
    return max(sub.window.records for sub in view.subscriptions.values())
