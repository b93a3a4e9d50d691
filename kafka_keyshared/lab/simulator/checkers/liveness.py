"""Checker I9: runnable records start soon, and everything settles in the end."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker, FreeSince, always
from kafka_keyshared.lab.simulator.checkers.idle_members import Idle
from kafka_keyshared.lab.simulator.checkers.records import Delivery, End, MemberModel, Stage
from kafka_keyshared.lab.simulator.commit_text import NOTHING
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.keys import BACK_WITHIN
from kafka_keyshared.lab.simulator.member_events import (
    FiltersDeclared,
    KeysAway,
    LeftGroup,
    PendingGivenUp,
)

START_WITHIN = 1.0
"""Seconds within which a record starts that nothing holds back."""

SMALL_FOR = 10.0
"""Seconds for which a partition may start with few records, after its last owner's unclean end."""

SUSPECTS_FOR = 30.0
"""Seconds after which the records have started that ran when the last owner died."""

DEAD_FOR = 4.0
"""Seconds after which a dead worker is replaced, or other workers have its records."""

REVOKE_SLACK = 1.1  # a silent leader costs two requests of half a second

LONG = float("-inf")


class Hands:
    """Records of a worker in the order of their leases, and since when it runs nothing."""

    __slots__ = ("has", "idle_since", "runs")

    def __init__(self) -> None:
        self.has: dict[Delivery, None] = {}
        self.runs = 0
        self.idle_since = LONG


class WorkerGroup:
    """Workers of a subscription at a member, and when all became idle or one died.

    ``dead`` are workers that died, have done nothing since, and may get records. ``unseen`` are all
    workers that died and have started nothing since.
    """

    __slots__ = ("dead", "died_at", "hands", "has", "idle_since", "unseen")

    def __init__(self) -> None:
        self.hands: dict[int, Hands] = {}
        self.has = 0
        self.idle_since = LONG
        self.died_at = LONG
        self.dead: set[int] = set()
        self.unseen: set[int] = set()

    def of(self, worker: int) -> Hands:
        """Return the records of a worker."""
        found = self.hands.get(worker)
        if found is None:
            found = self.hands[worker] = Hands()
        return found


def begun_by(each: Delivery, free: float) -> float:
    """Return when a record without a worker may start, as far as the start of its partition allows.

    ``free`` is since when nothing blocks the owner of its member.
    """
    assignment, sub = each.assignment, each.fate.sub
    named = {offset for notes in assignment.notes for offset in notes.get(sub, NOTHING).running}
    fates = assignment.log.fates[sub]
    if any(at in fates and fates[at].lane is each.lane for at in named if at <= each.offset):
        wait = SUSPECTS_FOR
    elif any(notes.running or notes.more for every in assignment.notes for notes in every.values()):
        wait = SMALL_FOR
    else:
        return free
    return max(assignment.first_at or LONG, free) + wait


class Liveness(Checker):
    """I9, liveness: a runnable record starts within a second; after the faults everything settles.

    A record is runnable when it is first in its lane and its delay is over. Its worker must run
    nothing. If no worker has it, all workers of the subscription must be idle. The time does not
    count

    - while the owner is blocked in a rebalance, by a query to the cluster, or by the simulation
      (``free_since``);
    - while the lane runs, or waits elsewhere in the process;
    - if the record is ``span`` offsets ahead of the position, so that it may be parked;
    - while its partition makes a careful start (``careful``);
    - if it may be for a worker that is away;
    - while keys cannot be read, and until they are retried;
    - if joining workers wait while an older record is unsettled;
    - if its partition may have reached its dead-letter limit;
    - while its partition must be read again or is revoked, or its member stops.

    A revoke ends with its deadline. No member that says that it has left keeps its group waiting.
    After the faults an idle member reads on where there are records. Everything is settled and
    committed ``bound`` seconds after the faults have stopped and the last record was written.
    """

    invariant = "I9 liveness"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        bound: float = 120.0,
        revoke_deadline: float = 5.0,
        span: int = 10_000,
        free_since: FreeSince = always,
        careful: bool = False,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._bound = bound
        self._careful = careful
        self._revoke_most = revoke_deadline + REVOKE_SLACK
        self._span = span
        self.free_since = free_since
        self._crews: dict[int, dict[str, WorkerGroup]] = {}
        # When to check which record again. The number breaks ties, so that no records are compared.
        self._looks: list[tuple[float, int, Delivery]] = []
        self._number = 0
        self._done_by: float | None = None
        self._idle = Idle(self.books, free_since)
        self._look_idle_at = float("-inf")
        # A partition that its dead-letter limit has stopped is not read on.
        self._may_stop = any(each.dlq_limit is not None for each in settings)
        # Since when every key can be read, or will have been retried; infinity while one cannot.
        self.read_since = LONG
        # Where a worker filters since. It may have gone, or all others may have.
        self._filtering: set[tuple[int, str]] = set()
        # Members that say that they have left their group.
        self._left: set[int] = set()
        self.books.before.append(self._time)

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to leases and returns, and to other events to check the time."""
        return {
            happened.Joined: self._joined,
            happened.Delivered: self._heads,
            happened.LetterTold: self._heads,
            happened.LaneOrdered: self._heads,
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.Began: self._began,
            happened.WentOn: self._went_on,
            happened.HandlerEnded: self._ended,
            happened.WorkerDied: self._died,
            happened.PartitionsReleased: self._released,
            happened.CommitRequested: self._heads,
            happened.CommitStored: self._anything,
            happened.Appended: self._appended,
            happened.Healed: self._healed,
            happened.Finished: self._finished,
            KeysAway: self._keys_away,
            FiltersDeclared: self._filters_declared,
            LeftGroup: self._left_group,
            PendingGivenUp: self._pending_given_up,
        }

    # --- events ---

    def _joined(self, told: happened.Joined) -> None:
        self._crews[told.member] = {name: WorkerGroup() for name in self.settings}

    def _heads(self, told: object) -> None:
        del told
        now = self.books.now
        for each in self.books.heads:
            self._look_at(now + START_WITHIN, each)
        self._time()

    def _handed_over(self, told: happened.HandedOver) -> None:
        crew = self._crews[told.member][told.subscription]
        hands = crew.of(told.worker)
        if not hands.has:
            hands.idle_since = self.books.now
        if told.worker in crew.unseen:
            crew.dead.add(told.worker)  # the death is not noticed yet, even if all was taken back
        before = len(hands.has)
        hands.has.update(dict.fromkeys(self.books.deliveries))
        crew.has += len(hands.has) - before
        for each in self.books.deliveries:
            if each.tries or told.subscription not in self.books.tracked:
                self._look_at(self.books.now + START_WITHIN, each)
        self._heads(told)

    def _taken_back(self, told: happened.TakenBack) -> None:
        crew = self._crews[told.member][told.subscription]
        for each in self.books.deliveries:
            self._let_go(crew, told.worker, each)
        hands = crew.of(told.worker)
        hands.idle_since = self.books.now
        if not hands.has:
            crew.dead.discard(told.worker)
        self._heads(told)

    def _let_go(self, crew: WorkerGroup, worker: int, each: Delivery) -> None:
        if crew.of(worker).has.pop(each, crew) is None:
            crew.has -= 1
            if not crew.has:
                crew.idle_since = self.books.now

    def _began(self, told: happened.Began) -> None:
        crew = self._crews[told.member][told.subscription]
        crew.of(told.worker).runs += 1
        crew.dead.discard(told.worker)
        crew.unseen.discard(told.worker)

    def _went_on(self, told: happened.WentOn) -> None:
        hands = self._crews[told.member][told.subscription].of(told.worker)
        hands.runs -= 1
        hands.idle_since = self.books.now

    def _ended(self, told: happened.HandlerEnded) -> None:
        crew = self._crews[told.member][told.subscription]
        hands = crew.of(told.worker)
        hands.runs -= not self.books.beside
        now = hands.idle_since = self.books.now
        each = self.books.delivery
        if each is not None:
            self._let_go(crew, told.worker, each)
            if each.stage is Stage.RETRYING:
                self._retries(each, told, now)
        self._heads(told)

    def _retries(self, each: Delivery, told: happened.HandlerEnded, now: float) -> None:
        """Record when the retry is due. A delay that a handler asked for is known only to it."""
        retry = self.settings[told.subscription].retry
        if told.outcome in ("retry", "put_off"):
            each.since = float("inf")
            return
        each.since = now
        if told.outcome != "given_back":
            each.since += retry.delay(each.tries_most, 1.0)
        self._look_at(each.since + START_WITHIN, each)

    def _died(self, told: happened.WorkerDied) -> None:
        crew = self._crews[told.member][told.subscription]
        crew.died_at = self.books.now
        crew.dead.add(told.worker)
        crew.unseen.add(told.worker)

    def _released(self, told: happened.PartitionsReleased) -> None:
        for each in self.books.ended:
            if each.over is not End.REVOKED or each.revoking_at is None:
                continue
            took = each.over_at - each.revoking_at
            held_up = self.free_since(told.member) > each.revoking_at
            if took > self._revoke_most and not held_up:
                self.violated(
                    told.member,
                    f"the revoke of {each.partition} took {took:.3f} s, begun at "
                    f"{each.revoking_at:.3f}",
                )

    def _keys_away(self, told: KeysAway) -> None:
        self.read_since = float("inf") if told.away else self.books.now + BACK_WITHIN

    def _filters_declared(self, told: FiltersDeclared) -> None:
        self._filtering.add((told.member, told.subscription))

    def _left_group(self, told: LeftGroup) -> None:
        self._left.add(told.member)

    def _pending_given_up(self, told: PendingGivenUp) -> None:
        if told.member in self._left:
            self.violated(
                told.member,
                "it said that it had left its group, which waited for it to join until its "
                "session was over",
            )

    # --- checks that are due ---

    def _look_at(self, when: float, each: Delivery) -> None:
        self._number += 1
        heapq.heappush(self._looks, (when, self._number, each))

    def _anything(self, told: object) -> None:
        del told
        self._time()

    def _time(self) -> None:
        """Run the checks that are due."""
        now = self.books.timeline.now
        looks = self._looks
        while looks and looks[0][0] <= now:
            _, _, each = heapq.heappop(looks)
            again = self._look(each, now)
            if again is not None:
                self._look_at(max(again, now) + START_WITHIN, each)
        if self._done_by is not None and not self._may_stop and now >= self._look_idle_at:
            self._look_idle_at = now + START_WITHIN
            for member, partition, offset, since in self._idle.unread(now):
                self.violated(
                    member.number,
                    f"nothing of {partition} is read on from {offset} since {since:.3f}, although "
                    "it is not paused and the member is idle",
                )
        if self._done_by is not None and now >= self._done_by:
            self._judge_all()

    def _look(self, each: Delivery, now: float) -> float | None:
        """Return since when the record could run, as far as is known; None if it is not to run."""
        assignment = each.assignment
        member = assignment.member
        going = assignment.over or assignment.revoking_at is not None or member.stopping_at
        dropped = each.worker is None and each.fate.sub not in self.books.tracked  # or may be
        if going or dropped or each.running or each.stage not in (Stage.OPEN, Stage.RETRYING):
            return None
        free = self.free_since(member.number)
        if member.kept or assignment.misplaced or free > now or self.waits(each, member):
            return now
        crew = self._crews[member.number][each.fate.sub]
        if each.worker is None:
            busy, idle = crew.has > 0, crew.idle_since
            where = "no worker has it, and none has anything"
        else:
            hands = crew.of(each.worker)
            # A pull member takes up received records when it likes.
            busy = hands.runs > 0 or self.settings[each.fate.sub].individually
            idle = hands.idle_since
            where = f"worker {each.worker} has it, and runs nothing"
        if busy:
            return now
        since = max(
            each.since, each.lane.freed, idle, member.free_since, free, assignment.lifted_at
        )
        # A blocked owner counts no heartbeats.
        died = max(crew.died_at, member.free_since, free) if crew.dead else crew.died_at
        since = max(since, died + DEAD_FOR)
        if self._careful and each.worker is None:
            since = max(since, begun_by(each, max(member.free_since, free)))
        held = self._waits_for_older(each, member) or self.books.may_be_stopped(each)
        if now - since >= START_WITHIN and held:
            each.since = now
            return now
        if now - since < START_WITHIN:
            return since
        self.violated(
            member.number,
            f"{each} could run since {since:.3f} {assignment} and has not started: {where}",
        )
        return None

    def waits(self, each: Delivery, member: MemberModel) -> bool:
        """Return whether something in its process holds the record back."""
        assignment, lane, sub = each.assignment, each.lane, each.fate.sub
        sent = assignment.sent
        position = sent.position if sent is not None else assignment.start or 0
        filtering = (member.number, sub) in self._filtering
        away = filtering or self.books.declared[sub].may_be_away
        if self.settings[sub].key_of is not None and self.read_since > self.books.now:
            away = True  # it may be behind an unreadable key in its partition
        if each.worker is None and (away or each.offset - position > self._span):
            return True
        if lane.slot is None:
            return False
        if any(
            lane.hash in each.diverted[sub] or lane.hash in each.perhaps_diverted[sub]
            for each in member.live.values()
        ):
            return True
        if any(other.assignment.member is member for other in lane.running):
            return True
        for other in member.live.values():
            queue = other.queues[sub].get(lane)
            head = queue[0] if queue else each
            if head.worker is None and sub not in self.books.tracked:
                continue  # it may be dropped
            if head is not each and (
                other is assignment
                or head.stage is not Stage.OPEN
                or head.worker is not None
                or head.first <= each.first
            ):
                return True
        return False

    def _waits_for_older(self, each: Delivery, member: MemberModel) -> bool:
        """Return whether it may be for a joining worker that waits for older records."""
        sub = each.fate.sub
        if each.worker is not None or not self.settings[sub].new_workers_wait:
            return False
        return any(older.first < each.first for older in member.unsettled(sub))

    # --- the end ---

    def _appended(self, told: happened.Appended) -> None:
        del told
        if self._done_by is not None:
            self._done_by = self.books.now + self._bound
        self._time()

    def _healed(self, told: happened.Healed) -> None:
        del told
        self._done_by = self.books.now + self._bound
        self._time()

    def _finished(self, told: happened.Finished) -> None:
        del told
        self._time()
        if self._done_by is not None:
            self._judge_all()
        for member in self.books.members.values():
            for partition, each in member.live.items():
                since = each.revoking_at
                free = self.free_since(member.number)
                if since is not None and self.books.now - max(since, free) > self._revoke_most:
                    self.violated(
                        member.number,
                        f"the revoke of {partition}, begun at {since:.3f}, never ends",
                    )

    def _judge_all(self) -> None:
        self._done_by = None
        books = self.books
        for partition, log in sorted(books.logs.items()):
            for sub in log.fates:
                if books.unfinished[sub] and (owed := [*books.owed(log, sub)]):
                    self.violated(
                        None,
                        f"the faults are over and {len(owed)} of {partition} are not settled by "
                        f"{sub!r}: {books.whereabouts(owed[-1])}",
                    )
            last = log.last_to_read()
            position = books.stored.get(partition, (0, ""))[0]
            if last is not None and position <= last and books.tracked:
                self.violated(
                    None,
                    f"the faults are over and {partition} is committed up to {position}, its last "
                    f"record is {last}",
                )
