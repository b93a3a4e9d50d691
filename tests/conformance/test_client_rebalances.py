"""What the client was seen to do around a rebalance, asked of the simulated one and of the real.

As in ``test_client_facts.py``; here the clients are members of a group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import Client
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.cluster import SimulatedCluster as SimCluster
from kafka_keyshared.lab.simulator.fault_rates import GroupSettings
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess, Timeline
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.bare_client import group_conf
from tests.support.kafka_requests import throw_out
from tests.support.live_cluster import group_name

PATIENCE = 60.0
PROTOCOLS = ("eager", "cooperative", "kip-848")


class Peer:
    """A member that says which callbacks it had, and starts where nothing is committed."""

    def __init__(self) -> None:
        self.client: Client
        self.answers: list[CommitAnswer] = []
        self.told: list[str] = []
        self.held: list[TopicPartition] = []
        self.taken: list[Record] = []
        # How often it was told what is new to it, which may be nothing.
        self.rounds = 0
        # Called in the next revoke, before the partitions are let go.
        self.on_revoke: Callable[[list[TopicPartition]], None] | None = None
        self.closed = False

    def join(self) -> None:
        self.client.subscribe(self._assigned, self._revoked, self._lost)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)
        self.rounds += 1
        self.client.assign(dict.fromkeys(partitions, 0))
        self.held += partitions

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        if self.on_revoke is not None:
            hook, self.on_revoke = self.on_revoke, None
            hook(partitions)
        self._let_go(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)
        self._let_go(partitions)

    def _let_go(self, partitions: list[TopicPartition]) -> None:
        self.client.released(partitions)
        self.held = [each for each in self.held if each not in partitions]

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.told.append(what)

    def close(self) -> None:
        """Leave the group, unless it has."""
        if not self.closed:
            self.closed = True
            self.client.close()

    def turn(self, timeout: float = 0.05) -> None:
        """Poll once, and note what comes."""
        message = self.client.poll(timeout)
        if message is None:
            return
        if message.error() is None:
            self.taken.append(message)
        else:
            self.told.append(message.error().name())


class Groups(Protocol):
    """A cluster with a topic of two partitions, and a group on it."""

    first: TopicPartition
    second: TopicPartition

    def join(self, instance: str = "") -> Peer:
        """Return a member that joins, a static one if it has an instance."""

    def write(self, partition: TopicPartition, count: int) -> None:
        """Write records."""

    def rest(self, seconds: float) -> None:
        """Let time pass in which nobody is polled."""

    def throw_out(self, peer: Peer) -> None:
        """Take a member out of the group without asking it."""

    def age(self, peer: Peer) -> None:
        """See to it that the member's next commit is refused for an old generation."""

    def now(self) -> float:
        """Return the seconds of the world's clock."""

    def close(self) -> None:
        """Close all clients."""


class SimulatedGroups:
    """In the simulation."""

    def __init__(
        self,
        protocol: str,
        *,
        impatient: bool = False,
        hasty: bool = False,
        patient: bool = False,  # it is, at default
    ) -> None:
        del patient
        self.timeline = Timeline()
        patience: dict[str, Any] = {"request_timeout": 2.0 if hasty else 60.0}
        if impatient:
            patience |= {"session_timeout": 1.0, "max_poll_interval": 1.0}
        settings = GroupSettings(protocol=protocol, heartbeat=0.2, **patience)
        history = History(self.timeline)
        self.cluster = SimCluster(self.timeline, Chance(1), history, {"orders": 2}, settings)
        self.process = SimulatedProcess(self.timeline)
        self.first, self.second = (TopicPartition("orders", number) for number in (0, 1))
        self.peers: list[Peer] = []

    def join(self, instance: str = "") -> Peer:
        peer = Peer()
        client = SimClient(
            self.cluster, self.process, ["orders"], peer.answers.append, len(self.peers) + 1
        )
        client.membership.instance = instance
        self.peers.append(peer)
        peer.client = client
        peer.join()
        return peer

    def write(self, partition: TopicPartition, count: int) -> None:
        self.cluster.append(partition, [b"key"] * count)

    def rest(self, seconds: float) -> None:
        self.process.wait(seconds)

    def throw_out(self, peer: Peer) -> None:
        assert isinstance(peer.client, SimClient)
        self.cluster.throw_out(peer.client)

    def age(self, peer: Peer) -> None:
        assert isinstance(peer.client, SimClient)
        peer.client.membership.generation -= 1

    def now(self) -> float:
        return self.timeline.now

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


class RealGroups:
    """On a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        protocol: str,
        *,
        impatient: bool = False,
        hasty: bool = False,
        patient: bool = False,
    ) -> None:
        cluster.create_topic(topic, 2)
        self.cluster = cluster
        self.group = group_name()
        self.conf = group_conf(cluster, self.group, protocol, enable_auto_commit=False)
        if hasty:
            self.conf["socket.timeout.ms"] = 2_000
        if patient:
            self.conf["session.timeout.ms"] = 6_000
        if impatient:
            self.conf["max.poll.interval.ms"] = 1_500
            if protocol != "kip-848":
                self.conf["session.timeout.ms"] = 1_500
        self.first, self.second = (TopicPartition(topic, number) for number in (0, 1))
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        self.peers: list[Peer] = []

    def join(self, instance: str = "") -> Peer:
        peer = Peer()
        conf = self.conf | ({"group.instance.id": instance} if instance else {})
        peer.client = KafkaClient(conf, [self.first.topic], peer.answers.append)
        self.peers.append(peer)
        peer.join()
        return peer

    def write(self, partition: TopicPartition, count: int) -> None:
        for _ in range(count):
            self.producer.produce(partition.topic, b"value", b"key", partition.partition)
        assert self.producer.flush(60) == 0

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.producer.poll(0.05)

    def throw_out(self, peer: Peer) -> None:
        assert isinstance(peer.client, KafkaClient)
        throw_out(self.cluster.bootstrap, self.group, peer.client.consumer.memberid() or "")

    def age(self, peer: Peer) -> None:
        assert isinstance(self.cluster, EmbeddedCluster)
        self.cluster.fail_next("OffsetCommit", "ILLEGAL_GENERATION")

    def now(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


Make = Callable[..., Groups]


@pytest.fixture
def make(kind: str, topic: str, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Make the group under test."""
    made: list[Groups] = []

    def groups(protocol: str, **options: Any) -> Groups:
        side: Groups
        if kind == "simulated":
            side = SimulatedGroups(protocol, **options)
        else:
            cluster = request.getfixturevalue(f"{kind}_cluster")
            side = RealGroups(cluster, topic, protocol, **options)
        made.append(side)
        return side

    yield groups
    for side in made:
        side.close()


def over(*kinds: str, protocols: tuple[str, ...] = PROTOCOLS) -> pytest.MarkDecorator:
    """Run the test over these clients and protocols.

    An embedded cluster has no KIP-848, may refuse what is committed in a revoke, and begins a
    rebalance for a static member too that comes back.
    """
    cases = [
        pytest.param(kind, protocol, id=f"{kind}-{protocol}")
        for kind in kinds
        for protocol in protocols
        if (kind, protocol) != ("embedded", "kip-848")
    ]
    return pytest.mark.parametrize(("kind", "protocol"), cases)


def turns(side: Groups, over: Callable[[], bool], *peers: Peer) -> None:
    """Poll them in turns until that is so."""
    deadline = side.now() + PATIENCE
    while not over():
        assert side.now() < deadline, [peer.told for peer in peers]
        for peer in peers:
            peer.turn(0.02)


@over("simulated", "embedded", "real")
def test_callbacks_run_inside_a_poll_and_do_not_queue_up_behind_the_backlog(
    make: Make, protocol: str
) -> None:
    side = make(protocol)
    for partition in (side.first, side.second):
        side.write(partition, 2_000)
    first = side.join()
    turns(side, lambda: len(first.held) == 2 and bool(first.taken), first)
    second = side.join()
    for _ in range(12):
        second.turn(0.1)
    assert first.told == ["assigned"], "nobody has polled it for a second"
    before = len(first.taken)
    turns(side, lambda: "revoked" in first.told, first, second)
    assert len(first.taken) - before < 500
    turns(side, lambda: len(first.held) == len(second.held) == 1, first, second)


@over("simulated", "real")
def test_a_commit_inside_a_revoke_lands_and_the_partitions_are_gone_behind_it(
    make: Make, protocol: str
) -> None:
    side = make(protocol)
    for partition in (side.first, side.second):
        side.write(partition, 3)
    first = side.join()
    turns(side, lambda: len(first.taken) == 6, first)
    revoked: list[TopicPartition] = []

    def commit(partitions: list[TopicPartition]) -> None:
        assert sorted(first.client.positions()) == [side.first, side.second]
        entries = dict.fromkeys(partitions, CommitEntry(3, "text"))
        assert first.client.commit(Commit(entries)) is None
        assert not first.answers, "it is told in a later poll"
        revoked.extend(partitions)

    first.on_revoke = commit
    second = side.join()
    turns(side, lambda: len(first.held) == len(second.held) == 1, first, second)
    turns(side, lambda: bool(first.answers), first, second)
    assert [each.result for each in first.answers] == [CommitResult.ACCEPTED]
    found = second.client.committed(revoked, 30.0)
    assert {each: answer[:2] for each, answer in found.items()} == dict.fromkeys(
        revoked, (3, "text")
    )
    assert second.held[0] not in first.client.positions()


@over("simulated", "embedded", "real", protocols=("cooperative",))
def test_nothing_is_fetched_for_what_stays_until_a_revoke_callback_returns(
    make: Make, protocol: str
) -> None:
    # Where the machine is busy, a second and a half may pass without a heartbeat.
    side = make(protocol, patient=True)
    for partition in (side.first, side.second):
        side.write(partition, 3)
    first = side.join()
    turns(side, lambda: len(first.taken) == 6, first)
    ends: list[int] = []

    def wait(partitions: list[TopicPartition]) -> None:
        (kept,) = {side.first, side.second} - set(partitions)
        side.rest(0.8)  # for what was asked before
        side.write(kept, 2)
        side.rest(1.0)
        ends.append(first.client.log_ends()[kept])

    first.on_revoke = wait
    second = side.join()
    turns(side, lambda: len(first.held) == len(second.held) == 1, first, second)
    assert ends == [3]
    turns(side, lambda: len(first.taken) == 8, first, second)


@over("simulated", "real")
def test_max_poll_exceeded_arrives_as_a_message_before_on_lost(make: Make, protocol: str) -> None:
    side = make(protocol, impatient=True)
    first = side.join()
    turns(side, lambda: len(first.held) == 2, first)
    side.rest(3.5)
    turns(side, lambda: first.told.count("assigned") == 2, first)
    assert first.told == ["assigned", "_MAX_POLL_EXCEEDED", "lost", "assigned"]


@over("simulated", "real")
def test_a_member_that_was_thrown_out_has_lost_all_and_its_commit_is_refused(
    make: Make, protocol: str
) -> None:
    side = make(protocol)
    side.write(side.first, 3)
    first = side.join()
    turns(side, lambda: len(first.taken) == 3, first)
    side.throw_out(first)
    first.client.commit(Commit({side.first: CommitEntry(3, "")}))
    turns(side, lambda: first.told[-2:] == ["lost", "assigned"], first)
    turns(side, lambda: bool(first.answers), first)
    assert [each.result for each in first.answers] == [CommitResult.LOST]
    assert first.client.committed([side.first], 30.0)[side.first].position is None


@over("simulated", "embedded", protocols=("eager", "cooperative"))
def test_a_commit_of_an_old_generation_costs_all_and_the_member_joins_again(
    make: Make, protocol: str
) -> None:
    side = make(protocol)
    side.write(side.first, 3)
    first = side.join()
    turns(side, lambda: len(first.taken) == 3, first)
    side.age(first)
    first.client.commit(Commit({side.first: CommitEntry(3, "")}))
    turns(side, lambda: len(first.told) == 3 and bool(first.answers), first)
    assert first.told == ["assigned", "lost", "assigned"]
    assert [each.result for each in first.answers] == [CommitResult.LOST]


def answer_within(side: Groups, seconds: float, member: Peer, *peers: Peer) -> CommitResult | None:
    """Poll them until the member has the answer to its one commit; None when that takes longer."""
    until = side.now() + seconds
    while not member.answers and side.now() < until:
        for peer in (member, *peers):
            peer.turn(0.02)
    return member.answers.pop().result if member.answers else None


def held_up(side: Groups) -> tuple[Peer, Peer, list[Peer], Commit]:
    """Return a member with a commit that waits, who holds it up when not polled, and the others.

    And that commit, of the partition that the first has. It waits behind the first one's JoinGroup,
    which is answered when all have joined; and the second does not join while it is to be told of
    the round before. Nor does it give anything up: the others get nothing.
    """
    side.write(side.first, 3)
    side.write(side.second, 3)
    first, second = side.join(), side.join()
    turns(side, lambda: len(first.held) == len(second.held) == 1, first, second)
    commit = Commit({first.held[0]: CommitEntry(2, "text")})
    seen = first.rounds
    third = side.join()
    turns(side, lambda: first.rounds > seen and third.rounds > 0, first, third)
    others = [third, side.join()]
    first.client.commit(commit)
    deadline = side.now() + PATIENCE
    while (result := answer_within(side, 1.0, first, *others)) is not None:
        assert result is CommitResult.ACCEPTED
        assert side.now() < deadline, "the second has joined"
        first.client.commit(commit)
    return first, second, others, commit


@over("simulated", "real", protocols=("cooperative",))
def test_a_commit_that_a_round_has_made_old_is_refused_and_costs_nothing_else(
    make: Make, protocol: str
) -> None:
    """It was sent behind a JoinGroup, which is answered first, and with a new generation."""
    side = make(protocol)
    first, second, others, commit = held_up(side)
    held = list(first.held)
    assert answer_within(side, PATIENCE, first, second, *others) is CommitResult.LOST
    turns(side, lambda: others[-1].rounds > 0, first, second, *others)
    assert "lost" not in first.told
    assert first.held == held
    first.client.commit(commit)
    assert answer_within(side, PATIENCE, first, second, *others) is CommitResult.ACCEPTED


@over("simulated", "real", protocols=("cooperative",))
def test_a_commit_that_waits_too_long_behind_a_join_is_sent_again_and_overtakes_it(
    make: Make, protocol: str
) -> None:
    """The client has broken the connection for it (``socket.timeout.ms``)."""
    side = make(protocol, hasty=True)
    first, second, others, _ = held_up(side)
    # On a busy machine the second sending may wait too long as well.
    assert answer_within(side, 20.0, first, *others) in (CommitResult.ACCEPTED, CommitResult.RETRY)
    assert others[-1].rounds == 0, "the round is not over"
    assert "lost" not in first.told
    turns(side, lambda: others[-1].rounds > 0, first, second, *others)


@over("simulated", "embedded", "real")
def test_a_member_that_closes_leaves_its_group_at_once_with_partitions_or_without(
    make: Make, kind: str, protocol: str
) -> None:
    """Three members, two partitions; the session would last for longer than this waits.

    An embedded cluster starts the next generation without a member that has not joined anew within
    0.1 s, and tells it that what it had is lost.
    """
    side = make(protocol)
    peers = [side.join() for _ in range(3)]
    turns(side, lambda: sorted(len(each.held) for each in peers) == [0, 1, 1], *peers)
    idle, one, other = sorted(peers, key=lambda each: len(each.held))
    one.close()
    idle.close()
    turns(side, lambda: len(other.held) == 2, other)
    assert one.told[-1] == "revoked"
    assert kind == "embedded" or "lost" not in other.told


@over("simulated", "real")
def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_else_hears_of_it(
    make: Make, protocol: str
) -> None:
    side = make(protocol)
    first, second = side.join("a"), side.join("b")
    turns(side, lambda: len(first.held) == len(second.held) == 1, first, second)
    had, others, known = [*first.held], [*second.held], [*second.told]
    first.close()
    assert first.told[-1] == "revoked", "it commits, as one does that leaves"
    again = side.join("a")
    turns(side, lambda: again.held == had, again, second)
    for _ in range(10):
        second.turn()
    assert again.told == ["assigned"]
    assert (second.held, second.told) == (others, known)
