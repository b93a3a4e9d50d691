"""A simulated cluster with members that do little but read and commit: no core, no workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.cluster import SimulatedCluster
from kafka_keyshared.lab.simulator.fault_rates import GroupSettings
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.timeline import Killed, SimulatedProcess, Timeline
from kafka_keyshared.model import Record, TopicPartition

TOPIC = "orders"
PROTOCOLS = ("eager", "cooperative", "kip-848")


class Simulation:
    """A cluster with one topic, and whatever happens there."""

    def __init__(self, protocol: str = "eager", *, seed: int = 1, partitions: int = 4) -> None:
        self.timeline = Timeline()
        self.history = History(self.timeline)
        settings = GroupSettings(protocol=protocol)
        self.cluster = SimulatedCluster(
            self.timeline, Chance(seed), self.history, {TOPIC: partitions}, settings
        )
        self.members: list[Reading] = []

    def join(self, instance: str = "") -> Reading:
        """Let another member join, a static one if it has an instance."""
        member = Reading(self, len(self.members) + 1, instance)
        self.members.append(member)
        return member

    def write(self, count: int = 1, key: bytes | None = b"key") -> None:
        """Write so many records into every partition."""
        for partition in self.cluster.partitions([TOPIC]):
            self.cluster.append(partition, [key] * count)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.timeline.run(self.timeline.now + seconds)

    def until(self, over: Callable[[], bool], seconds: float = 120.0) -> None:
        """Let time pass until that is so."""
        self.timeline.run(self.timeline.now + seconds, over)
        assert over(), f"not so after {seconds:g} s of made-up time"

    def shared(self, *members: Reading) -> bool:
        """Say whether these have all partitions between them, each of them some."""
        held = [each for member in members for each in member.held]
        everything = self.cluster.partitions([TOPIC])
        return sorted(held) == everything and all(member.held for member in members)


class Reading:
    """A member that polls ten times a second, and commits when partitions go.

    ``told`` are its callbacks, ``held`` what it was assigned, ``taken`` what it has received.
    """

    def __init__(self, simulation: Simulation, number: int, instance: str = "") -> None:
        self.simulation = simulation
        self.process = SimulatedProcess(simulation.timeline)
        self.answers: list[CommitAnswer] = []
        self.told: list[tuple[str, tuple[int, ...]]] = []
        self.held: list[TopicPartition] = []
        self.taken: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self.polling = True
        self.on_revoke: Callable[[], None] = lambda: None
        self.client = SimClient(
            simulation.cluster, self.process, [TOPIC], self.answers.append, number
        )
        self.client.membership.instance = instance
        self.client.subscribe(self._assigned, self._revoked, self._lost)
        simulation.timeline.after(0.0, self._turn)

    def commit(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Commit what it has taken."""
        entries = {
            each: CommitEntry(position, f"set of {position}")
            for each, position in self.client.positions().items()
            if partitions is None or each in partitions
        }
        if entries:
            self.client.commit(Commit(entries))

    def kill(self) -> None:
        """End it without a word."""
        self.process.alive = False
        self.client.die()

    def names(self) -> list[str]:
        """The callbacks that have brought or taken something, in order."""
        return [name for name, partitions in self.told if partitions]

    def _turn(self) -> None:
        if not self.process.alive or self.client.closed:
            return
        try:
            if self.polling:
                self._take(self.client.poll(0.05))
                for record in self.client.consume(500):
                    self._take(record)
        except Killed:
            return
        self.simulation.timeline.after(0.05, self._turn)

    def _take(self, record: Record | None) -> None:
        if record is None:
            return
        if record.error() is None:
            self.taken.append((record.partition(), record.offset()))
        else:
            self.errors.append(record.error().name())
            self.told.append((record.error().name(), ()))

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.told.append((what, tuple(each.partition for each in partitions)))

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)
        found = self.client.committed(partitions, 30.0)
        self.client.assign({each: found[each].position for each in partitions})
        self.held += partitions

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        self.on_revoke()
        self.commit(partitions)
        self._let_go(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)
        self._let_go(partitions)

    def _let_go(self, partitions: list[TopicPartition]) -> None:
        self.client.released(partitions)
        self.held = [each for each in self.held if each not in partitions]
