"""Rights that come and go in a simulation: who waits, who goes on, and when a process ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.checker import Violation
from kafka_keyshared.lab.simulator.checkers.rights import FOR_RIGHTS, PatientWithRights
from kafka_keyshared.lab.simulator.member import MemberPlan
from kafka_keyshared.lab.simulator.member_events import RightsChanged
from kafka_keyshared.lab.simulator.plan_model import Protocol
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from kafka_keyshared.lab.simulator.world import World
from tests.simulation.told import Told
from tests.simulation.watched import settings

A, B = "topic-0", "topic-1"
ROUNDS: tuple[Protocol, ...] = ("eager", "cooperative")


class Watched:
    """A world in which nothing goes wrong but rights, with what became of it."""

    def __init__(self, protocol: Protocol, timeout: float | None = None) -> None:
        plan = plan_of(Chance(1))
        member = MemberPlan(rests=0.1, authorization_timeout=timeout)
        habits = replace(
            plan.habits, failing=0.0, poisoned=0.0, dropping=0.0, hanging=0.0, stuck=0.0
        )
        plan = replace(
            plan,
            protocol=protocol,
            topics=2,
            partitions=2,
            members=1,
            static=False,
            burst=4,
            burst_every=0.2,
            disturbances={},
            habits=habits,
            member=member,
            metadata_max=4_096,
        )
        self.world = World(1, plan, summed=False)
        self.delivered: Counter[str] = Counter()
        self.gone: list[happened.Gone] = []
        self.begun: Counter[tuple[object, int]] = Counter()
        history = self.world.history
        history.listen(happened.Delivered, self._delivered)
        history.listen(happened.Gone, self.gone.append)
        history.listen(happened.Began, self._began)
        self.world.start()
        self.run(3.0)
        assert self.delivered[A]
        assert self.delivered[B]

    def _delivered(self, told: happened.Delivered) -> None:
        self.delivered[told.partition.topic] += len(told.offsets)

    def _began(self, told: happened.Began) -> None:
        self.begun[told.partition, told.offset] += 1

    def run(self, seconds: float) -> Counter[str]:
        """Let time pass; return how much each topic has delivered meanwhile."""
        before = self.delivered.copy()
        self.world.timeline.run(self.world.timeline.now + seconds)
        return self.delivered - before

    def caught_up(self, topic: str) -> bool:
        """Whether nearly all of the topic is committed."""
        cluster = self.world.cluster
        return all(
            (stored := cluster.commits.stored.get(each)) is not None
            and cluster.log(each).end - (stored.position or 0) <= 40
            for each in cluster.partitions([topic])
        )


@pytest.mark.parametrize("protocol", [*ROUNDS, "kip-848"])
@pytest.mark.parametrize(("fetches", "commits"), [(True, True), (True, False), (False, True)])
def test_a_topic_without_its_right_waits_and_the_other_is_not_held_up(
    protocol: Protocol, fetches: bool, commits: bool
) -> None:
    watched = Watched(protocol)
    watched.world.cluster.rights.refuse(A, fetches=fetches, commits=commits)
    watched.run(1.0)  # what was fetched before
    meanwhile = watched.run(20.0)
    assert (meanwhile[A] == 0) is fetches
    assert meanwhile[B] > 50
    assert watched.caught_up(B)
    watched.world.cluster.rights.grant([A])
    assert watched.run(10.0)[A] > 20
    assert watched.caught_up(A)
    assert not watched.gone
    assert set(watched.begun.values()) == {1}, "nothing ran twice"


@pytest.mark.parametrize("protocol", ROUNDS)
@pytest.mark.parametrize("seconds", [3.0, 30.0])
def test_a_group_without_its_right_goes_on_when_it_is_back(
    protocol: Protocol, seconds: float
) -> None:
    """In less than a session nothing is lost; after it the member joins again."""
    watched = Watched(protocol)
    watched.world.cluster.rights.refuse_group()
    watched.run(seconds)
    watched.world.cluster.rights.grant_group()
    after = watched.run(30.0)
    assert after[A] > 20
    assert after[B] > 20
    assert watched.caught_up(A)
    assert watched.caught_up(B)
    assert not watched.gone
    assert set(watched.begun.values()) == {1}, "nothing ran twice"


def test_a_process_ends_when_all_is_refused_for_its_time_and_not_before() -> None:
    watched = Watched("eager", timeout=5.0)
    for topic in (A, B):
        watched.world.cluster.rights.refuse(topic, fetches=True, commits=True)
    watched.run(4.5)
    assert not watched.gone
    watched.run(10.0)
    (gone,) = watched.gone
    assert gone.how == "halted"
    assert gone.reason.startswith(FOR_RIGHTS)


def test_seeds_in_which_rights_come_and_go_break_nothing() -> None:
    reached: Counter[str] = Counter()
    for seed in range(4):
        plan = plan_of(Chance(seed))
        often = {"a right on a topic was away": 5.0, "the right on the group was away": 3.0}
        more = {"a member was stopped": 1.0, "a member joined": 1.0}
        plan = replace(plan, disturbances=often | more)
        outcome = run_seed(seed, 1_500, plan, summed=False)
        assert not outcome.violations
        reached += outcome.sometimes
    for state in ("fetch refused, then read on", "revoke while a right is missing"):
        assert reached[state] > 3, state


def test_a_process_that_gives_up_on_its_rights_too_soon_is_found() -> None:
    for waited, timeout in ((4.9, 5.0), (60.0, None)):
        told = Told()
        checker = PatientWithRights(told.history, [settings()], timeout=timeout)
        told.join(1)
        told.assign(1)
        told.tell(RightsChanged(("t",), (), group=False))
        told.later(waited)
        told.tell(happened.StopRequested(1))
        told.later(3.0)
        with pytest.raises(Violation):
            told.tell(happened.Gone(1, "halted", clean=False, reason=f"{FOR_RIGHTS} …"))
        assert len(checker.violations) == 1
    told = Told()
    PatientWithRights(told.history, [settings()], timeout=5.0)
    told.join(1)
    told.assign(1)
    told.tell(RightsChanged((), (), group=True))
    told.later(5.0)
    told.tell(happened.StopRequested(1))
    told.tell(happened.Gone(1, "halted", clean=False, reason=f"{FOR_RIGHTS} …"))
