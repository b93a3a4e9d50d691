"""Shared books of the checkers: every record, its worker and its outcome.

The books are worked out from the history and the rules, never from the state of an instance. They
receive each event before the checkers that use them. The checkers find the subject of the latest
event in ``delivery`` and the similar attributes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import is_not
from typing import Any

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.group import sections_of
from kafka_keyshared.lab.simulator.checkers.letters import AFTER_THE_LAST, Letters
from kafka_keyshared.lab.simulator.checkers.logs import HistoryError
from kafka_keyshared.lab.simulator.checkers.records import (
    DROPPED,
    REFUSED,
    SKIPPED,
    WRITTEN_OFF,
    Assignment,
    CommitModel,
    Delivery,
    LogModel,
    RecordFate,
    Stage,
)
from kafka_keyshared.lab.simulator.checkers.restored_notes import tried
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.member_events import LimitUnheard, MetadataTaken
from kafka_keyshared.model import TopicPartition

Part = tuple[Assignment | None, CommitModel]
"""The part of a commit for one partition, and the assignment that sent it, if there was one."""

ATTEMPTS = ("failed", "retry", "died", "given_back", "put_off", "dead_letter")
NO_ATTEMPT = ("given_back", "put_off")

METADATA_USUAL = 4_096
"""Metadata bytes that brokers accept unless they are set to accept less."""

METADATA_LEAST = 90
"""Below this limit in bytes a member does without settled sets."""


class Books(Letters):
    """Every record in every subscription, and every commit.

    These attributes describe the current event. ``delivery`` is the record that began, ended or got
    its dead letter. ``beside`` says of an ended record whether its worker had gone on beside it.
    ``deliveries`` are the records that were delivered, leased or taken back. ``doubled`` are
    records that were leased although a worker had them. ``heads`` are records that became first in
    their lane. ``ahead`` is the unsettled record before the one that begins in its lane. ``sent``
    holds the parts of a commit with their assignments (None if there is none). ``passed`` are
    records dropped without a run, as a later record of their lane shows.
    """

    def __init__(self, history: History, settings: Sequence[SubscriptionSettings]) -> None:
        super().__init__(history, settings)
        # The parts of each commit, by its number.
        self.commits: dict[int, dict[TopicPartition, Part]] = {}
        self.beside = False
        self._apart: set[Delivery] = set()
        self.deliveries: Sequence[Delivery] = ()
        self.doubled: list[tuple[Delivery, int]] = []
        self.passed: list[Delivery] = []
        self.ahead: Delivery | None = None
        self.sent: dict[TopicPartition, Part] = {}
        # The smallest metadata limit of the brokers so far.
        self.metadata_least = METADATA_USUAL
        listeners: dict[type[Any], Any] = {
            happened.Delivered: self._delivered,
            happened.HandedOver: self._handed_over,
            happened.Recalling: self._recalling,
            happened.RecallAnswered: self._recalled,
            happened.TakenBack: self._taken_back,
            happened.Began: self._began,
            happened.WentOn: self._went_on,
            happened.HandlerEnded: self._ended,
            happened.CommitRequested: self._commit_sent,
            happened.CommitTold: self._commit_told,
            MetadataTaken: self._metadata_taken,
            LimitUnheard: self._limit_unheard,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)

    # --- from the client to a worker ---

    def _delivered(self, told: happened.Delivered) -> None:
        assignment = self.assignments.get(told.assignment)
        if assignment is None or assignment.partition != told.partition:
            raise HistoryError(f"{told}: {told.partition} is not read in that assignment")
        made: list[Delivery] = []
        self.deliveries, self.heads = made, []
        if assignment.over is not None:
            return  # an ended assignment may not use records
        if assignment.start is None:
            assignment.early.append((self.now, told.offsets))
            return
        self._received(assignment, told.offsets, self.now, made)

    def _reading(self, told: happened.ReadingFrom) -> None:
        assignment = self.assignments.get(told.assignment)
        if assignment is not None and assignment.early and told.position is not None:
            begins = [] if assignment.begins is None else assignment.begins.entries
            known = [each[0] for each in begins if each is not None]
            first = assignment.early[0][1][0]
            # Without a committed position, a position beyond the first early record means that the
            # member has taken that record in.
            if told.position > first and None in begins and told.position not in known:
                self._used(assignment, 0)
        super()._reading(told)

    def _used(self, assignment: Assignment, committed: int) -> None:
        """Start the assignment at the records that arrived before its start was known.

        The member has evidently not dropped them. If no record arrived, the member learned its
        start and commits exactly that.
        """
        early, assignment.early = assignment.early, []
        self._starts(assignment, early[0][1][0] if early else committed)
        for at, offsets in early:
            self._received(assignment, offsets, at, [])

    def _received(
        self, assignment: Assignment, offsets: Sequence[int], at: float, made: list[Delivery]
    ) -> None:
        if assignment.first_at is None:
            assignment.first_at = at
        for sub, deliveries in assignment.deliveries.items():
            fates = assignment.log.fates[sub]
            for offset in offsets:
                if offset not in deliveries:
                    fate = fates.get(offset)
                    if fate is None:
                        partition = assignment.partition
                        raise HistoryError(f"{partition}@{offset} was never written")
                    each = deliveries[offset] = Delivery(fate, assignment, at)
                    tried(assignment, sub, each)
                    made.append(each)
                    self._take_in(assignment, sub, each)
        if assignment.misplaced:
            assignment.loose += made
        assignment.end = max(assignment.end, offsets[-1] + 1)

    def _take_in(self, assignment: Assignment, sub: str, each: Delivery) -> None:
        fate = each.fate
        fate.delivered += 1
        if each.offset in assignment.sure[sub]:
            each.stage = Stage.SETTLED
            return
        if assignment.member in fate.known_to and sub in self.tracked:
            # This member settled it. It may still know that, or run the record again.
            each.stage = Stage.SETTLED
            return
        self._open(assignment, sub, each)
        settings = self.settings[sub]
        if not (each.lane.refused or self.declared[sub].takers(each.lane.key)):
            self._settle(each, SKIPPED)
        elif each.lane.refused:
            policy = settings.when_undecodable()
            if policy == "drop":
                self._settle(each, REFUSED)
            else:
                each.stage = Stage.LETTERING_ALONE if policy == "dead_letter" else Stage.BLOCKED

    def _open(self, assignment: Assignment, sub: str, each: Delivery) -> None:
        assignment.open[sub] += 1
        assignment.member.open[sub] += 1
        if each.lane.slot is None:
            self.heads.append(each)
            return
        queues = assignment.queues[sub]
        queue = queues.get(each.lane)
        if queue is None:
            queue = queues[each.lane] = deque()
        if queue and queue[0].offset > each.offset:
            queue.appendleft(each)
        else:
            queue.append(each)
        each.queued = True
        if queue[0] is each:
            self.heads.append(each)

    def _find(self, sub: str, offset: int, number: int) -> Delivery:
        assignment = self.assignments.get(number)
        if assignment is None:
            raise HistoryError(f"unknown assignment {number}")
        if assignment.early:
            self._used(assignment, 0)  # an unreadable key gets a dead letter, no worker
        found = assignment.deliveries[sub].get(offset)
        if found is None and (found := assignment.unused[sub].pop(offset, None)) is not None:
            assignment.deliveries[sub][offset] = found
            found.stage = Stage.OPEN
            self._open(assignment, sub, found)
        elif found is None:
            # The record was never delivered there. The checkers report that.
            fate = assignment.log.fates[sub].get(offset)
            if fate is None:
                raise HistoryError(f"{assignment.partition}@{offset} was never written")
            found = assignment.deliveries[sub][offset] = Delivery(fate, assignment, self.now)
            found.stray = True
        return found

    def _handed_over(self, told: happened.HandedOver) -> None:
        sub, worker = told.subscription, told.worker
        self.doubled, self.heads = [], []
        for number in dict.fromkeys(number for _, _, number in told.records):
            assignment = self.assignments.get(number)
            if assignment is not None and assignment.early:
                self._used(assignment, 0)
        self.deliveries = [self._find(sub, offset, number) for _, offset, number in told.records]
        for each in self.deliveries:
            if each.worker is not None:
                self.doubled.append((each, each.worker))
            each.worker = worker
            if each.stage in (Stage.RETRYING, Stage.UNSURE):
                if each.stage is Stage.UNSURE:
                    each.tries_most = self.settings[sub].retry.attempts - 1
                each.stage = Stage.OPEN
                each.since = self.now

    def _pass_over(self, each: Delivery, queue: Iterable[Delivery]) -> None:
        """Settle as dropped the unleased records of the lane ahead of one that begins."""
        ahead = takewhile(partial(is_not, each), queue)
        self.heads = []
        self.passed = [one for one in ahead if one.worker is None and not one.running]
        for one in self.passed:
            self._settle(one, DROPPED)

    def _recalling(self, told: happened.Recalling) -> None:
        self.member(told.member).recalling[told.subscription, told.worker] += 1

    def _recalled(self, told: happened.RecallAnswered) -> None:
        self.member(told.member).recalling[told.subscription, told.worker] -= 1

    def _taken_back(self, told: happened.TakenBack) -> None:
        sub = told.subscription
        self.deliveries = [self._find(sub, offset, number) for _, offset, number in told.records]
        self.heads = []
        for each in self.deliveries:
            each.worker = None
            each.since = self.now
            if told.written_off:
                self._settle(each, WRITTEN_OFF)

    def _began(self, told: happened.Began) -> None:
        each = self.delivery = self._find(told.subscription, told.offset, told.assignment)
        assignment = each.assignment
        queue = assignment.queues[told.subscription].get(each.lane)
        if told.subscription not in self.tracked:
            self._pass_over(each, queue if each.queued and queue else ())
        if queue and queue[0].stage is Stage.UNSURE and queue[0] is not each:
            self._was_dropped(queue[0])
        self.ahead = queue[0] if queue and queue[0].offset < each.offset else None
        each.running = True
        each.lane.running.append(each)
        assignment.running += 1
        self.member(told.member).running[each] = None

    def _went_on(self, told: happened.WentOn) -> None:
        each = self.delivery = self._find(told.subscription, told.offset, told.assignment)
        self._apart.add(each)

    def _ended(self, told: happened.HandlerEnded) -> None:
        each = self.delivery = self._find(told.subscription, told.offset, told.assignment)
        self.beside = each in self._apart
        self._apart.discard(each)
        self.heads = []
        if not each.running:
            raise HistoryError(f"{told}: it does not run")
        self.runs_no_more(each)
        self.member(told.member).running.pop(each, None)
        each.worker = None
        if told.outcome in ("done", "dropped"):
            self._settle(each, told.outcome)
        elif told.outcome in ATTEMPTS:
            self._failed(each, told)
        else:
            raise HistoryError(f"{told}: no such outcome")

    def _failed(self, each: Delivery, told: happened.HandlerEnded) -> None:
        """Apply the policy to a failed attempt, unless the assignment is over."""
        if each.assignment.over is not None:
            return
        settings = self.settings[told.subscription]
        if not settings.at_least_once and told.outcome != "given_back":
            self._settle(each, "dropped by the policy")
            return
        asked = told.outcome == "dead_letter"
        if told.outcome not in NO_ATTEMPT:
            each.tries += not settings.breaker  # in an outage, an attempt counts for nothing
            each.tries_most += 1
        self._open_again(each, told.subscription)
        each.assignment.failed[told.subscription][each.offset] = each
        attempts = settings.retry.attempts
        if told.outcome in NO_ATTEMPT or (not asked and each.tries_most < attempts):
            each.stage = Stage.RETRYING
            each.since = self.now
        elif not asked and each.tries < attempts:
            each.stage = Stage.UNSURE
            each.assignment.unsure.append(each)
        elif asked:
            each.stage = Stage.LETTERING_ALONE if settings.dlq else Stage.BLOCKED
        elif settings.on_exhausted == "drop":
            self._settle(each, "dropped by the policy")
        else:
            each.stage = AFTER_THE_LAST[settings.on_exhausted]
            if each.stage is Stage.ARCHIVING and each.archived:
                each.stage = Stage.BLOCKED

    def _was_dropped(self, each: Delivery) -> None:
        """Settle a record of uncertain retry as dropped, if the policy drops poison records."""
        if self.settings[each.fate.sub].on_exhausted == "drop":
            self._settle(each, "dropped by the policy")

    def _open_again(self, each: Delivery, sub: str) -> None:
        """Reopen a record that counted as settled and ran again. It is first in its lane."""
        if each.stage is Stage.SETTLED:
            each.stage = Stage.OPEN
            self._open(each.assignment, sub, each)

    def _settle(self, each: Delivery, how: str) -> None:
        fate, assignment = each.fate, each.assignment
        in_time = assignment.over is None
        if not fate.finished and not fate.log.dead:
            self.unfinished[fate.sub] -= 1
        if fate.settled_in is None or in_time:
            if in_time:
                fate.vouch(assignment)
            else:
                fate.settled_in = assignment
            fate.how, fate.at = how, self.now
        if in_time and each.stage is not Stage.SETTLED:
            each.stage = Stage.SETTLED
            assignment.open[fate.sub] -= 1
            assignment.member.open[fate.sub] -= 1
        # A record that settles too late counts for nothing, but it leaves the queue of its lane.
        if each.queued:
            each.queued = False
            each.lane.freed = self.now  # the next record may be of another partition
            queue = assignment.queues[fate.sub][each.lane]
            queue.remove(each)
            if queue:
                queue[0].since = self.now
                self.heads.append(queue[0])

    # --- commits ---

    def _commit_sent(self, told: happened.CommitRequested) -> None:
        member = self.member(told.member)
        self.sent = self.commits[told.number] = {}
        self.heads = []
        for partition, (position, text) in told.entries.items():
            assignment = member.live.get(partition)
            log = self._log(partition) if assignment is None else assignment.log
            said = sections_of(text, position, log.whose)
            sent = CommitModel(told.number, position, text, said, self.now)
            if assignment is not None and assignment.start is None:
                self._used(assignment, position)
            self.sent[partition] = assignment, sent
            if assignment is not None:
                assignment.sent = sent
                self._settled_unseen(assignment, sent)

    def _settled_unseen(self, assignment: Assignment, sent: CommitModel) -> None:
        """Settle as dropped the unsure records that a commit covers."""
        for sub, settings in self.settings.items():
            if settings.on_exhausted == "drop":
                for each in list(assignment.unsure):
                    if each.fate.sub == sub and sent.covers(sub, each.offset):
                        self._was_dropped(each)
                assignment.unsure = [e for e in assignment.unsure if e.stage is Stage.UNSURE]

    def _commit_told(self, told: happened.CommitTold) -> None:
        if told.result == CommitResult.TOO_LARGE:
            self.member(told.member).bare = True

    # --- metadata limits of the brokers ---

    def _metadata_taken(self, told: MetadataTaken) -> None:
        self.metadata_least = min(self.metadata_least, told.most)

    def _limit_unheard(self, told: LimitUnheard) -> None:
        self.member(told.member).bare = True

    # --- remaining work ---

    def owed(self, log: LogModel, sub: str) -> Iterator[RecordFate]:
        """Yield the unsettled records of a log for a subscription, the last one first.

        A removed record is owed only by an assignment that still holds it. An unreliable
        subscription owes nothing.
        """
        if sub not in self.tracked:
            return
        reader = self.readers.get(log.partition)
        held = reader.deliveries[sub] if reader is not None and reader.over is None else ()
        for each in reversed(log.fates[sub].values()):
            if not each.finished and (not each.removed or each.offset in held):
                yield each

    def whereabouts(self, fate: RecordFate) -> str:
        """Return a description of a record's history and current state."""
        reader = self.readers.get(fate.log.partition)
        if reader is None:
            return f"{fate}: no member ever read the partition"
        held = reader.deliveries[fate.sub].get(fate.offset)
        if held is None:
            now = f"it was not delivered, which began at {reader.start}"
        else:
            now = "it runs" if held.running else held.stage.value
        return f"{fate}: {fate.story()}; {reader} {now}"
