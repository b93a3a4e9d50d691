"""The status board: the owner publishes statuses, other threads read them.

The owner makes a status at a heartbeat, and only while a reader wants one. No other thread may
touch its state. An unobserved instance therefore pays nothing, and many readers share one status.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.status.builder import take
from kafka_keyshared.core.status.environment import CodePosition, ReportCounts, StatusInputs
from kafka_keyshared.core.status.since import Lasting
from kafka_keyshared.logs import check_logging
from kafka_keyshared.model import TopicPartition, counted
from kafka_keyshared.observability.diagnosis.causes import OUTAGES
from kafka_keyshared.observability.diagnosis.findings import Diagnosis
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.runtime.diagnosis_log import DiagnosisLog
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.standstill import StandstillRecords, StandstillWatch
from kafka_keyshared.runtime.trend import Minute
from kafka_keyshared.status import Health, Phase, RefusedRight, Standstill, Status

READ_LATELY = 60.0
SHOWN_LATELY = 5.0
FRESH = 0.6
WAIT_FOR_FRESH = 1.0
DERIVE_AFTER = 2.0
MAX_POLL_INTERVAL_MS = 300_000
SILENT_AFTER = 3.0
"""Seconds without a heartbeat after which a status says so. A heartbeat is due every 0.5 s."""

SILENT_MAX = 30.0
"""Longer than the sum of all waits of the owner in a rebalance."""

KNOWN_FOR = 60.0
"""Seconds for which :meth:`StatusBoard.ready` uses the findings of a status."""

STOOD_FOR = 300.0
"""Seconds for which a status shows a standstill that has ended."""

STANDS_AFTER = 1.0
STANDS_MOST = 5
"""Running time from which a handler's stack is read, and how many are read at once.

The time is in seconds. A process has to be asked for its stack and may answer late.
"""


class StatusBoard:
    """The latest status and the health of the instance. Any thread may read it.

    ``clock`` is the loop's clock, monotonic and in seconds. ``keys`` says whether a diagnosis may
    name keys. ``beats`` returns the state of the beats that are sent to the group.

    With ``unready_when_unauthorized`` the instance is not ready while a right is missing
    (``refused``). With ``unready_on_outage`` it is not ready during an outage.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        keys: bool = False,
        unready_when_unauthorized: bool = False,
        unready_on_outage: bool = False,
    ) -> None:
        self._clock = clock
        self.keys = keys
        self._unready_on_outage = unready_on_outage
        self._changed = threading.Condition()
        self._status: Status | None = None
        self._made_at = float("-inf")
        self._read_at = float("-inf")
        self._pending_at = self._full_at = float("-inf")
        self._once = False
        self._turning_at: float | None = None
        self._turned = False
        self.beat_at = self._clock()
        self.phase: Phase = "starting"
        self.joined = False
        self.stalled = ""
        self.by_hand = 0
        self.refused: tuple[RefusedRight, ...] = ()
        self._unready_when_unauthorized = unready_when_unauthorized
        self.reports: Callable[[], ReportCounts] = ReportCounts

    def read(
        self, wait: float = WAIT_FOR_FRESH, *, pending: bool = False, full: bool = False
    ) -> Status | None:
        """Return the latest status; None before the first heartbeat.

        If the status is older than a heartbeat, wait at most ``wait`` seconds for the next one.
        During a rebalance no new status comes: the previous one is returned with the duration of
        the rebalance.

        ``pending`` asks for a status that lists every pending acknowledgement, ``full`` for one
        with every optional part. The next heartbeat delivers it if it comes in time.
        """
        with self._changed:
            self._read_at = asked = self._clock()
            if pending:
                self._pending_at = asked
            if full:
                self._full_at = asked
            lacks = pending or (full and not self._is_full())
            if (lacks or asked - self._made_at > FRESH) and self.phase == "running":
                self._changed.wait_for(lambda: self._made_at >= asked, wait)
            return self._status if self._status is None else self._as_of_now(self._status)

    def glance(self, wait: float = WAIT_FOR_FRESH) -> Status | None:
        """Return the latest status for an infrequent reader; only one status is made."""
        with self._changed:
            asked = self._clock()
            if asked - self._made_at > FRESH and self.phase == "running":
                self._once = True
                self._changed.wait_for(lambda: self._made_at >= asked, wait)
            return self._status if self._status is None else self._as_of_now(self._status)

    def _is_full(self) -> bool:
        status = self._status
        return status is not None and all(sub.slots is not None for sub in status.subscriptions)

    def _as_of_now(self, status: Status) -> Status:
        """Return a status updated with the elapsed time while the owner makes no new one."""
        now = self._clock()
        silent, turning = now - self.beat_at, self._turning_at
        if self.phase != "running" or (turning is None and silent < SILENT_AFTER):
            return status
        # While the owner waits for the group it still runs rounds, so that wait is not silence.
        rebalance = None
        if turning is not None:
            rebalance = max(now - turning, status.rebalance_seconds or 0.0)
        return msgspec.structs.replace(status, silent_seconds=silent, rebalance_seconds=rebalance)

    def turning(self, inside: bool) -> None:
        """Note that the owner enters (``inside``) or leaves a rebalance callback."""
        self._turning_at = self._clock() if inside else None
        self._turned = True

    def turned(self) -> bool:
        """Return whether the owner was in a rebalance callback since the last call."""
        turned, self._turned = self._turned, False
        return turned

    def look_soon(self) -> None:
        """Have a status made at the next heartbeat, even without a reader."""
        self._once = True

    def live(self) -> Health:
        """Return whether the loop runs and reads. A stop has its own deadline."""
        silent = self._clock() - self.beat_at
        if self.phase == "running" and silent > SILENT_MAX:
            return Health(False, f"the owner thread has had no heartbeat for {silent:.0f} s")
        if self.phase == "running" and self.stalled:
            return Health(False, self.stalled)
        return Health(True, self.phase)

    def ready(self) -> Health:
        """Return whether the group has assigned partitions and the instance is not stopping.

        Where the option is set, the instance is also not ready during an outage.
        """
        if self.phase != "running":
            return Health(False, self.phase)
        refused = [each.text for each in self.refused]
        if refused and self._unready_when_unauthorized:
            return Health(False, "; ".join(refused))
        if not self.joined:
            waits = "the group has not assigned any partition yet"
            return Health(False, "; ".join([waits, *refused]))
        words = ["running"]
        if self.by_hand:
            words.append(f"{counted(self.by_hand, 'partition')} paused by hand")
        known = self._known()
        ok = known is None or not (self._unready_on_outage and _is_outage(known))
        said = "" if known is None else known.text
        # The diagnosis contains only lasting conditions and is as old as the last status.
        words += [each for each in refused if each not in said]
        return Health(ok, "; ".join([*words, *([said] if said else [])]))

    def _known(self) -> Diagnosis | None:
        """Return the diagnosis of the last status if fresh enough, and request a new status.

        A probe does not wait and is frequent. Each one has a single status made.
        """
        self._once = True
        status = self._status
        if status is None or self._clock() - self._made_at > KNOWN_FOR:
            return None
        return diagnose(self._as_of_now(status), keys=self.keys)

    def diagnosis(self) -> Diagnosis | None:
        """Return the diagnosis of the latest status; None before the first heartbeat."""
        status = self.read()
        return None if status is None else diagnose(status, keys=self.keys)

    def wanted(self) -> bool:
        """Return whether a reader came recently or asked for one status."""
        once, self._once = self._once, False
        return once or self._clock() - self._read_at < READ_LATELY

    def shows_all(self) -> bool:
        """Return whether a reader recently asked for a full status."""
        return self._clock() - self._full_at < SHOWN_LATELY

    def lists_pending(self) -> bool:
        """Return whether a reader waits for a list of every pending acknowledgement."""
        return self._pending_at > self._made_at

    def put(self, status: Status) -> None:
        """Publish a status."""
        with self._changed:
            self._status = status
            self._made_at = self._clock()
            self._changed.notify_all()


def _is_outage(diagnosis: Diagnosis) -> bool:
    return any(each.code in OUTAGES and each.level == "fail" for each in diagnosis.findings)


class Observer:
    """Makes statuses of a loop, on the owner thread, and puts them on ``board``.

    ``topics`` are the subscribed topics, as far as they are known. ``standstill`` is updated each
    round.
    """

    def __init__(
        self,
        loop: Loop,
        board: StatusBoard,
        *,
        group: str,
        pool: str,
        interval_ms: int,
        topics: Iterable[str] = (),
        standstill: StandstillWatch | None = None,
    ) -> None:
        self._loop = loop
        self._board = board
        self._group = group
        self._pool = pool
        self._topics = tuple(topics)
        self._interval = interval_ms / 1000
        self._started_at = loop.ports.clock.wall()
        self._beats = -1
        self._lasting = Lasting()
        self._minute = Minute()
        self._diagnosed = DiagnosisLog(keys=board.keys)
        self._was_failing = False
        self._standstill = standstill
        self._ran = StandstillRecords(loop)

    def step(self) -> None:
        """Handle a heartbeat that happened since the last call."""
        watch = self._standstill
        if watch is not None and (stood := watch.turn(waited=self._board.turned())) is not None:
            watch.tell(self._ran.meanwhile(stood.until - stood.seconds), self._interval)
            self._board.look_soon()
        beats = self._loop.stats.beats
        if beats == self._beats:
            return
        self._beats = beats
        check_logging()
        if watch is not None:
            watch.sample()
            self._ran.note()
        self._board.beat_at = self._loop.ports.clock()
        self._board.stalled = self._loop.watchdog.failing(self._loop.ports.clock())
        self._board.by_hand = len(self._loop.core.holds.held_back(Reason.BY_HAND))
        self._board.refused = self._refused()
        subs = self._loop.core.subscriptions.values()
        failing = any(each.failure_watch.rates for each in subs)
        # A high failure rate is logged and shown by the probe, even without readers.
        if self._board.wanted() or failing or self._was_failing:
            self.show()
        self._was_failing = failing

    def _refused(self) -> tuple[RefusedRight, ...]:
        loop = self._loop
        assigned = loop.core.holds.assigned(loop.core.partitions)
        return loop.rights.shown(assigned, loop.ports.clock())

    def rebalanced(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Note that the group has assigned or revoked partitions."""
        del partitions
        self._board.joined = what != "lost"

    def enter(self, phase: Phase) -> None:
        """Show that the instance has entered another phase of its life."""
        self._board.phase = phase
        if self._standstill is not None:
            self._standstill.begin()
        self._board.beat_at = self._loop.ports.clock()
        self.show()

    def show(self) -> None:
        """Make a status and put it on the board."""
        loop = self._loop
        progress = loop.ports.pool.progress()
        now = loop.ports.clock()
        if now - loop.core.snapshots.derived_at > DERIVE_AFTER:
            # No commit is due, but the reader wants to see which records block the positions.
            loop.serve(0.0)
            loop.core.snapshots.take(progress, now)
        stats = loop.stats
        gap, stats.poll_gap = stats.poll_gap, 0.0
        wall = loop.ports.clock.wall()
        client = loop.ports.client
        joined = stats.joined or self._board.phase != "running"
        around = StatusInputs(
            wall=wall,
            started_at=self._started_at,
            phase=self._board.phase,
            joined=self._board.joined,
            group=self._group,
            pool=self._pool,
            polled_at=None if stats.polled_at is None else wall - (now - stats.polled_at),
            poll_used=gap / self._interval,
            log_ends=client.log_ends(),
            topics=self._topics,
            paused=frozenset(loop.paused()),
            stalls=dict(loop.watchdog.stalls),
            client=client.statistics(),
            pending=self._board.lists_pending(),
            full=self._board.shows_all(),
            stands=self._stands(now),
            brokers_away_seconds=client.away_seconds,
            client_error=client.last_error,
            rebalanced=tuple(stats.rebalanced),
            unjoined_seconds=None if joined else self._lasting.seconds("unjoined", now),
            lately=self._minute.shown(),
            standstill=self._shown_standstill(now),
            reports=self._board.reports(),
            refused=self._refused(),
        )
        status = take(loop.core, progress, now, around, self._lasting)
        self._minute.note(status, now)
        self._diagnosed.note(status, now)
        self._board.put(status)

    def _shown_standstill(self, now: float) -> Standstill | None:
        last = None if self._standstill is None else self._standstill.last
        if last is None or now - last.until > STOOD_FOR:
            return None
        ago, seconds = now - last.until, last.seconds
        return Standstill(
            ago_seconds=ago,
            seconds=seconds,
            process=last.process,
            where=last.where,
            records=last.records,
        )

    def _stands(self, now: float) -> dict[tuple[str, int, int, int], CodePosition]:
        """Read the stacks of long-running handlers, the longest first."""
        pool = self._loop.ports.pool
        running = [
            known
            for watch in self._loop.core.watches.values()
            for known in watch.running.values()
            if now - known.since >= STANDS_AFTER
        ]
        running.sort(key=lambda known: known.since)
        return {
            each.whose: CodePosition(pool.where(*each.whose), pool.stack(*each.whose))
            for each in running[:STANDS_MOST]
        }


def chained(
    *observers: Callable[[str, Sequence[TopicPartition]], None] | None,
) -> Callable[[str, Sequence[TopicPartition]], None]:
    """Return one observer that calls all others."""
    given = [each for each in observers if each is not None]

    def tell(what: str, partitions: Sequence[TopicPartition]) -> None:
        for each in given:
            each(what, partitions)

    return tell
