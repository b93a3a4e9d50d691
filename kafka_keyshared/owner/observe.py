"""Where the owner puts the status and everybody else reads it.

A status is made only while somebody reads: at a heartbeat, by the owner, whose state nobody else
may touch. So an instance that nobody looks at pays nothing, and any number of readers pay for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kafka_keyshared.core.holds import Reason
from kafka_keyshared.core.lasting import Lasting
from kafka_keyshared.core.status import take
from kafka_keyshared.core.surroundings import Beats, Stand, Surroundings
from kafka_keyshared.diagnosis.causes import MOST_ATTEMPTS_FAIL
from kafka_keyshared.diagnosis.findings import Diagnosis
from kafka_keyshared.diagnosis.judge import diagnose
from kafka_keyshared.logs import check_logging
from kafka_keyshared.model import TopicPartition, counted
from kafka_keyshared.owner.diagnosed import Diagnosed
from kafka_keyshared.owner.lately import Minute
from kafka_keyshared.owner.loop import Loop
from kafka_keyshared.owner.ran import Ran
from kafka_keyshared.owner.standstill import StandstillWatch
from kafka_keyshared.status import Health, Phase, RefusedRight, Standstill, Status

READ_LATELY = 60.0
SHOWN_LATELY = 5.0
FRESH = 0.6
WAIT_FOR_FRESH = 1.0
DERIVE_AFTER = 2.0
MAX_POLL_INTERVAL_MS = 300_000
SILENT_AFTER = 3.0
"""Seconds without a heartbeat after which a status says so: it is made at one, every 0.5 s."""

SILENT_MAX = 30.0
"""Longer than everything that the owner waits for at a rebalance, added up."""

KNOWN_FOR = 60.0
"""Seconds for which :meth:`Board.ready` tells what a status showed."""

STOOD_FOR = 300.0
"""Seconds for which a status shows a standstill that is over."""

STANDS_AFTER = 1.0
STANDS_MOST = 5
"""Seconds after which it is asked where a handler stands, and of how many at once: a process has to
be asked, and may take its time."""


class Board:
    """The latest status, and how the instance is. Any thread may read it.

    With ``unready_when_unauthorized`` it is not ready while a right is missing (``refused``).

    ``clock`` is monotonic, in seconds, and that of the loop whose status it is. ``keys`` says
    whether a diagnosis may name keys; ``beats`` what becomes of what the group is told. With
    ``unready_on_outage`` it is not ready while most attempts fail.
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
        self.beats: Callable[[], Beats] = Beats

    def read(
        self, wait: float = WAIT_FOR_FRESH, *, pending: bool = False, full: bool = False
    ) -> Status | None:
        """Return the latest status; None before the first heartbeat.

        One older than a heartbeat is waited for, at most ``wait`` seconds: the next heartbeat
        brings it, unless the owner is inside a rebalance. With ``pending`` it is one that lists
        every pending acknowledgement, if the next heartbeat comes in time, and with ``full`` one
        that has all that there is to see. In a rebalance it is the one from before, with the time
        that this has taken.
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
        """Return the latest status to who looks seldom; one is made for that, and no more."""
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
        """Return a status with what goes on since it was made, where the owner makes no other."""
        now = self._clock()
        silent, turning = now - self.beat_at, self._turning_at
        if self.phase != "running" or (turning is None and silent < SILENT_AFTER):
            return status
        # Whoever waits for the group comes round meanwhile, so the silence is none of that.
        rebalance = None
        if turning is not None:
            rebalance = max(now - turning, status.rebalance_seconds or 0.0)
        return msgspec.structs.replace(status, silent_seconds=silent, rebalance_seconds=rebalance)

    def turning(self, inside: bool) -> None:
        """Take note that the owner goes into a callback of a rebalance, or has come out of it."""
        self._turning_at = self._clock() if inside else None
        self._turned = True

    def turned(self) -> bool:
        """Say whether the owner was in a callback of a rebalance since the last question."""
        turned, self._turned = self._turned, False
        return turned

    def look_soon(self) -> None:
        """Have a status made at the next heartbeat, whoever reads."""
        self._once = True

    def live(self) -> Health:
        """Say whether the loop beats, and reads what there is. A stop has its own deadline."""
        silent = self._clock() - self.beat_at
        if self.phase == "running" and silent > SILENT_MAX:
            return Health(False, f"the control loop has not beaten for {silent:.0f} s")
        if self.phase == "running" and self.stalled:
            return Health(False, self.stalled)
        return Health(True, self.phase)

    def ready(self) -> Health:
        """Say whether the group has given this member its partitions and it is not stopping.

        Neither is it ready while most attempts fail, where that is wanted.
        """
        if self.phase != "running":
            return Health(False, self.phase)
        refused = [each.text for each in self.refused]
        if refused and self._unready_when_unauthorized:
            return Health(False, "; ".join(refused))
        if not self.joined:
            waits = "the group has given this member nothing yet"
            return Health(False, "; ".join([waits, *refused]))
        words = ["running"]
        if self.by_hand:
            words.append(f"{counted(self.by_hand, 'partition')} paused by hand")
        known = self._known()
        ok = known is None or not (self._unready_on_outage and _is_outage(known))
        said = "" if known is None else known.text
        # The diagnosis names only what has lasted, and is as old as the last status.
        words += [each for each in refused if each not in said]
        return Health(ok, "; ".join([*words, *([said] if said else [])]))

    def _known(self) -> Diagnosis | None:
        """Return the diagnosis, if one is known that is fresh enough, and have another one made.

        A probe waits for nothing, and is asked for often: each has one status made, and no more.
        """
        self._once = True
        status = self._status
        if status is None or self._clock() - self._made_at > KNOWN_FOR:
            return None
        return diagnose(self._as_of_now(status), keys=self.keys)

    def diagnosis(self) -> Diagnosis | None:
        """Return what the latest status shows to be wrong; None before the first heartbeat."""
        status = self.read()
        return None if status is None else diagnose(status, keys=self.keys)

    def wanted(self) -> bool:
        """Say whether somebody has read lately, or asks for one status."""
        once, self._once = self._once, False
        return once or self._clock() - self._read_at < READ_LATELY

    def shows_all(self) -> bool:
        """Say whether somebody has lately read a status that has all that there is to see."""
        return self._clock() - self._full_at < SHOWN_LATELY

    def lists_pending(self) -> bool:
        """Say whether somebody waits for a status that lists every pending acknowledgement."""
        return self._pending_at > self._made_at

    def put(self, status: Status) -> None:
        """Show a status."""
        with self._changed:
            self._status = status
            self._made_at = self._clock()
            self._changed.notify_all()


def _is_outage(diagnosis: Diagnosis) -> bool:
    code = MOST_ATTEMPTS_FAIL.code
    return any(each.code == code and each.level == "fail" for each in diagnosis.findings)


class Observer:
    """Makes statuses of a loop, on the owner thread. ``board`` is where they go.

    ``topics`` are those that are subscribed to, as far as they are known. ``standstill`` is noted
    each round.
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
        self._diagnosed = Diagnosed(keys=board.keys)
        self._was_failing = False
        self._standstill = standstill
        self._ran = Ran(loop)

    def step(self) -> None:
        """Note a heartbeat that there was since the last call."""
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
        # A high failure rate is logged, and shown by the probe, whether somebody reads or not.
        if self._board.wanted() or failing or self._was_failing:
            self.show()
        self._was_failing = failing

    def _refused(self) -> tuple[RefusedRight, ...]:
        loop = self._loop
        assigned = loop.core.holds.assigned(loop.core.partitions)
        return loop.rights.shown(assigned, loop.ports.clock())

    def rebalanced(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Take note that the group has given or taken partitions."""
        del partitions
        self._board.joined = what != "lost"

    def enter(self, phase: Phase) -> None:
        """Show that the instance is in another phase of its life."""
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
            # Nothing is committed just now, but whoever looks wants to see what holds it up.
            loop.serve(0.0)
            loop.core.snapshots.take(progress, now)
        stats = loop.stats
        gap, stats.poll_gap = stats.poll_gap, 0.0
        wall = loop.ports.clock.wall()
        client = loop.ports.client
        joined = stats.joined or self._board.phase != "running"
        around = Surroundings(
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
            beats=self._board.beats(),
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

    def _stands(self, now: float) -> dict[tuple[str, int, int, int], Stand]:
        """Ask where handlers stand that have been running for long, those for longest first."""
        pool = self._loop.ports.pool
        running = [
            known
            for watch in self._loop.core.watches.values()
            for known in watch.running.values()
            if now - known.since >= STANDS_AFTER
        ]
        running.sort(key=lambda known: known.since)
        return {
            each.whose: Stand(pool.where(*each.whose), pool.stack(*each.whose))
            for each in running[:STANDS_MOST]
        }


def chained(
    *observers: Callable[[str, Sequence[TopicPartition]], None] | None,
) -> Callable[[str, Sequence[TopicPartition]], None]:
    """Return one observer that tells all."""
    given = [each for each in observers if each is not None]

    def tell(what: str, partitions: Sequence[TopicPartition]) -> None:
        for each in given:
            each(what, partitions)

    return tell
