"""The adversary that gives orders: lanes are released, dropped and dead-lettered while they fail.

Dead-letter limits stop partitions and are lifted, ranges move, records are detached, and all
null keys may be one lane. What each order promises is kept in books of their own, which go by the
order and its answer alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.events import LaneAction, LaneOrder
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import NEED_DLQ, PoisonPolicy
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.notice_words import order_text
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Coordinates, TopicPartition
from tests.property.adversaries.derived_keys import KeyedAdversary, KeyedOracle
from tests.property.adversaries.oracle import Lane, coordinates_of, partition_of
from tests.property.adversaries.worker_changes import JoiningAdversary
from tests.property.adversaries.world import Member
from tests.support.records import FakeRecord

LIMITS = (None, DlqLimit(0.5, 10, 4), DlqLimit(0.3, 20, 3), DlqLimit(1.0, 1_000, 2))
POISON: tuple[PoisonPolicy, ...] = ("drop", "dead_letter", "block", "block_and_dlq", "divert")
NO_MORE = "no record of it was here"

_PLACE = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)(?:@(?P<offset>\d+))? \(")


class OrderedOracle(KeyedOracle):
    """The books, and what has been ordered."""

    def __init__(self, subs: Sequence[SubscriptionSettings]) -> None:
        self.received: dict[Coordinates, FakeRecord] = {}
        # Records whose letter diverts nothing: it was ordered, or their lane has been released.
        self.alone: set[tuple[str, Coordinates]] = set()
        self.dropped: set[tuple[str, Coordinates]] = set()
        self.posted: set[tuple[str, Coordinates]] = set()  # and not acknowledged
        self.obeying: LaneOrder | None = None
        # Partitions that a limit has stopped; letters since it was lifted, and those in a row.
        self.limited: set[tuple[str, TopicPartition]] = set()
        self.letters: Counter[tuple[str, TopicPartition]] = Counter()
        self.consecutive: Counter[tuple[str, TopicPartition]] = Counter()
        super().__init__(subs)

    def member_starts(self) -> None:
        super().member_starts()
        self._forget(list(self.epochs))

    def gone(
        self, partitions: Iterable[TopicPartition], clean: Collection[TopicPartition] = ()
    ) -> None:
        partitions = list(partitions)
        super().gone(partitions, clean)
        self._forget(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for books in (self.alone, self.dropped, self.posted):
            books -= {each for each in books if each[1][0] in partitions}
        self.limited -= {each for each in self.limited if each[1] in partitions}
        for counts in (self.letters, self.consecutive):
            for each in [each for each in counts if each[1] in partitions]:
                del counts[each]

    def delivered(self, records: Sequence[FakeRecord]) -> None:
        super().delivered(records)
        self.received.update((coordinates_of(each), each) for each in records)

    def started(self, sub: str, record: FakeRecord, *, asked: bool = False) -> None:
        stopped = (sub, partition_of(record)) in self.limited
        assert asked or not stopped, f"{record} started behind the limit of its partition"
        posted = self.current(record) and (sub, coordinates_of(record)) in self.posted
        assert not posted, f"{record} started, and its letter is on its way"
        super().started(sub, record, asked=asked)

    def published(self, sub: str, record: FakeRecord, last: Failure) -> None:
        each = sub, coordinates_of(record)
        self.posted.add(each)
        diverted = last.disposition is Disposition.DIVERT
        if self.obeying and (not diverted or self._is_named(self.obeying, sub, record)):
            self.alone.add(each)
        if each not in self.alone:
            super().published(sub, record, last)

    def _is_named(self, order: LaneOrder, sub: str, record: FakeRecord) -> bool:
        """Say whether this is the head that is ordered into the dead-letter topic.

        Its letter may say that its lane is diverted in another partition; it diverts nothing here.
        """
        if (order.subscription, order.action) != (sub, LaneAction.DEAD_LETTER):
            return False
        if order.key is None:
            return (order.partition, order.offset) == coordinates_of(record)
        return self.lane(sub, record) == self._lane_of(sub, partition_of(record), order.key)

    def archived(self, sub: str, record: FakeRecord) -> None:
        each = sub, coordinates_of(record)
        self.alone.discard(each)
        self.posted.discard(each)
        if each not in self.dropped:
            super().archived(sub, record)

    # --- orders for lanes ---

    def ordered(self, order: LaneOrder, done: str) -> None:
        """The order was obeyed, with this answer: from now on it is as was promised."""
        sub, found = order.subscription, _PLACE.match(done)
        if found is None:
            assert done.endswith(NO_MORE), done
            assert order.action is LaneAction.UNBLOCK
            self._diverts_no_more(sub, [self._lane_of(sub, p, order.key) for p in self.owned])
            return
        partition = TopicPartition(found["topic"], int(found["partition"]))
        if found["offset"] is None:
            assert order.action is LaneAction.UNBLOCK, f"nothing was there to settle: {done}"
            self._diverts_no_more(sub, [self._lane_of(sub, partition, order.key)])
            return
        head = self.received[partition, int(found["offset"])]
        if head.offset() in self.settled[sub, partition]:
            # Its letter is written, and the member has not heard of that; nor will it, now.
            if order.action is LaneAction.DROP:
                self.dropped.add((sub, coordinates_of(head)))
            self._diverts_no_more(sub, [self.lane(sub, head)] * (order.action == "unblock"))
            return
        each = sub, coordinates_of(head)
        undiverted = self.subs[sub].on_exhausted == "divert" and each in self.dead_lettering
        if undiverted and ", blocked" in done:
            # Its lane could not be diverted, for want of room in the metadata: it has no letter.
            self.dead_lettering.discard(each)
            self.blocked.add(each)
        self._check_head(sub, head, order)
        if order.action is LaneAction.UNBLOCK:
            self._released(sub, head)
        elif order.action is LaneAction.DROP:
            self._dropped(sub, head)
        else:
            self._sent(sub, head)

    def _check_head(self, sub: str, head: FakeRecord, order: LaneOrder) -> None:
        lane = self.lane(sub, head)
        assert self.current(head), f"{head} is of a partition that has gone"
        assert order.key is None or lane == self._lane_of(sub, partition_of(head), order.key)
        running = self.running[sub].get(lane)
        assert running is None or not self.current(running), f"{head}: {running} runs"
        ahead = self.open[sub][partition_of(head), lane]
        assert ahead[0] == head.offset(), f"{head} was no head, ahead of it: {ahead[:5]}"

    def _lane_of(self, sub: str, partition: TopicPartition, key: bytes | None) -> Lane:
        headers: list[tuple[str, bytes | None]] = [("key", key)] if key else []
        return self.lane(sub, FakeRecord(partition, 0, None, headers=headers))

    def _diverts_no_more(self, sub: str, lanes: Iterable[Lane]) -> None:
        hashes = {self.hash_of(lane) for lane in lanes if lane[3] < 0}
        for of, partition in list(self.diverted):
            if of == sub:
                self.diverted[of, partition] -= hashes

    def _released(self, sub: str, head: FakeRecord) -> None:
        each = sub, coordinates_of(head)
        lane = self.lane(sub, head)
        assert not self.refused(sub, head), f"{head} is released, and no handler may have it"
        if each in self.posted:
            known = self.diverted[sub, partition_of(head)]
            assert self.hash_of(lane) in known, f"{head} is released, and its letter is on its way"
            self.alone.add(each)
        elif each in self.blocked:
            self.blocked.discard(each)
            self.attempts.pop(each, None)
        self._diverts_no_more(sub, [lane])

    def _dropped(self, sub: str, head: FakeRecord) -> None:
        each = sub, coordinates_of(head)
        for books in (self.dead_lettering, self.copying, self.blocked, self.posted):
            books.discard(each)
        self.dropped.add(each)
        self._settled(sub, head)

    def _sent(self, sub: str, head: FakeRecord) -> None:
        each = sub, coordinates_of(head)
        assert each not in self.dead_lettering, f"{head} is sent twice"
        self.blocked.discard(each)
        if each in self.copied:
            self._settled(sub, head)
            return
        assert each in self.alone, f"{head} is ordered into the dead-letter topic, without a letter"
        self.dead_lettering.add(each)

    # --- dead-letter limits ---

    def hears(self, event: ev.Event) -> None:
        """The member is about to hear this."""
        if isinstance(event, ev.DeadLetterAnswer) and event.error is None:
            self._letter(event.publish)
        elif isinstance(event, ev.Reported):
            if any(isinstance(each, ev.SliceEnded) for each in event.reports):
                self.consecutive.clear()
        elif isinstance(event, ev.DlqLimitLifted):
            for each in [each for each in self.limited if each[1] in event.partitions]:
                self.limited.discard(each)
                self.letters.pop(each, None)
                self.consecutive.pop(each, None)

    def is_stopped(self, stopped: Mapping[str, Collection[TopicPartition]]) -> None:
        """Of these nothing starts now, by the limit of each subscription: is that as it should?"""
        now = {(sub, partition) for sub, those in stopped.items() for partition in those}
        assert now >= self.limited, f"{self.limited - now} goes on, and nobody has lifted its limit"
        for each in now - self.limited:
            limit = self._limit(each)
            least = min(limit.consecutive, limit.share * limit.records)
            assert self.letters[each] >= least, f"{each} is stopped after {self.letters[each]}"
        for each, count in self.consecutive.items():
            over = count >= self._limit(each).consecutive and not self.stopped
            assert not over or each in now, f"{each} goes on after {count} letters in a row"
        self.limited = now

    def _limit(self, each: tuple[str, TopicPartition]) -> DlqLimit:
        limit = self.subs[each[0]].dlq_limit
        return limit or DlqLimit(1.0, 1 << 30, 1 << 30)

    def _letter(self, publish: cmd.Publish) -> None:
        record = publish.record
        assert isinstance(record, FakeRecord)
        sub, at = publish.subscription, coordinates_of(record)
        if self.current(record) and (sub, at) not in self.dropped:
            self.letters[sub, at[0]] += 1
            self.consecutive[sub, at[0]] += 1


class OrderedMember(Member):
    """The member, whose limits are watched."""

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        oracle, holds = self.world.oracle, self.core.holds
        assert isinstance(oracle, OrderedOracle)
        oracle.hears(event)
        commands = super().tell(event)
        stopped = {
            name: holds.held_back_by(Reason.DLQ_LIMIT, name) for name in self.core.subscriptions
        }
        oracle.is_stopped(stopped)
        return commands


class OrderingAdversary(JoiningAdversary, KeyedAdversary):
    """One seed of it."""

    oracle: OrderedOracle

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.will = Random(f"ordering-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)
        self.fail_share = self.will.choice([0.1, 0.3, 0.6])
        self.restarts = self.will.random() < 0.3

    def random_settings(self, name: str) -> SubscriptionSettings:
        """Settings with every policy, under which much fails."""
        will = self.will
        settings = super().random_settings(name)
        on_exhausted = will.choice(POISON)
        dlq = settings.dlq or on_exhausted in NEED_DLQ or will.random() < 0.7
        return replace(
            settings,
            on_exhausted=on_exhausted,
            dlq=dlq,
            dlq_limit=will.choice(LIMITS) if dlq else None,
            null_keys="one-lane" if will.random() < 0.5 else settings.null_keys,
            retry=settings.retry._replace(attempts=will.randint(1, 3)),
            hands_over=False,
            routing=self._routing(settings.workers),
        )

    def _routing(self, workers: Sequence[str]) -> RoutingSettings:
        modes: tuple[RoutingMode, ...] = ("ring", "ring", "auto-split", "sticky")
        mode = self.will.choice(modes)
        if mode != "sticky":
            return RoutingSettings(mode=mode)
        bounds = [SLOTS * at // len(workers) for at in range(len(workers) + 1)]
        ranges = {each: [(bounds[at], bounds[at + 1] - 1)] for at, each in enumerate(workers)}
        return RoutingSettings(mode="sticky", ranges=ranges)

    def make_oracle(self) -> OrderedOracle:
        return OrderedOracle(self.settings)

    def make_member(self) -> Member:
        return OrderedMember(self)

    def write(self, partition: TopicPartition, offset: int, key: bytes | None) -> FakeRecord:
        """Some more of the records are without a key."""
        return super().write(partition, offset, None if self.will.random() < 0.15 else key)

    def _archive(self, publish: cmd.Publish, error: str | None) -> None:
        item, oracle = publish.record, self.oracle
        assert isinstance(item, FakeRecord)
        each = publish.subscription, coordinates_of(item)
        if oracle.current(item) and each not in oracle.dropped:
            unrun = publish.last.error_type == "Diverted"
            tried = 0 if unrun else oracle.attempts.get(each, 0)
            assert publish.attempts == tried, f"{item}: {publish.attempts} attempts, not {tried}"
        self.reached["letter of what was dropped"] += each in oracle.dropped
        super(KeyedAdversary, self)._archive(publish, error)

    # --- orders ---

    def act(self) -> None:
        """Now and then, let somebody give an order, or time pass in small steps."""
        roll = self.will.random()
        name = self.will.choice(list(self.member.core.subscriptions))
        if roll < 0.10:
            self.order(self._some_order(name))
        elif roll < 0.13:
            self.lift(self.will.sample(self.partitions, self.will.randint(1, len(self.partitions))))
        elif roll < 0.18:
            self.member.look(self.will.choice([0.025, 0.1, 0.2, 1.0]))
        elif roll < 0.21 and not self.oracle.stopped:
            self.move(name)
        for sub in self.member.core.subscriptions.values():
            self.reached["a record is detached"] += any(
                worker.detached is not None for worker in sub.workers.values()
            )
        self.reached["a limit has stopped a partition"] += bool(self.oracle.limited)
        super().act()

    def _some_order(self, name: str) -> LaneOrder:
        """An order for a lane of whichever state, or for any key and place."""
        will = self.will
        action = will.choice(list(LaneAction))
        by_state: dict[LaneState, list[ClosedLane]] = {}
        for each in self.member.sub(name).closed.lanes.values():
            by_state.setdefault(each.state, []).append(each)
        if not by_state or will.random() < 0.1:
            if will.random() < 0.5:
                return LaneOrder(name, action, b"key-%d" % will.randrange(12))
            partition = will.choice(self.partitions)
            return LaneOrder(name, action, None, partition, will.randint(0, 60))
        closed = will.choice(will.choice(list(by_state.values())))
        if closed.head is None or (closed.key is not None and will.random() < 0.3):
            return LaneOrder(name, action, closed.key)
        return LaneOrder(name, action, None, closed.partition, closed.head.offset())

    def order(self, order: LaneOrder) -> bool:
        """Give the order; say whether it was obeyed. One that is refused settles nothing."""
        member, oracle = self.member, self.oracle
        held = member.core.unsettled_count()
        oracle.obeying = order
        member.tell(order)
        oracle.obeying = None
        answer = member.actor.lane_answers.pop()
        assert (answer.done is None) == bool(answer.refused), answer
        done = "" if answer.done is None else order_text(answer.done)
        how = done or answer.refused
        state = re.search(r"\), (\w+)", how)
        what = state[1] if state else "nothing" if answer.refused else "unmet"
        self.reached[f"{order.action} of {what} {'done' if done else 'refused'}"] += 1
        if answer.refused:
            assert held == member.core.unsettled_count(), f"it is refused, and settles: {how}"
            return False
        oracle.ordered(order, done)
        return True

    def lift(self, partitions: Sequence[TopicPartition]) -> None:
        """Have these go on, whether or not a limit has stopped them."""
        stopped = {partition for _, partition in self.oracle.limited}
        self.member.tell(ev.DlqLimitLifted(partitions))
        self.reached["a limit was lifted"] += bool(stopped.intersection(partitions))

    def move(self, name: str) -> None:
        """Have a range be another worker's, there or not."""
        sub = self.member.sub(name)
        if sub.settings.routing.mode != "sticky":
            return
        first, last = sorted(self.will.randrange(SLOTS) for _ in range(2))
        names = [worker.name for worker in sub.workers.values() if worker.present]
        worker = self.will.choice(names)
        self.member.tell(ev.AssignRange(name, first, last, worker, take_over=True))
        self.reached["a range moved"] += 1
        self.reached["a range moved while keys fail"] += bool(sub.closed.lanes)

    # --- the end ---

    def look_after(self) -> None:
        """Lift what is limited, have every range at somebody who is there, and release keys."""
        for name, sub in self.member.core.subscriptions.items():
            present = [worker.name for worker in sub.workers.values() if worker.present]
            if sub.settings.routing.mode == "sticky":
                self.member.tell(ev.AssignRange(name, 0, SLOTS - 1, present[0], take_over=True))
        if self.oracle.limited:
            self.lift(sorted({partition for _, partition in self.oracle.limited}))
        if self.restarts or any(
            self.oracle.refused(sub, self.oracle.received[at]) for sub, at in self.oracle.blocked
        ):
            super().look_after()
            return
        for blocked_of, at in sorted(self.oracle.blocked):
            self.order(LaneOrder(blocked_of, LaneAction.UNBLOCK, None, *at))
