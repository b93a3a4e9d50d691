"""Counters of rare states that a history reaches.

A run that never reached them has shown little. They are worked out from the events alone.
:mod:`.transition_coverage` counts the edges of the state tables.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.executors.notice_words import IS_AN_ERROR
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.records import Assignment, Delivery, Stage
from kafka_keyshared.lab.simulator.copied_texts import KINDS
from kafka_keyshared.lab.simulator.disturbance_rates import ON_REQUEST
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import (
    BY_A_CALLBACK,
    FiltersDeclared,
    LetterReconnected,
    LimitLifted,
    PendingGivenUp,
    ReleaseFailed,
    StoppedJoining,
    WorkerJoined,
)
from kafka_keyshared.lab.simulator.pause_history import PauseOrdered
from kafka_keyshared.lab.simulator.range_history import RangeAssigned, SettledUnrun
from kafka_keyshared.lab.simulator.rare_commits import CommitTexts, MissingRights
from kafka_keyshared.lab.simulator.rare_records import DeadlyRecords, DerivedKeyCounts
from kafka_keyshared.lab.simulator.state_history import StateAdopted
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.shutdown import LEFT_OUT

RARE = (
    "rebalance with work in flight",
    "drain blocked, then released",
    "key moved and moved back",
    "state handed over",
    "stale completion after reassign",
    "commit failed, then recovered",
    "metadata dropped for size",
    *KINDS,
    "metadata shortened for size",
    "brokers told that they take less metadata",
    "stop that named what runs again",
    "offset gap at the position",
    "retry overtaken by a revoke",
    "worker death mid-record",
    "record ended before one that began before it",
    "record begun while it was asked back",
    "partition lost",
    "revoke past its deadline",
    "answer stored while a member asks",
    "commit stored late",
    "letter stored, never heard of",
    "log made anew while it is read",
    "dead-letter limit reached",
    "record written off with its worker",
    "process ended by a callback",
    "state that could not be released",
    "record dropped without a worker",
    "record given to one that filters late",
    "static member came back",
    "slots were nobody's for a while",
    "record skipped as nobody's by order",
    "process ended by what is nobody's",
    "paused by hand, then resumed",
    "partition that came while it is paused by hand",
    "record ran once its schema was known",
    "record without a key under a key function",
    "stopped before its first JoinGroup was answered",
    "pending member given up with its session",
    "fetch refused, then read on",
    "commit denied, then accepted",
    "group refused, then assigned",
    "revoke while a right is missing",
    "stop while a right is missing",
    "process ended for missing rights",
    "letter sent over a connection that was closed",
    "process ended by a record",
    "process ended by the same record again",
    "partition begun after an unclean end",
    "suspect begun again",
    "start of an empty partition committed",
)


UNREACHED = dict.fromkeys(
    ("log made anew while it is read", *sorted(ON_REQUEST)),
    "no plan draws it: it is there for whoever asks for it",
)
"""States that no run reaches, with the reason. A change that makes one possible removes it here."""


COUNTED: dict[type[Any], str] = {
    happened.CameBack: "static member came back",
    LetterReconnected: "letter sent over a connection that was closed",
    PendingGivenUp: "pending member given up with its session",
    ReleaseFailed: "state that could not be released",
    StoppedJoining: "stopped before its first JoinGroup was answered",
}
"""Events that are rare in themselves."""


class _Seat:
    """Place of a slot in a process: its worker, its leased records there, its previous worker.

    ``emptied_at`` is since when that worker has had none of its records.
    """

    __slots__ = ("before", "count", "emptied_at", "worker")

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.before: int | None = None
        self.count = 0
        self.emptied_at = float("-inf")


class Sometimes:
    """Counts each of :data:`RARE` over the books of a run.

    - *rebalance with work in flight*: a partition is revoked while workers have records of it;
    - *drain blocked, then released*: a slot goes to another worker with a record that was there
      before the last lease of its previous worker had ended;
    - *key moved and moved back*: a slot goes to another worker and returns;
    - *state handed over*: a worker adopts the state of keys from another one;
    - *stale completion after reassign*: a handler ends after its partition has got a new reader;
    - *commit failed, then recovered*: an accepted commit of an assignment after one that was not;
    - *stop that named what runs again*: records that had settled beyond positions did not fit;
    - *offset gap at the position*: a commit stands behind offsets at which there is no record;
    - *retry overtaken by a revoke*: a partition is revoked while a record of it waits for its next
      attempt;
    - *worker death mid-record*: a thread or process ends in a handler;
    - *record ended before one that began before it*: at the same worker, which is stuck in none;
    - *record begun while it was asked back*: its worker had not yet answered the recall;
    - *static member came back*: within its session, by its ``group.instance.id``;
    - *record given to one that filters late*: its worker has joined with filters;
    - *record dropped without a worker*: without reliability a later record of its lane begins;
    - *dead-letter limit reached*: a partition goes on that its limit had stopped;
    - *slots were nobody's for a while*: an order took them from their worker and a later one gave
      them to one again;
    - *record skipped as nobody's by order*: its slot had a worker when the process began;
    - *process ended by what is nobody's*: where a record without a worker is an error;
    - *paused by hand, then resumed*: an order has a member go on with partitions that were paused;
    - *partition that came while it is paused by hand*: by a rebalance, to the member of the pause;

    - *stopped before its first JoinGroup was answered*: a member that does not know its id;
    - *pending member given up with its session*: its process had been killed, or was cut off;

    - *letter sent over a connection that was closed*: after its producer had been idle;
    - *start of an empty partition committed*: without an earlier commit or a delivered record;

    It also counts what checkers excuse, by reason. Other classes count with it: missing rights and
    commit texts (:mod:`.rare_commits`), derived keys and deadly records (:mod:`.rare_records`).
    """

    def __init__(self, history: History, books: Books) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(RARE, 0))
        self._books = books
        self._seats: dict[tuple[int, str], dict[int | None, _Seat]] = {}
        # Assignments whose last commit failed.
        self._failed: set[int] = set()
        self._gaps: set[tuple[TopicPartition, int]] = set()
        self._stored: dict[TopicPartition, int] = {}
        self._unheard: set[tuple[Any, ...]] = set()
        # Names of workers that filter since, and their numbers, by member and subscription.
        self._filters: set[tuple[int, str, str]] = set()
        # Running records of each worker in the order of their starts, without stuck ones.
        self._running: dict[tuple[int, str, int], dict[Delivery, None]] = {}
        # Ranges that an order left without a worker.
        self._nobodys: dict[tuple[int, str], set[tuple[int, int]]] = {}
        self._filtering: set[tuple[int, str, int]] = set()
        listeners: dict[type[Any], Listener] = {
            happened.RevokeBegan: self._revoking,
            happened.PartitionsReleased: self._released,
            happened.Remade: self._remade,
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.Began: self._began,
            happened.WentOn: self._went_on,
            happened.HandlerEnded: self._ended,
            StateAdopted: self._adopted,
            happened.CommitRequested: self._sent,
            happened.CommitStored: self._commit_stored,
            happened.CommitTold: self._told,
            happened.LetterStored: self._letter_stored,
            happened.LetterTold: self._letter_told,
            LimitLifted: self._limit_lifted,
            FiltersDeclared: self._filters_declared,
            RangeAssigned: self._range_assigned,
            SettledUnrun: self._settled_unrun,
            WorkerJoined: self._worker_joined,
            happened.Owned: self._owned,
            PauseOrdered: self._pause_ordered,
            happened.Gone: self._gone,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)
        for kind, name in COUNTED.items():
            history.listen(kind, partial(self._count, name))
        for others in (MissingRights, CommitTexts, DerivedKeyCounts, DeadlyRecords):
            others(history, books, self.counts)

    def _count(self, name: str, _: object) -> None:
        self.counts[name] += 1

    # --- partitions ---

    def _revoking(self, told: happened.RevokeBegan) -> None:
        live = self._books.members[told.member].live
        busy = retrying = False
        for assignment in [live[each] for each in told.partitions if each in live]:
            for sub, count in assignment.open.items():
                if count:
                    of = assignment.deliveries[sub].values()
                    busy = busy or any(each.worker is not None for each in of)
                    retrying = retrying or any(each.stage is Stage.RETRYING for each in of)
        self.counts["rebalance with work in flight"] += busy
        self.counts["retry overtaken by a revoke"] += retrying

    def _released(self, told: happened.PartitionsReleased) -> None:
        ended = self._books.ended
        self.counts["partition lost"] += told.lost and bool(ended)
        late = any(each.running for each in ended)
        self.counts["revoke past its deadline"] += late and not told.lost
        for each in ended:
            self._over(each)

    def _owned(self, told: happened.Owned) -> None:
        came = [self._books.by_hand.wanted(told.member, each) for each in told.partitions]
        self.counts["partition that came while it is paused by hand"] += sum(came)

    def _pause_ordered(self, told: PauseOrdered) -> None:
        self.counts["paused by hand, then resumed"] += not told.paused and bool(
            self._books.by_hand.lifted
        )

    def _over(self, assignment: Assignment) -> None:
        self._failed.discard(assignment.number)
        unheard = {each for each in self._unheard if each[-1] == assignment.number}
        self.counts["letter stored, never heard of"] += len(unheard)
        self._unheard -= unheard

    def _remade(self, told: happened.Remade) -> None:
        reader = self._books.readers.get(told.partition)
        living = reader is not None and reader.over is None
        self.counts["log made anew while it is read"] += living

    # --- workers ---

    def _handed_over(self, told: happened.HandedOver) -> None:
        place = told.member, told.subscription
        seats = self._seats.setdefault(place, {})
        late = (*place, told.worker) in self._filtering
        self.counts["record given to one that filters late"] += late and len(told.records)
        for each in self._books.deliveries:
            slot = each.lane.slot
            if slot is None:
                continue
            seat = seats.get(slot)
            if seat is None:
                seat = seats[slot] = _Seat(told.worker)
            elif seat.worker != told.worker:
                waited = each.first < seat.emptied_at
                self.counts["drain blocked, then released"] += waited
                self.counts["key moved and moved back"] += seat.before == told.worker
                seat.before, seat.worker = seat.worker, told.worker
            seat.count += 1

    def _range_assigned(self, told: RangeAssigned) -> None:
        nobodys = self._nobodys.setdefault((told.member, told.subscription), set())
        if told.worker is None:
            nobodys.add((told.first, told.last))
            return
        found = {each for each in nobodys if each[0] <= told.last and told.first <= each[1]}
        self.counts["slots were nobody's for a while"] += bool(found)
        nobodys -= found

    def _settled_unrun(self, told: SettledUnrun) -> None:
        del told
        self.counts["record skipped as nobody's by order"] += self._books.skipped

    def _filters_declared(self, told: FiltersDeclared) -> None:
        self._filters.add((told.member, told.subscription, told.name))

    def _worker_joined(self, told: WorkerJoined) -> None:
        if (told.member, told.subscription, told.name) in self._filters:
            self._filtering.add((told.member, told.subscription, told.worker))

    def _began(self, told: happened.Began) -> None:
        if told.subscription not in self._books.tracked:
            self.counts["record dropped without a worker"] += len(self._books.passed)
        if (each := self._books.delivery) is not None:
            self._of(told)[each] = None
            asked = each.assignment.member.recalling[told.subscription, told.worker]
            self.counts["record begun while it was asked back"] += asked > 0

    def _of(
        self, told: happened.Began | happened.WentOn | happened.HandlerEnded
    ) -> dict[Delivery, None]:
        place = told.member, told.subscription, told.worker
        return self._running.setdefault(place, {})

    def _went_on(self, told: happened.WentOn) -> None:
        if self._books.delivery is not None:
            self._of(told).pop(self._books.delivery, None)

    def _taken_back(self, told: happened.TakenBack) -> None:
        self.counts["record written off with its worker"] += told.written_off
        for each in self._books.deliveries:
            self._let_go(told.member, told.subscription, each)

    def _adopted(self, told: StateAdopted) -> None:
        self.counts["state handed over"] += bool(told.state)

    def _let_go(self, member: int, sub: str, each: Delivery) -> None:
        seat = self._seats.get((member, sub), {}).get(each.lane.slot)
        if seat is None:
            return
        seat.count -= 1
        if not seat.count:
            seat.emptied_at = self._books.now

    def _ended(self, told: happened.HandlerEnded) -> None:
        each = self._books.delivery
        if each is None:
            return
        self._let_go(told.member, told.subscription, each)
        running = self._of(told)
        if each in running:
            first = next(iter(running)) is each
            self.counts["record ended before one that began before it"] += not first
            del running[each]
        self.counts["worker death mid-record"] += told.outcome == "died"
        assignment = each.assignment
        if assignment.over is not None:
            reader = self._books.readers.get(assignment.partition)
            self.counts["stale completion after reassign"] += reader is not assignment

    # --- commits and letters ---

    def _sent(self, told: happened.CommitRequested) -> None:
        del told
        for partition, (assignment, sent) in self._books.sent.items():
            if assignment is None:
                continue
            empty = assignment.log.last_to_read() is None and sent.position == assignment.start
            first = assignment.found is None and assignment.first_at is None
            self.counts["start of an empty partition committed"] += empty and first
            last = sent.position - 1
            fates = next(iter(assignment.log.fates.values()))
            gap = last >= 0 and (last not in fates or fates[last].removed)
            if gap and (partition, last) not in self._gaps:
                self._gaps.add((partition, last))
                self.counts["offset gap at the position"] += 1

    def _commit_stored(self, told: happened.CommitStored) -> None:
        for partition in told.entries:
            late = told.number < self._stored.get(partition, -1)
            self.counts["commit stored late"] += late
            self._stored[partition] = told.number
            asking = any(partition in each.pending for each in self._books.members.values())
            self.counts["answer stored while a member asks"] += asking

    def _told(self, told: happened.CommitTold) -> None:
        for assignment, _ in self._books.commits.get(told.number, {}).values():
            if assignment is None or assignment.over is not None:
                continue
            number = assignment.number
            if told.result == CommitResult.ACCEPTED:
                self.counts["commit failed, then recovered"] += number in self._failed
                self._failed.discard(number)
            else:
                self._failed.add(number)

    def _letter_stored(self, told: happened.LetterStored) -> None:
        self._unheard.add(tuple(told))

    def _letter_told(self, told: happened.LetterTold) -> None:
        letter = tuple(told)[:-1]
        self.counts["letter stored, never heard of"] += bool(told.error) and letter in self._unheard
        self._unheard.discard(letter)

    def _limit_lifted(self, told: LimitLifted) -> None:
        self.counts["dead-letter limit reached"] += len(told.partitions)

    def _gone(self, told: happened.Gone) -> None:
        self.counts["stop that named what runs again"] += LEFT_OUT in told.reason
        self.counts["process ended by a callback"] += told.reason.startswith(BY_A_CALLBACK)
        self.counts["process ended by what is nobody's"] += IS_AN_ERROR in told.reason
        for each in self._books.ended:
            self._over(each)
        for sub in self._books.settings:
            self._seats.pop((told.member, sub), None)
            self._nobodys.pop((told.member, sub), None)
