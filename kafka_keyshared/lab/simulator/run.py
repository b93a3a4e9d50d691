"""Run of one seed, from its start to its verdict.

It begins with the safety phase: things go wrong, and no event may break the contract. Then faults
stop, and everything must be settled and committed within bounded time. TigerBeetle's VOPR runs its
simulations in these two phases.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.lab.simulator import history as was
from kafka_keyshared.lab.simulator.checkers import every_checker
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Violation
from kafka_keyshared.lab.simulator.checkers.outages import OutagesChecker
from kafka_keyshared.lab.simulator.cluster import SimulatedCluster
from kafka_keyshared.lab.simulator.coverage import Sometimes
from kafka_keyshared.lab.simulator.disturbances import Disturbances
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from kafka_keyshared.lab.simulator.transition_coverage import counted_edges
from kafka_keyshared.lab.simulator.world import World
from kafka_keyshared.logs import only_from

CALM = 0.02
"""Share of failures up to which the members' reports of an outage are checked."""

TURN = 0.05
"""Simulated seconds between two checks of a run's progress."""

HEALED_WITHIN = 900.0
"""Simulated seconds in which everything is settled and committed once faults have stopped."""


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """Result of a seed.

    ``violations`` are descriptions. ``steps`` are rounds of instances, ``events`` those of the
    cores, ``happenings`` those that the checkers got. ``digest`` sums up the latter, if it was
    requested. ``seconds`` are processor time, ``simulated`` is simulated time. ``sometimes`` counts
    the rare states that were reached.
    """

    seed: int
    violations: list[str]
    steps: int
    events: int
    happenings: int
    digest: str
    seconds: float
    simulated: float
    sometimes: Counter[str] = field(default_factory=Counter)


def run_seed(
    seed: int, steps: int, plan: Plan | None = None, *, summed: bool = True
) -> SeedOutcome:
    """Run a seed for ``steps`` rounds of its members, heal it, and return the result.

    Without a ``plan`` it is the seed's own; ``summed``: with a digest.
    """
    world = World(seed, plan or plan_of(Chance(seed)), summed=summed)
    member = world.plan.member
    checkers = every_checker(
        world.history,
        member.subscriptions,
        revoke_deadline=member.revoke_deadline,
        bound=HEALED_WITHIN,
        # With a small set budget, records may be only this far ahead of the position.
        span=10_000 if member.set_budget >= SET_BUDGET else 50,
        free_since=world.free_since,
        receives=not member.on_a_loop,
        authorization_timeout=member.authorization_timeout,
        careful=True,
    )
    books = checkers[0].books
    checkers.append(
        OutagesChecker(
            world.history,
            member.subscriptions,
            books,
            named=world.names_an_outage,
            calm=world.plan.habits.failing <= CALM,
            awake_since=world.awake_since,
        )
    )
    rare = Sometimes(world.history, books)
    began, first = time.process_time(), world.timeline.now
    failed: list[str] = []
    with only_from(logging.CRITICAL + 1), counted_edges() as edges:
        try:
            _disturb(world, steps)
            _heal(world, books)
        except Exception as error:  # noqa: BLE001 - any failure of an instance is a finding
            # A violation is recorded where it is found. Other code may have swallowed an earlier
            # one.
            if not isinstance(error, Violation):
                failed.append(_told(error))
        finally:
            for each in world.members:  # some are left if the run was broken off
                each.pool.ended = True
    found = sorted((each for checker in checkers for each in checker.violations), key=_when)
    return SeedOutcome(
        seed=seed,
        violations=[*map(str, found), *failed],
        steps=world.turns,
        events=world.events,
        happenings=world.history.count,
        digest=world.history.digest(),
        seconds=time.process_time() - began,
        simulated=world.timeline.now - first,
        sometimes=Counter({**world.reached, **rare.counts, **edges}),
    )


def _when(violation: Violation) -> float:
    return violation.time


def _told(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {at.filename.rpartition('/')[2]}:{at.lineno}: {error}"


def _disturb(world: World, steps: int) -> None:
    """Run the safety phase."""
    world.start()
    Disturbances(world).begin()
    timeline = world.timeline
    while world.turns < steps:
        timeline.run(timeline.now + TURN)


def _heal(world: World, books: Books) -> None:
    """End all faults. From here on everything has to finish."""
    timeline = world.timeline
    world.heal()
    deadline = timeline.now + HEALED_WITHIN
    while not all_done(world.cluster, books) and timeline.now <= deadline:
        timeline.run(timeline.now + TURN)
    world.finishing = True
    for member in world.present():
        member.stop()
    while world.present() and timeline.now <= deadline + HEALED_WITHIN:
        timeline.run(timeline.now + TURN)
    world.history.tell(was.Finished())


def all_done(cluster: SimulatedCluster, books: Books) -> bool:
    """Return whether everything is settled and committed.

    It is not while a transaction is open: its end may bring more records.
    """
    if any(log.has_open_transaction for logs in cluster.topics.values() for log in logs):
        return False
    for sub, count in books.unfinished.items():
        if count and any(True for log in books.logs.values() for _ in books.owed(log, sub)):
            return False
    for partition, log in books.logs.items():
        last = log.last_to_read()
        if last is not None and books.tracked and books.stored.get(partition, (0, ""))[0] <= last:
            return False
    return True
