"""The line that ``keyshared run`` writes while it runs, so that one sees how far it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kafka_keyshared.cli.live import Live
from kafka_keyshared.core.lanes import LETTERS_ON_THEIR_WAY, LaneState
from kafka_keyshared.core.shared_look import lane_states
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import counted
from kafka_keyshared.owner.view import InstanceView

log = log_of("kafka_keyshared.status")

LOOK_EVERY = 0.25
LINE_EVERY = 5.0
DRAW_EVERY = 0.5
RATE_EVERY = 1.0
SAME_EVERY = 60.0
"""Seconds between two lines that say the same."""
WAITING_EVERY = 15.0
"""The same while the group has given out no partitions: within three a dead member is given up."""


class Progress(NamedTuple):
    """How far the instance is. ``lag`` is None while the end of a partition is not known.

    ``running`` are records whose handlers have not returned, ``held`` all that are not settled;
    keys are ``retrying``, ``stuck`` or ``blocked``, and dead letters on their way are ``writing``.
    ``joined``: the group has given out its partitions. ``shed`` were dropped because their workers
    were full. ``detached`` records take long, and all but their keys goes on.
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
        """Whether all that is in its partitions is settled and committed."""
        return self.partitions > 0 and self.lag == 0 and self.held == 0

    def line(self, per_second: float, waiting: str = "") -> str:
        """Return the line for a person; ``waiting`` is said of one that waits for partitions."""
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
            (self.detached, "record", "running for long, others go on"),
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
        lag = "not known yet" if self.lag is None else f"{self.lag:,}"
        return f"{counted(self.partitions, 'partition')}, lag {lag}"

    def end_line(self, seconds: float) -> str:
        """Return the line for the moment at which everything is done, ``seconds`` after start."""
        return (
            f"caught up after {seconds:,.1f} s: settled {self.settled:,} "
            f"({self.settled / max(seconds, 0.001):,.0f}/s over all), "
            f"dead letters {self.dead_lettered:,}; {counted(self.partitions, 'partition')}, lag 0"
        )


class StatusLine:
    """A hook for every round of the instance: one line every few seconds, and one on catching up.

    While nothing changes there is one line a minute, as long as anything is not settled, and none
    when all is. Where a ``live`` line is shown it says that instead, and lines are written for
    catching up alone.

    The lag is what Kafka's own tools call so: the end of the log less the committed position, over
    the partitions that are assigned. ``from_start`` says where a partition without a committed
    position is read from, ``session`` after how many seconds the group gives up a dead member.
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
        # When the rate of the live line was last taken, of how many settled records, and the rate.
        self._rated = clock(), 0, 0.0
        self._say = say
        self._clock = clock
        self._look_at = 0.0
        self._began_at: float | None = None
        self._said_at = clock()
        self._said: Progress | None = None

    def __call__(self, view: InstanceView) -> None:
        """Look at the instance a few times a second, and say what is new."""
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
        """Bring the live line up to date; say when everything is done, once in a while."""
        status = self._progress(view)
        live.text = status.line(self._rate(status.settled, now), self._waiting(status, now))
        again = self._was_caught_up() and now - self._said_at < SAME_EVERY
        if status.caught_up and status != self._said and not again:
            self._tell(status, now)

    def _write(self, view: InstanceView, now: float) -> None:
        waited = now - self._said_at
        # A stream that trickles catches up after every record: that is worth one line in a while.
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

    def _tell(self, status: Progress, now: float) -> None:
        if status.caught_up:
            line = status.end_line(now - (self._began_at or now))
        else:
            before = self._said.settled if self._said else 0
            rate = (status.settled - before) / max(now - self._said_at, LOOK_EVERY)
            line = status.line(rate, self._waiting(status, now))
        self._said, self._said_at = status, now
        self._say(line)

    def _waiting(self, status: Progress, now: float) -> str:
        """Return for how long the group has given out no partitions, and why that may be."""
        if status.joined or self._waiting_since is None:
            return ""
        return (
            f", {now - self._waiting_since:.0f} s so far; a member that died keeps its "
            f"own for up to session.timeout.ms ({self._session:g} s)"
        )

    def _rate(self, settled: int, now: float) -> float:
        """Return how many were settled in a second, lately."""
        since, before, rate = self._rated
        if now - since >= RATE_EVERY:
            rate = (settled - before) / (now - since)
            self._rated = now, settled, rate
        return rate

    def _progress(self, view: InstanceView) -> Progress:
        subscriptions = view.subscriptions.values()
        states: Counter[LaneState] = Counter()
        for sub in subscriptions:
            states += lane_states(sub)
        progress = view.progress()
        # The core counts a slice as a whole, at its end: of a slow handler that may be minutes.
        early = sum(sub.ended_early(progress) for sub in subscriptions)
        return Progress(
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
        # Without reliability nothing is committed, and what was received is what it is done with.
        tracked = any(sub.settings.reliable for sub in view.subscriptions.values())
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
