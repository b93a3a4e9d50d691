"""What goes wrong while a simulated run is not yet healed, drawn again and again."""

from __future__ import annotations

from collections.abc import Callable

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.member import Member
from kafka_keyshared.sim.world import World

MEMBERS_MOST = 4


class Disturbances:
    """Disturbs a world at random moments, by its plan, until it is healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("disturbances")
        self._kinds: list[tuple[str, float, Callable[[], bool]]] = [
            ("a member joined", 3, self._join),
            ("a member was stopped", 3, self._stop),
            ("a member was killed", 2, self._kill),
            ("a member was thrown out", 1, self._throw_out),
            ("a worker died", 4, self._kill_worker),
            ("an owner stood still", 3, self._stand_still),
            ("an owner stood still for long", 0.5, self._stand_still_long),
            ("the brokers were away", 1, self._outage),
            ("a member was cut off", 1, self._cut),
            ("commits went wrong", 3, self._commit_faults),
            ("questions went wrong", 2, self._question_faults),
            ("fetches went wrong", 2, self._fetch_faults),
            ("a log was compacted", 2, self._compact),
            ("retention came by", 1, self._retention),
            ("a transaction was written", 3, self._transaction),
            ("a partition was added", 0.3, self._add_partition),
        ]

    def begin(self) -> None:
        """Disturb it from now on."""
        seconds = self._chance.expovariate(1 / self._world.plan.fault_every)
        self._world.timeline.after(seconds, self._disturb)

    def _disturb(self) -> None:
        world = self._world
        if world.healed:
            return
        names = [kind[0] for kind in self._kinds]
        weights = [kind[1] for kind in self._kinds]
        at = self._chance.choices(range(len(names)), weights)[0]
        if self._kinds[at][2]():
            world.reached[names[at]] += 1
        if self._chance.random() < 0.5:
            world.refill()
        self.begin()

    def _member(self) -> Member | None:
        present = self._world.present()
        return self._chance.choice(present) if present else None

    def _partition(self) -> TopicPartition:
        world = self._world
        return self._chance.choice(world.cluster.partitions(world.topics))

    # --- members ---

    def _join(self) -> bool:
        if len(self._world.present()) >= MEMBERS_MOST:
            return False
        self._world.add_member()
        return True

    def _stop(self) -> bool:
        member = self._member()
        if member is not None:
            member.stop()
        return member is not None

    def _kill(self) -> bool:
        member = self._member()
        if member is not None:
            member.kill()
        return member is not None

    def _throw_out(self) -> bool:
        member = self._member()
        if member is not None:
            self._world.cluster.throw_out(member.client)
        return member is not None

    def _kill_worker(self) -> bool:
        member = self._member()
        if member is None:
            return False
        places = [place for place, worker in member.pool.workers.items() if worker.alive]
        if not places:
            return False
        member.pool.kill(*self._chance.choice(places))
        member.pool.replaceable = self._chance.random() < 0.8
        return True

    def _stand_still(self) -> bool:
        return self._hold_up(self._chance.uniform(0.01, 2.0))

    def _stand_still_long(self) -> bool:
        return self._hold_up(self._chance.uniform(5.0, 90.0))

    def _hold_up(self, seconds: float) -> bool:
        member = self._member()
        if member is not None:
            member.held_up = seconds
        return member is not None

    # --- brokers ---

    def _outage(self) -> bool:
        cluster, seconds = self._world.cluster, self._chance.expovariate(1 / 5.0)
        which = self._chance.random()
        if which < 0.4:
            cluster.outage(seconds)
        elif which < 0.7:
            cluster.coordinator_away(seconds)
        else:
            cluster.leader_away(self._partition(), seconds)
        return True

    def _cut(self) -> bool:
        member = self._member()
        if member is not None:
            member.client.cut_off(self._chance.expovariate(1 / 5.0))
        return member is not None

    def _commit_faults(self) -> bool:
        self._for_a_while(
            *("commit_refused", "commit_partly", "commit_unheard", "commit_dropped"),
            *("commit_late", "commit_given_up"),
        )
        return True

    def _question_faults(self) -> bool:
        self._for_a_while("committed_unanswered", "committed_partly", "bounds_unanswered", "slow")
        return True

    def _fetch_faults(self) -> bool:
        self._for_a_while(
            *("fetch_raises", "pause_refused", "seek_refused", "restart_late"),
            *("out_of_range", "fetch_errors"),
        )
        return True

    def _for_a_while(self, *names: str) -> None:
        """Let one of these happen now and then, until it is over."""
        faults, chance = self._world.cluster.faults, self._chance
        name = chance.choice(names)
        setattr(faults, name, chance.choice((0.05, 0.3, 1.0)))
        self._world.timeline.after(chance.expovariate(1 / 3.0), lambda: setattr(faults, name, 0.0))

    # --- logs ---

    def _compact(self) -> bool:
        self._world.cluster.compact(self._partition(), self._chance.choice((0.3, 1.0)))
        return True

    def _retention(self) -> bool:
        cluster, partition = self._world.cluster, self._partition()
        log = cluster.log(partition)
        cluster.retain_from(partition, self._chance.randint(log.start, log.end))
        return True

    def _transaction(self) -> bool:
        cluster, partition, chance = self._world.cluster, self._partition(), self._chance
        if cluster.log(partition).has_open_transaction:
            return False
        keys = [self._world.key() for _ in range(chance.randint(1, 20))]
        cluster.append(partition, keys, in_transaction=True)
        commit = chance.random() < 0.6
        seconds = chance.expovariate(1 / 0.5)
        self._world.timeline.after(
            seconds, lambda: cluster.end_transaction(partition, commit=commit)
        )
        return True

    def _add_partition(self) -> bool:
        self._world.cluster.add_partition(self._chance.choice(self._world.topics))
        return True
