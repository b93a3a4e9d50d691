"""Model of workers that share records: batches, shards and idle workers.

It is worked out from the history and the rules. A *shard* is an even part of the slots. A batch is
the records that one call leases to a worker. Its shards are with that worker until all of it has
ended or come back. :mod:`kafka_keyshared.core.workers.shards` has the rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import METADATA_USUAL, Books
from kafka_keyshared.lab.simulator.checkers.liveness import START_WITHIN, Liveness, begun_by
from kafka_keyshared.lab.simulator.checkers.records import Assignment, Delivery, Lane
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.member_events import WorkerJoined, WorkerLeft, WorkersResized

LONG_FOR = 0.05
"""Seconds after which a running record may be detached and its lane closed."""

DETACHED_WITHIN = 0.35
"""Seconds after which a shard is ready again whose only leased record still runs.

A record is detached when it has run for 0.05 s. The owner looks every 0.025 s, and may rest for 0.1
s in between. The worker must give back the rest first.
"""

NEAR = 5_000
"""Offsets ahead of the position at which a record is never parked, with usual metadata limits."""

METADATA_BESIDE = 60
"""Characters of metadata that may have no offsets: the beginning, attempts and notes."""

OFFSETS_OF_A_CHARACTER = 2
"""Least number of offsets that a character of a settled set stands for, in a bitmap."""

LONG = float("-inf")


class WorkerBatch:
    """Records leased to a worker in one call. ``left`` neither ended nor came back."""

    __slots__ = ("began_at", "left", "shards", "touched_at", "worker")

    def __init__(
        self, worker: int, records: Sequence[Delivery], shards: Iterable[int], now: float
    ) -> None:
        self.worker = worker
        self.left = set(records)
        self.shards = set(shards)
        # When a record of it last began or came back.
        self.began_at = self.touched_at = now


class _Worker:
    """State of a worker. ``idle_since`` is when it became idle.

    ``left`` says that it leaves, by itself or by order. It still runs its started records.
    """

    __slots__ = ("batches", "idle_since", "left", "name", "present")

    def __init__(self, now: float, name: str = "") -> None:
        self.name = name
        self.batches = 0
        self.idle_since = now
        self.present = True
        self.left = False


class _Shard:
    """Batches that have records of a shard, and when the last one ended.

    ``closed_at`` is when a lane of it was last closed; infinity if that may go on.
    """

    __slots__ = ("closed_at", "freed_at", "freed_by", "held_by")

    def __init__(self) -> None:
        self.held_by: dict[WorkerBatch, None] = {}
        self.freed_at = LONG
        self.freed_by: int | None = None
        self.closed_at = LONG


class ShardHolders:
    """The workers of one subscription at one member, and their shards.

    ``count`` is the number of shards. ``handed_at`` are the times of all batches with keyed
    records.
    """

    def __init__(self, names: Sequence[str], count: int, now: float) -> None:
        self.count = count
        self.workers = {number: _Worker(now, name) for number, name in enumerate(names)}
        self.batch_of: dict[Delivery, WorkerBatch] = {}
        self.shards: dict[int, _Shard] = {}
        self.handed_at: list[float] = []
        # Lanes in which a record has failed.
        self.troubled: set[Lane] = set()
        # When each running record began.
        self.began_at: dict[Delivery, float] = {}

    def shard(self, number: int) -> _Shard:
        """Return the state of a shard."""
        found = self.shards.get(number)
        if found is None:
            found = self.shards[number] = _Shard()
        return found

    def shard_of(self, lane: Lane) -> int | None:
        """Return the number of a lane's shard; None for a record without a key."""
        return None if lane.slot is None else lane.slot * self.count // SLOTS

    def close(self, lane: Lane, at: float) -> None:
        """Record that a lane is closed until then at least."""
        if (number := self.shard_of(lane)) is not None:
            shard = self.shard(number)
            shard.closed_at = max(shard.closed_at, at)

    def worker(self, number: int, now: float) -> _Worker:
        """Return the state of a worker."""
        found = self.workers.get(number)
        if found is None:
            found = self.workers[number] = _Worker(now)
        return found


class TakenRecord(NamedTuple):
    """A leased record that could have started before.

    ``since`` is when it could start. ``passed`` is how many batches were leased after that.
    ``idle`` is the worker that had been idle for longest at the lease, None if there was none.
    ``idle_since`` is when it became idle. ``waits_its_turn`` says that only other shards were ahead
    of its shard: no lane of its shard was closed since.
    """

    record: Delivery
    waits_its_turn: bool
    since: float
    passed: int
    idle: int | None
    idle_since: float


Judge: TypeAlias = Callable[[int, str, ShardHolders, TakenRecord], None]
"""Called with the member, the subscription and its crew for each taken record."""


class SharedWork:
    """Follows the leases of workers that share records, and derives when each record could start.

    It leaves out records that may be held back for a reason that the history does not show. These
    are lanes with a failure, partitions whose client has lost its position, and records that may be
    beyond the ceiling of their partition. They are also records behind a detached one, before its
    shard is ready.
    """

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books,
        liveness: Liveness,
        *,
        near: int = NEAR,
    ) -> None:
        self._books = books
        self._liveness = liveness
        self._near = near
        self._settings = {each.name: each for each in settings if each.shares}
        self._crews: dict[tuple[int, str], ShardHolders] = {}
        # Committed positions of each assignment, and since when.
        self._positions: dict[int, tuple[list[int], list[float]]] = {}
        self._misplaced: set[int] = set()
        self.judges: list[Judge] = []
        listeners: Mapping[type[Any], Any] = {
            happened.Joined: self._joined,
            happened.Misplaced: self._lost_place,
            happened.CommitRequested: self._commit_sent,
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.RecallAnswered: self._recalled,
            happened.Began: self._began,
            happened.WentOn: self._went_on,
            happened.HandlerEnded: self._ended,
            happened.WorkerDied: self._died,
            happened.Gone: self._gone,
            WorkerLeft: self._left,
            WorkerJoined: self._worker_joined,
            WorkersResized: self._resized,
        }
        if self._settings:
            for kind, listener in listeners.items():
                history.listen(kind, listener)

    # --- workers ---

    def _joined(self, told: happened.Joined) -> None:
        for name, settings in self._settings.items():
            self._crews[told.member, name] = ShardHolders(
                settings.workers, settings.shard_count, self._books.now
            )

    def _gone(self, told: happened.Gone) -> None:
        for name in self._settings:
            self._crews.pop((told.member, name), None)

    def _crew(self, told: Any) -> ShardHolders | None:
        return self._crews.get((told.member, told.subscription))

    def _died(self, told: happened.WorkerDied) -> None:
        if (crew := self._crew(told)) is not None:
            crew.worker(told.worker, self._books.now).present = False
            # It may have died before it reported the end of its batch.
            for shard in crew.shards.values():
                if shard.freed_by == told.worker:
                    shard.freed_at = float("inf")

    def _left(self, told: WorkerLeft) -> None:
        if (crew := self._crew(told)) is not None:
            crew.worker(told.worker, self._books.now).left = True

    def _worker_joined(self, told: WorkerJoined) -> None:
        if (crew := self._crew(told)) is not None:
            crew.workers[told.worker] = _Worker(self._books.now, told.name)

    def _resized(self, told: WorkersResized) -> None:
        if (crew := self._crew(told)) is not None:
            for worker in crew.workers.values():
                worker.left = worker.left or worker.name not in told.names

    # --- obstacles ---

    def _lost_place(self, told: happened.Misplaced) -> None:
        live = self._books.members[told.member].live
        self._misplaced.update(live[each].number for each in told.partitions if each in live)

    def _commit_sent(self, told: happened.CommitRequested) -> None:
        del told
        for assignment, sent in self._books.sent.values():
            if assignment is not None:
                positions, times = self._positions.setdefault(assignment.number, ([], []))
                if not positions or sent.position > positions[-1]:
                    positions.append(sent.position)
                    times.append(self._books.now)

    def _unparked_at(self, each: Delivery) -> float:
        """Return since when the record is certainly not parked; infinity while it may be."""
        assignment, near = each.assignment, self._near
        if assignment.member.bare:
            near = 0
        elif self._books.metadata_least < METADATA_USUAL:
            room = self._books.metadata_least - METADATA_BESIDE
            near = max(0, min(near, OFFSETS_OF_A_CHARACTER * room // len(self._books.settings)))
        least = each.offset - near
        if assignment.start is not None and assignment.start >= least:
            return LONG
        positions, times = self._positions.get(assignment.number, ([], []))
        at = bisect_right(positions, least - 1)
        return times[at] if at < len(times) else float("inf")

    def _could_start(self, crew: ShardHolders, sub: str, each: Delivery) -> float:
        """Return since when nothing keeps a record from a worker; infinity if unknown."""
        assignment, lane = each.assignment, each.lane
        member, never = assignment.member, float("inf")
        if not _is_plain(each) or lane in crew.troubled or assignment.number in self._misplaced:
            return never
        queue = assignment.queues[sub].get(lane)
        if lane.slot is not None and (not queue or queue[0] is not each):
            return never
        liveness = self._liveness
        free = liveness.free_since(member.number)
        if member.kept or liveness.waits(each, member) or self._books.may_be_stopped(each):
            return never
        if _may_be_diverted(assignment, each):
            crew.troubled.add(lane)
            return never
        free = max(free, member.free_since)
        begun = begun_by(each, free)
        if begun > free:  # a resting owner checks the time late
            begun += START_WITHIN
        since = max(each.since, lane.freed, assignment.lifted_at, begun, self._unparked_at(each))
        return max(since, liveness.read_since if self._settings[sub].key_of is not None else LONG)

    def _shard_free_at(self, crew: ShardHolders, each: Delivery) -> float:
        """Return since when no worker has the shard of a record; infinity while one may."""
        number = crew.shard_of(each.lane)
        shard = None if number is None else crew.shards.get(number)
        if shard is None:
            return LONG
        free = shard.freed_at
        for batch in shard.held_by:
            if len(batch.left) > 1 or not all(one.running for one in batch.left):
                return float("inf")
            # The rest of it runs. It is detached soon, if a record waits for it.
            waits_since = max(each.since, batch.began_at, batch.touched_at)
            free = max(free, waits_since + DETACHED_WITHIN)
        return free

    # --- leases ---

    def _handed_over(self, told: happened.HandedOver) -> None:
        crew, now = self._crew(told), self._books.now
        if crew is None:
            return
        records = self._books.deliveries
        recalling = self._books.members[told.member].recalling
        idlest: tuple[int | None, float] = (None, now)
        for number, worker in crew.workers.items():
            away = worker.left or not worker.present
            asked = recalling[told.subscription, number] > 0
            if not (away or worker.batches or asked) and worker.idle_since < idlest[1]:
                idlest = number, worker.idle_since
        for each in records:
            since = self._could_start(crew, told.subscription, each)
            since = max(since, self._shard_free_at(crew, each)) if since < now else since
            if since < now:
                passed = len(crew.handed_at) - bisect_right(crew.handed_at, since)
                taken = TakenRecord(
                    each, _waits_its_turn(crew, each, since), since, passed, *idlest
                )
                for judge in self.judges:
                    judge(told.member, told.subscription, crew, taken)
        found = (crew.shard_of(each.lane) for each in records)
        batch = WorkerBatch(told.worker, records, (each for each in found if each is not None), now)
        for each in records:
            crew.batch_of[each] = batch
        for number in batch.shards:
            crew.shard(number).held_by[batch] = None
        if batch.shards:
            crew.handed_at.append(now)
        crew.worker(told.worker, now).batches += 1

    def _let_go(self, crew: ShardHolders, each: Delivery) -> None:
        """Record that a record's lease has ended."""
        batch, now = crew.batch_of.pop(each, None), self._books.now
        if batch is None:
            return
        batch.left.discard(each)
        batch.touched_at = now
        if batch.left:
            return
        worker = crew.worker(batch.worker, now)
        worker.batches -= 1
        worker.idle_since = now
        for number in batch.shards:
            shard = crew.shards[number]
            del shard.held_by[batch]
            shard.freed_at, shard.freed_by = now if worker.present else float("inf"), batch.worker

    def _taken_back(self, told: happened.TakenBack) -> None:
        if (crew := self._crew(told)) is not None:
            for each in self._books.deliveries:
                self._let_go(crew, each)

    def _recalled(self, told: happened.RecallAnswered) -> None:
        if (crew := self._crew(told)) is not None:
            crew.worker(told.worker, self._books.now).idle_since = self._books.now

    def _began(self, told: happened.Began) -> None:
        crew, each = self._crew(told), self._books.delivery
        if crew is None or each is None:
            return
        # A dead worker may get records for a while.
        crew.worker(told.worker, self._books.now).present = True
        crew.began_at[each] = self._books.now
        if batch := crew.batch_of.get(each):
            batch.began_at = self._books.now

    def _went_on(self, told: happened.WentOn) -> None:
        crew, each = self._crew(told), self._books.delivery
        if crew is not None and each is not None:
            self._let_go(crew, each)
            crew.close(each.lane, float("inf"))

    def _ended(self, told: happened.HandlerEnded) -> None:
        crew, each = self._crew(told), self._books.delivery
        if crew is None or each is None:
            return
        self._let_go(crew, each)
        if told.outcome not in ("done", "dropped"):
            crew.troubled.add(each.lane)
            crew.close(each.lane, float("inf"))
        elif self._books.now - crew.began_at.pop(each, LONG) > LONG_FOR:
            crew.close(each.lane, self._books.now)


def _waits_its_turn(crew: ShardHolders, each: Delivery, since: float) -> bool:
    """Return whether no record of a closed lane may have taken a turn of its shard.

    A record behind in such a lane is put aside at a turn of its shard. That ends the turn.
    """
    number = crew.shard_of(each.lane)
    shard = None if number is None else crew.shards.get(number)
    return number is not None and (
        shard is None or (not shard.held_by and shard.closed_at <= since)
    )


def _is_plain(each: Delivery) -> bool:
    """Return whether it is a first attempt in an assignment that goes on."""
    assignment = each.assignment
    going = assignment.over is not None or assignment.revoking_at is not None
    begun = assignment.start is not None and not assignment.early and not assignment.misplaced
    tried = each.tries or each.tries_most or each.stray
    return begun and not (going or tried or assignment.member.stopping_at)


def _may_be_diverted(assignment: Assignment, each: Delivery) -> bool:
    """Return whether its lane is, or may be, diverted at its member."""
    sub, hash_ = each.fate.sub, each.lane.hash
    return any(
        hash_ in live.diverted[sub] or hash_ in live.perhaps_diverted[sub]
        for live in assignment.member.live.values()
    )
