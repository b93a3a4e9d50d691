"""One simulated run: a cluster, group members, written records and faults."""

from __future__ import annotations

from collections import Counter
from random import Random

from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.lab.simulator import detachments
from kafka_keyshared.lab.simulator import history as was
from kafka_keyshared.lab.simulator.cluster import SimulatedCluster
from kafka_keyshared.lab.simulator.fault_rates import GroupSettings
from kafka_keyshared.lab.simulator.keys import registries
from kafka_keyshared.lab.simulator.member import Member, RunEnvironment
from kafka_keyshared.lab.simulator.member_events import (
    DependencyAway,
    EndedByARecord,
    KeysAway,
    MetadataTaken,
)
from kafka_keyshared.lab.simulator.member_health import names_an_outage
from kafka_keyshared.lab.simulator.member_orders import (
    EVERYTHING,
    lift_limits,
    order_a_pause,
    release_blocked,
)
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.timeline import Timeline
from kafka_keyshared.model import TopicPartition

PLENTY_SHARE = 0.05
"""The share of the usual writes that remains while there is enough to do."""

LOOK_EVERY = 0.05
"""Mean simulated seconds between two checks whether there still is enough to do."""


RESUMED_FOR = 40.0
"""Simulated seconds for which a member that was paused goes on when faults have stopped."""


class World:
    """Everything that a seed makes. The caller runs its timeline."""

    def __init__(self, seed: int, plan: Plan, *, summed: bool = True) -> None:
        self.plan = plan
        self.chance = Chance(seed)
        self.timeline = Timeline()
        self.history = was.History(self.timeline, summed=summed)
        self.events = 0
        self.turns = 0
        self.reached: Counter[str] = Counter(dict.fromkeys(detachments.RARE, 0))
        self.topics = [f"topic-{number}" for number in range(plan.topics)]
        self.cluster = SimulatedCluster(
            self.timeline,
            self.chance,
            self.history,
            dict.fromkeys(self.topics, plan.partitions),
            GroupSettings(
                protocol=plan.protocol,
                metadata_max=plan.metadata_max,
                tells_limit=plan.tells_limit,
                tells_ids=plan.tells_ids,
            ),
        )
        self.cluster.value = b"v" * plan.value_bytes
        self.around = RunEnvironment(
            chance=self.chance,
            timeline=self.timeline,
            history=self.history,
            cluster=self.cluster,
            topics=self.topics,
            habits=plan.habits,
            letters=plan.letters,
            on_turn=self._count_turn,
            reached=self.reached,
        )
        self.members: list[Member] = []
        # Records that end the process that runs them, and how often each still does.
        self.deadly: dict[tuple[TopicPartition, int], int] = {}
        self._deaths = self.chance("deaths")
        self.history.listen(was.Began, self._began)
        self._numbers = 0
        self.healed = False
        self.finishing = False
        self._writing = self.chance("writing")
        self._lifting = self.chance("lifting")
        self._tracked = any(each.at_least_once for each in plan.member.subscriptions)

    def _count_turn(self, events: int) -> None:
        self.turns += 1
        self.events += events

    # --- members ---

    def _began(self, told: was.Began) -> None:
        """End the process of a member that runs a deadly record, at once or soon; start another."""
        place = told.partition, told.offset
        if self.healed or place not in self.deadly:
            return

        def die() -> None:
            member = next((each for each in self.present() if each.number == told.member), None)
            if member is None or self.healed or place not in self.deadly:
                return
            self.deadly[place] -= 1
            if not self.deadly[place]:
                del self.deadly[place]
            self.history.tell(EndedByARecord(told.member, *place))
            member.kill()
            self.refill()

        self.timeline.after(self._deaths.choice((0.0, 0.001, 0.05, 0.3)), die)

    def start(self) -> None:
        """Start the members and the writer."""
        self.history.tell(MetadataTaken(self.plan.metadata_max))
        for _ in range(self.plan.members):
            self.add_member()
        self.timeline.after(0.0, self._write)
        if any(each.dlq_limit is not None for each in self.plan.member.subscriptions):
            self._lift()

    def add_member(self) -> Member:
        """Start one more member."""
        self._numbers += 1
        member = Member(self._numbers, self.plan.member, self.around, self._free_instance())
        self.members.append(member)
        member.start()
        return member

    def _free_instance(self) -> str:
        """Return the first ``group.instance.id`` that no member has, if members have any.

        Members that come after the healing have none. A static member that returns within its
        session gets its former partitions without a rebalance. In a cooperative group these lack
        the partitions that it was giving up at that moment. No member has those until one joins or
        leaves.
        """
        if not self.plan.static or self.healed:
            return ""
        taken = {each.instance_id for each in self.present()}
        names = (f"instance-{number}" for number in range(len(taken) + 1))
        return next(each for each in names if each not in taken)

    def free_since(self, number: int) -> float:
        """Return since when the owner of a member may run; infinity while it is blocked."""
        for member in self.members:
            if member.number == number:
                return member.free_since()
        return float("-inf")

    def awake_since(self, number: int) -> float:
        """Return since when no disturbance blocks a member's owner; infinity while one does."""
        for member in self.present():
            if member.number == number:
                return member.awake_since()
        return float("inf")

    def names_an_outage(self, number: int) -> frozenset[str]:
        """Return the subscriptions for which a member says that most attempts fail."""
        for member in self.present():
            if member.number == number:
                return names_an_outage(member, self.timeline.now)
        return frozenset()

    def present(self) -> list[Member]:
        """Return the members that are alive."""
        self.members = [each for each in self.members if each.alive]
        return self.members

    def some_member(self, chance: Random) -> Member | None:
        """Return a member, if there is one."""
        present = self.present()
        return chance.choice(present) if present else None

    def some_partition(self, chance: Random) -> TopicPartition:
        """Return a partition."""
        return chance.choice(self.cluster.partitions(self.topics))

    def let_go_away(self, away: Disposition | None) -> None:
        """Start an outage of the dependency of all handlers; None ends it."""
        self.around.away = away
        for member in self.present():
            member.handlers.away = away
        self.history.tell(DependencyAway(away is not None))

    def heal(self) -> None:
        """End all faults: no handler fails or hangs, and members that cannot go on are replaced."""
        self.healed = True
        self.history.tell(was.Healed())
        self.cluster.heal()
        self.around.habits = self.plan.habits.healed()
        self.around.letters = self.around.letters.healed()
        self.read_keys()
        if self.around.away is not None:
            self.let_go_away(None)
        for member in self.present():
            # Blocked lanes stay blocked until a restart with a mended handler.
            member.handlers.habits = self.around.habits
            member.handlers.hang(0, 0.0)
            member.pool.replaceable = True
            member.raises = False
            if member.by_hand:
                # It goes on by itself for a while.
                order_a_pause(self.history, member, EVERYTHING, paused=False)
                self.timeline.after(RESUMED_FOR, member.stop)
            else:
                member.stop()
        self.timeline.after(1.0, self._keep_up)

    def _keep_up(self) -> None:
        """Replace stopped members and release blocked lanes, so that members do the rest."""
        if not self.finishing:
            self.refill()
            for member in self.present():
                release_blocked(member)
            self.timeline.after(1.0, self._keep_up)

    def read_keys(self, *, away: bool | None = None, unregistered: bool | None = None) -> None:
        """Make every key readable to key functions, or make some unreadable for now.

        None leaves a state as it is. Without arguments all keys can be read.
        """
        everything = away is None and unregistered is None
        some_away = some_unknown = False
        for function in registries(self.plan.member.subscriptions):
            function.away = not everything and (function.away if away is None else away)
            function.unregistered = not everything and (
                function.unregistered if unregistered is None else unregistered
            )
            some_away, some_unknown = function.away, function.unregistered
        self.history.tell(KeysAway(some_away or some_unknown, some_unknown))

    def _lift(self) -> None:
        """Lift the dead-letter limits of a member now and then; often at the end.

        Records of diverted lanes go one by one, and a limit lets a few dead letters through each
        time.
        """
        if not self.finishing and (present := self.present()):
            lift_limits(self._lifting.choice(present))
        self.timeline.after(self._lifting.expovariate(20.0 if self.healed else 1.0), self._lift)

    def refill(self) -> None:
        """Add members until the group has as many as it is to have."""
        missing = self.plan.members - len(self.present())
        for _ in range(missing):
            self.add_member()

    # --- writes ---

    def _write(self) -> None:
        """Write a few records, and continue until faults have stopped."""
        plan, chance = self.plan, self._writing
        if self.healed:
            return
        # A few are written even when there is enough to do: waiting records may wait for another
        # one.
        lag = self.cluster.lag() if self._tracked else self.cluster.unread()
        plenty = lag > plan.backlog
        every = max(plan.burst_every, LOOK_EVERY) if plenty else plan.burst_every
        few = PLENTY_SHARE * every / plan.burst_every
        for _ in range(chance.random() < few if plenty else chance.randint(1, 3)):
            partition = TopicPartition(
                chance.choice(self.topics), chance.randrange(plan.partitions)
            )
            keys = [self.key() for _ in range(1 if plenty else chance.randint(1, plan.burst))]
            if self.cluster.known(partition):
                self.cluster.append(partition, keys)
        self.timeline.after(chance.expovariate(1 / every), self._write)

    def key(self) -> bytes | None:
        """Draw the key of a record; None for one without."""
        chance = self._writing
        if chance.random() < self.plan.null_share:
            return None
        return b"key-%d" % chance.randrange(self.plan.keys)
