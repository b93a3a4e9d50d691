"""Where the owner puts the status and everybody else reads it.

A status is made only while somebody reads: at a heartbeat, by the owner, whose state nobody else
may touch. So an instance that nobody looks at pays nothing, and any number of readers pay for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from kafka_keyshared.core.holds import Reason
from kafka_keyshared.core.status import take
from kafka_keyshared.model import TopicPartition, counted
from kafka_keyshared.owner.loop import Loop
from kafka_keyshared.status import Health, Phase, Status, Surroundings

READ_LATELY = 60.0
FRESH = 0.6
WAIT_FOR_FRESH = 1.0
DERIVE_AFTER = 2.0
MAX_POLL_INTERVAL_MS = 300_000
SILENT_MAX = 30.0
"""Longer than everything that the owner waits for at a rebalance, added up."""


class Board:
    """The latest status, and how the instance is. Any thread may read it.

    ``clock`` is monotonic, in seconds, and that of the loop whose status it is.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._status: Status | None = None
        self._made_at = float("-inf")
        self._read_at = float("-inf")
        self._pending_at = float("-inf")
        self.beat_at = self._clock()
        self.phase: Phase = "starting"
        self.joined = False
        self.stalled = ""
        self.by_hand = 0

    def read(self, wait: float = WAIT_FOR_FRESH, *, pending: bool = False) -> Status | None:
        """Return the latest status; None before the first heartbeat.

        One older than a heartbeat is waited for, at most ``wait`` seconds: the next heartbeat
        brings it, unless the owner is inside a rebalance. With ``pending`` it is one that lists
        every pending acknowledgement, if the next heartbeat comes in time.
        """
        with self._changed:
            self._read_at = asked = self._clock()
            if pending:
                self._pending_at = asked
            if (pending or asked - self._made_at > FRESH) and self.phase == "running":
                self._changed.wait_for(lambda: self._made_at >= asked, wait)
            return self._status

    def live(self) -> Health:
        """Say whether the loop beats, and reads what there is. A stop has its own deadline."""
        silent = self._clock() - self.beat_at
        if self.phase == "running" and silent > SILENT_MAX:
            return Health(False, f"the control loop has not beaten for {silent:.0f} s")
        if self.phase == "running" and self.stalled:
            return Health(False, self.stalled)
        return Health(True, self.phase)

    def ready(self) -> Health:
        """Say whether the group has given this member its partitions and it is not stopping."""
        if self.phase != "running":
            return Health(False, self.phase)
        if not self.joined:
            return Health(False, "the group has given this member nothing yet")
        if self.by_hand:
            return Health(True, f"running; {counted(self.by_hand, 'partition')} paused by hand")
        return Health(True, "running")

    def wanted(self) -> bool:
        """Say whether somebody has read lately."""
        return self._clock() - self._read_at < READ_LATELY

    def lists_pending(self) -> bool:
        """Say whether somebody waits for a status that lists every pending acknowledgement."""
        return self._pending_at > self._made_at

    def put(self, status: Status) -> None:
        """Show a status."""
        with self._changed:
            self._status = status
            self._made_at = self._clock()
            self._changed.notify_all()


class Observer:
    """Makes statuses of a loop, on the owner thread. ``board`` is where they go.

    ``topics`` are those that are subscribed to, as far as they are known.
    """

    def __init__(
        self,
        loop: Loop,
        board: Board,
        *,
        group: str,
        pool: str,
        interval_ms: int,
        topics: Iterable[str] = (),
    ) -> None:
        self._loop = loop
        self._board = board
        self._group = group
        self._pool = pool
        self._topics = tuple(topics)
        self._interval = interval_ms / 1000
        self._started_at = loop.ports.clock.wall()
        self._beats = -1

    def step(self) -> None:
        """Note a heartbeat that there was since the last call."""
        beats = self._loop.stats.beats
        if beats == self._beats:
            return
        self._beats = beats
        self._board.beat_at = self._loop.ports.clock()
        self._board.stalled = self._loop.watchdog.failing(self._loop.ports.clock())
        self._board.by_hand = len(self._loop.core.holds.held_back(Reason.BY_HAND))
        if self._board.wanted():
            self.show()

    def rebalanced(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Take note that the group has given or taken partitions."""
        del partitions
        self._board.joined = what != "lost"

    def enter(self, phase: Phase) -> None:
        """Show that the instance is in another phase of its life."""
        self._board.phase = phase
        self._board.beat_at = self._loop.ports.clock()
        self.show()

    def show(self) -> None:
        """Make a status and put it on the board."""
        loop = self._loop
        progress = loop.ports.pool.progress()
        now = loop.ports.clock()
        if now - loop.core.snapshots.derived_at > DERIVE_AFTER:
            # Nothing is committed just now, but whoever looks wants to see what holds it up.
            loop.serve(0.0)
            loop.core.snapshots.take(progress, now)
        stats = loop.stats
        gap, stats.poll_gap = stats.poll_gap, 0.0
        wall = loop.ports.clock.wall()
        self._board.put(
            take(
                loop.core,
                progress,
                now,
                Surroundings(
                    wall=wall,
                    started_at=self._started_at,
                    phase=self._board.phase,
                    joined=self._board.joined,
                    group=self._group,
                    pool=self._pool,
                    polled_at=None if stats.polled_at is None else wall - (now - stats.polled_at),
                    poll_used=gap / self._interval,
                    log_ends=loop.ports.client.log_ends(),
                    topics=self._topics,
                    paused=frozenset(loop.paused()),
                    stalls=dict(loop.watchdog.stalls),
                    client=loop.ports.client.statistics(),
                    pending=self._board.lists_pending(),
                ),
            )
        )


def chained(
    *observers: Callable[[str, Sequence[TopicPartition]], None] | None,
) -> Callable[[str, Sequence[TopicPartition]], None]:
    """Return one observer that tells all."""
    given = [each for each in observers if each is not None]

    def tell(what: str, partitions: Sequence[TopicPartition]) -> None:
        for each in given:
            each(what, partitions)

    return tell
