"""Simulated member: the production instance over simulated ports, in its own process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Command, LaneAnswer, RecordsDropped
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.records.lane_identity import NullKey
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as was
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.cluster import SimulatedCluster
from kafka_keyshared.lab.simulator.coroutine_pool import SimTasks
from kafka_keyshared.lab.simulator.detachments import Detachments
from kafka_keyshared.lab.simulator.handlers import Habits, Handlers
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.mailbox import SimMailbox
from kafka_keyshared.lab.simulator.member_events import (
    BY_A_CALLBACK,
    CallbackRaised,
    FiltersDeclared,
    LimitLifted,
    WorkersResized,
)
from kafka_keyshared.lab.simulator.pool import PoolHabits, SimPool, where_from
from kafka_keyshared.lab.simulator.processes import SimProcesses
from kafka_keyshared.lab.simulator.publisher import LetterFaults, SimPublisher
from kafka_keyshared.lab.simulator.pulling import SimMembers
from kafka_keyshared.lab.simulator.range_history import RangeAssigned, SettledUnrun
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import may_be_withdrawn
from kafka_keyshared.lab.simulator.stepped import PoolKind
from kafka_keyshared.lab.simulator.timeline import Killed, SimulatedProcess, Timeline
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.loop import CHUNK, Loop
from kafka_keyshared.runtime.ports import Ports
from kafka_keyshared.runtime.rights import Subject

WALL = 1_700_000_000.0
"""Wall clock at the start of the timeline, in seconds since 1970."""

NOWHERE = TopicPartition("", -1)

ROUND_LEAST = 0.00002
"""Least seconds from one round of an owner to the next."""

OF_THE_PACKAGE: Mapping[PoolKind, type[SimProcesses] | type[SimMembers]] = {
    "process": SimProcesses,
    "lease": SimMembers,
}
"""The package's own pools that run in a simulation, beside that of coroutines, by kind."""


class RaisedError(Exception):
    """Raised by a rebalance callback on request."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """Settings of every member of the group. Times are in seconds.

    ``rests`` is the longest rest of an owner after a round without work, unless something arrives.
    ``rounds`` is the longest time between its other rounds. A fetch brings ``chunk`` records at
    most.
    """

    subscriptions: tuple[SubscriptionSettings, ...] = (SubscriptionSettings(),)
    commit: CommitPolicy = CommitPolicy()  # noqa: RUF009 - an immutable value
    revoke_deadline: float = 5.0
    stop_timeout: float = 30.0
    set_budget: int = SET_BUDGET
    authorization_timeout: float | None = None
    pool: PoolHabits = PoolHabits()  # noqa: RUF009 - an immutable value
    rests: float = 0.0
    rounds: float = 0.00022
    chunk: int = CHUNK

    @property
    def on_a_loop(self) -> bool:
        """Whether its workers are coroutines, which settle their records one by one."""
        return self.pool.loop and all(each.individually for each in self.subscriptions)


@dataclass(slots=True)
class RunEnvironment:
    """Objects that the members of a run share."""

    chance: Chance
    timeline: Timeline
    history: was.History
    cluster: SimulatedCluster
    topics: Sequence[str]
    habits: Habits
    letters: LetterFaults
    on_turn: Callable[[int], None]
    reached: Counter[str]
    away: Disposition | None = None


QUIET_EVENTS = (ev.Tick, ev.LeaseDue)
"""Events that come whether or not there is anything to do, and mostly change nothing."""


EACH_SLOT_EVERY = 8
"""While slots drain, one of this many self-checks of the core covers each of the 65,536 slots."""


class CountedDispatcher(Dispatcher):
    """The core, with a count of the events that it handles."""

    on_order: Callable[[ev.LaneOrder], None]
    on_resize: Callable[[ev.Resize], None]
    on_assign: Callable[[ev.AssignRange], None]
    on_filters: Callable[[str, str, Sequence[str | bytes]], None]
    detachments: Detachments
    taken = 0
    _looks = 0

    def check(self, *, each_slot: bool = True) -> None:
        """Check the core itself, and now and then every slot."""
        self._looks += 1
        super().check(each_slot=each_slot and self._looks % EACH_SLOT_EVERY == 0)

    def handle(self, event: ev.Event, now: float) -> list[Command]:
        """Handle one event and return the commands."""
        if type(event) not in QUIET_EVENTS:
            self.taken += 1
        if isinstance(event, ev.Resize):
            self.on_resize(event)
        self.detachments.before(event)
        commands = super().handle(event, now)
        self.detachments.after(commands)
        if isinstance(event, ev.LaneOrder) and any(
            isinstance(each, LaneAnswer) and each.done for each in commands
        ):
            self.on_order(event)  # before any of its commands runs
        if isinstance(event, ev.AssignRange):
            self.on_assign(event)  # as above; a refused order raises
        if isinstance(event, ev.Join) and event.filters:
            self.on_filters(event.subscription, event.name, event.filters)
        if isinstance(event, ev.SetFilters):
            self.on_filters(event.subscription, event.worker, event.patterns)
        return commands


class Member:
    """One member, from its start to its end. Its successor is another member."""

    def __init__(
        self, number: int, plan: MemberPlan, around: RunEnvironment, instance: str = ""
    ) -> None:
        self.number = number
        self.instance_id = instance
        self._plan = plan
        self._around = around
        self._chance = around.chance("owners")
        self.process = SimulatedProcess(around.timeline)
        self.mailbox = SimMailbox(self.process)
        self.client = SimClient(
            around.cluster, self.process, around.topics, self.mailbox.put, number, eof=True
        )
        self.client.membership.instance = instance
        core = CountedDispatcher(
            plan.subscriptions,
            plan.commit,
            set_budget=plan.set_budget,
            check_invariants=True,
            careful=True,
        )
        self._core = core
        core.on_order, core.on_resize, core.on_assign = self.ordered, self.resized, self.assigned
        core.on_filters = self.filters
        core.detachments = Detachments(core.subscriptions, around.reached)
        self.handlers = Handlers(around.habits, around.chance("handlers"), around.chance.seed)
        self.handlers.away = around.away
        site = Site(number, self.process, around.history)
        publisher = SimPublisher(
            site, lambda: around.letters, around.chance("letters"), self.mailbox.put
        )
        timeline = around.timeline
        clock = Clock(
            lambda: timeline.now, lambda: WALL + timeline.now, around.chance("jitter").random
        )
        made = site, core, self.handlers, around.chance("pools"), plan.pool
        post = self.mailbox.put
        self.pool: SimPool | SimTasks | SimProcesses | SimMembers
        if plan.on_a_loop:
            self.pool = SimTasks(*made, post=post, clock=clock)
        elif plan.pool.own and plan.pool.kind in OF_THE_PACKAGE:
            self.pool = OF_THE_PACKAGE[plan.pool.kind](*made, post=post, clock=clock)
        else:
            self.pool = SimPool(*made, post=post)
        ports = Ports(self.client, self.pool, self.mailbox, clock, publisher)
        self.instance = Instance(
            core, ports, revoke_deadline=plan.revoke_deadline, chunk=plan.chunk
        )
        self.instance.loop.rights.subject = Subject(
            around.topics, "group", "", plan.authorization_timeout
        )
        self.instance.rebalancer.observer = self._observed
        if any(map(may_be_withdrawn, plan.subscriptions)):
            self.instance.loop.on_dropped = self._dropped
        self.raises = False
        """Whether the next rebalance callback raises."""
        self.by_hand = False
        """Whether anything of it was ever paused by hand."""
        self.stopping = False
        self.held_up = 0.0
        """Seconds for which the owner is blocked before its next turn."""
        self._held_up_until = float("-inf")
        # Number of its current rest, so that no event ends another rest.
        self._resting = False
        self._rests = 0
        self.mailbox.wake = self.client.fetcher.wake_owner = self._awake

    @property
    def alive(self) -> bool:
        """Whether it is alive."""
        return self.process.alive

    @property
    def stands_still(self) -> bool:
        """Whether its owner is blocked, or is about to be."""
        return bool(self.held_up) or self._held_up_until > self._around.timeline.now

    def free_since(self) -> float:
        """Return since when its owner may run and no subscription waits for a dependency.

        Infinity while it is blocked, or while one waits.
        """
        until = self._held_up_until
        subs = self.instance.core.subscriptions.values()
        breakers = [each.breaker for each in subs if each.breaker is not None]
        if until > self._around.timeline.now or any(each.open for each in breakers):
            return float("inf")
        return max([until, self.process.free_since(), *(each.closed_at for each in breakers)])

    def awake_since(self) -> float:
        """Return since when no disturbance blocks its owner; infinity while one does."""
        return float("inf") if self.stands_still else self._held_up_until

    def start(self) -> None:
        """Join the group. From now on the member has turns."""
        self.instance.start()
        self.instance.join()
        self._around.timeline.after(self._chance.random() * 0.01, self._turn)

    def stop(self) -> None:
        """Stop it in order at its next turn."""
        if self.alive and not self.stopping:
            self.stopping = True
            self._around.history.tell(was.StopRequested(self.number))

    def ordered(self, order: ev.LaneOrder) -> None:
        """Report an order for a lane that was carried out."""
        partition = order.partition or NOWHERE
        # Where null keys are one lane, that has a special key, which equals the empty one.
        key = None if type(order.key) is NullKey else order.key
        told = was.LaneOrdered(
            self.number, order.subscription, order.action.value, partition, order.offset, key
        )
        self._around.history.tell(told)

    def lifted(self, partitions: Sequence[TopicPartition]) -> None:
        """Report partitions whose dead-letter limit is lifted."""
        self._around.history.tell(LimitLifted(self.number, partitions))

    def resized(self, order: ev.Resize) -> None:
        """Report an order for other workers. It is always possible."""
        told = WorkersResized(self.number, order.subscription, tuple(order.names))
        self._around.history.tell(told)

    def assigned(self, order: ev.AssignRange) -> None:
        """Report a range that now belongs to another worker."""
        told = RangeAssigned(self.number, order.subscription, order.first, order.last, order.worker)
        self._around.history.tell(told)

    def _dropped(self, dropped: RecordsDropped) -> None:
        """Report records that were settled without a run."""
        records = [where_from(record) for record in dropped.records]
        self._around.history.tell(SettledUnrun(self.number, dropped.subscription, records))

    def filters(self, sub: str, name: str, patterns: Sequence[str | bytes]) -> None:
        """Report a worker that takes only some keys, as it joins or from now on."""
        self._around.history.tell(FiltersDeclared(self.number, sub, name, patterns))

    def order(self, name: str, order: Callable[[Loop], Generator[None, None, None]]) -> None:
        """Give the owner an order, and ignore a refusal."""
        loop = self.instance.loop
        loop.orders.post(name, lambda: order(loop))

    def _observed(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Observe a rebalance, inside its callback."""
        del partitions
        if self.raises:
            self.raises = False
            self._around.history.tell(CallbackRaised(self.number))
            raise RaisedError(f"{BY_A_CALLBACK} when partitions were {what}")

    def kill(self) -> None:
        """Kill its process, without notice."""
        if self.alive:
            self.process.alive = False
            self.pool.ended = True
            self._around.history.tell(was.Gone(self.number, "killed", clean=False))
            self.client.die()

    def _turn(self) -> None:
        """Run a round of the instance, and another one a little later."""
        if not self.alive:
            return
        if self.held_up:
            seconds, self.held_up = self.held_up, 0.0
            self._held_up_until = self._around.timeline.now + seconds
            self._around.timeline.after(seconds, self._turn)
            return
        core, before = self._core, self._core.taken
        try:
            if not self._round():
                return
        except Killed:  # also inside ``_break_off``
            return
        finally:
            self._around.on_turn(core.taken - before)
        if core.taken == before and self._plan.rests:
            self._rest()
        else:
            self._turn_soon()

    def _round(self) -> bool:
        """Run a round of the instance; return whether another one follows."""
        if self.instance.halted is not None or self.stopping:
            self._end()
            return False
        try:
            self.instance.step()
        except RaisedError as error:
            self._break_off(str(error))
            return False
        return True

    def _turn_soon(self) -> None:
        longest = self._plan.rounds - ROUND_LEAST
        self._around.timeline.after(ROUND_LEAST + self._chance.random() * longest, self._turn)

    def _rest(self) -> None:
        """Take the next turn when something arrives, or after a while.

        This is like an owner that the machine runs late. It saves rounds that would only wait for
        long handlers.
        """
        self._resting = True
        self._rests += 1
        number = self._rests

        def over() -> None:
            if self._resting and self._rests == number:
                self._resting = False
                self._turn()

        self._around.timeline.after(self._chance.random() * self._plan.rests, over)

    def _awake(self) -> None:
        """Continue at once because something has arrived during a rest."""
        if self._resting:
            self._resting = False
            self._turn_soon()

    def _end(self) -> None:
        """Stop as the service does."""
        halted = self.instance.halted
        if halted is not None and not self.stopping:
            self._around.history.tell(was.StopRequested(self.number))
        report = self.instance.stop(self._plan.stop_timeout, lambda: False)
        how, reason = ("stopped", report.line()) if halted is None else ("halted", halted)
        self._close(was.Gone(self.number, how, report.clean, reason))

    def _break_off(self, reason: str) -> None:
        """End without a commit, as the service does when a round raises."""
        if not self.stopping:
            self._around.history.tell(was.StopRequested(self.number))
        self.pool.stop(0.0)
        self._close(was.Gone(self.number, "halted", clean=False, reason=reason))

    def _close(self, gone: was.Gone) -> None:
        # Reported before the client closes: a partition that this gives back is no revoke.
        self._around.history.tell(gone)
        self.pool.ended = True
        self.instance.close()
        self.client.close()
        self.process.alive = False
