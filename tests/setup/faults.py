"""What each kind of fault costs by itself, in made-up time: what `make faults` measures and writes.

The simulation draws from many kinds of faults at once. Here each seed has faults of one kind only,
every two seconds, while three members work; then they stop, every member is started anew, and
it is looked at how long it takes until all is settled and committed. The table stands in
docs/internals/reliability.md (:mod:`tests.setup.page_tables`).
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers import every_checker
from kafka_keyshared.lab.simulator.checkers.no_repeats import NoRepeats
from kafka_keyshared.lab.simulator.disturbance_rates import RATES
from kafka_keyshared.lab.simulator.disturbances import Disturbances
from kafka_keyshared.lab.simulator.handlers import Habits
from kafka_keyshared.lab.simulator.keys import DerivedKey
from kafka_keyshared.lab.simulator.member import MemberPlan
from kafka_keyshared.lab.simulator.plan_model import PROTOCOLS, Plan
from kafka_keyshared.lab.simulator.publisher import LetterFaults
from kafka_keyshared.lab.simulator.run import HEALED_WITHIN, TURN, all_done
from kafka_keyshared.lab.simulator.world import World
from tests.setup.page_tables import filled, others, table, written

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "reliability.md"
TABLE = "faults"
NONE = "none"

OF_KEYS = frozenset({"keys could not be read", "a schema was unknown"})
"""Faults that only keys of a function have."""

SEEDS = 3
SECONDS = 30.0
EVERY = 2.0
"""Made-up seconds between two faults, on an average."""

WARM_UP = 10.0
"""Made-up seconds with faults, and before: until then the group has come together."""

LOSS = ("I1 no loss",)
ORDER = ("I3 order",)
OVERLAP = ("I2 serial", "I6 one owner")
HEAD = ("fault", "times", "starts", "lost", "out of order", "overlaps", "repeats", "well after")


def kinds() -> list[str]:
    """Return the kinds of faults that there are, as the simulation names them."""
    return list(RATES)


def plan_of(seed: int, what: str) -> Plan:
    """Return the plan of a seed: the same for each, but for the protocol of the group.

    And for the routing and the keys, where only one kind of them can be disturbed so.
    """
    names = worker_names(4)
    quarters = {name: [(at * 16_384, at * 16_384 + 16_383)] for at, name in enumerate(names)}
    by_ranges = RoutingSettings("sticky", quarters)
    subscription = SubscriptionSettings(
        workers=names,
        dlq=True,
        on_exhausted="dead_letter",
        routing=by_ranges if what == "a range was assigned" else RoutingSettings(),
        key_of=DerivedKey(header=False, groups=40) if what in OF_KEYS else None,
    )
    return Plan(
        protocol=PROTOCOLS[seed % len(PROTOCOLS)],
        topics=1,
        partitions=6,
        members=3,
        keys=40,
        null_share=0.1,
        backlog=1_000_000,
        burst=5,
        burst_every=0.05,
        metadata_max=4_096,
        tells_limit=True,
        tells_ids=True,
        disturbances={} if what == NONE else {what: RATES[what] / EVERY},
        member=MemberPlan(subscriptions=(subscription,)),
        habits=Habits(failing=0.02, poisoned=0.001, hanging=0.0, typical=0.005),
        letters=LetterFaults().healed(),
        value_bytes=5,
    )


@dataclass
class Cost:
    """What a kind of fault has cost over all its seeds. ``well`` are made-up seconds."""

    times: int = 0
    starts: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    well: list[float] = field(default_factory=list)

    def row(self, what: str) -> list[str]:
        """Return its row."""
        found = [sum(self.broken[each] for each in these) for these in (LOSS, ORDER, OVERLAP)]
        others = self.broken.total() - sum(found)
        if others:
            raise SystemExit(f"{what}: {self.broken}")
        well = f"{statistics.median(self.well):.1f} s, at most {max(self.well):.1f} s"
        numbers = (self.times, self.starts, *found, self.repeats)
        return [what, *(f"{each:,}" for each in numbers), well]


def run_one(what: str, seed: int, seconds: float, cost: Cost) -> None:
    """Run one seed with faults of one kind, and add what it has cost."""
    world = World(seed, plan_of(seed, what))
    member = world.plan.member
    checkers = every_checker(
        world.history,
        member.subscriptions,
        revoke_deadline=member.revoke_deadline,
        bound=HEALED_WITHIN,
        free_since=world.free_since,
        go_on=True,
    )
    books = checkers[0].books
    starts = [0]
    world.history.listen(happened.Began, lambda _told: starts.__setitem__(0, starts[0] + 1))
    world.start()
    timeline = world.timeline
    timeline.run(timeline.now + WARM_UP)
    Disturbances(world).begin()
    timeline.run(timeline.now + seconds)
    world.heal()
    healed = timeline.now
    while not all_done(world.cluster, books) and timeline.now < healed + HEALED_WITHIN:
        timeline.run(timeline.now + TURN)
    cost.well.append(timeline.now - healed)
    world.finishing = True
    for each in world.present():
        each.stop()
    while world.present() and timeline.now < healed + 2 * HEALED_WITHIN:
        timeline.run(timeline.now + TURN)
    world.history.tell(happened.Finished())
    cost.times += world.reached[what]
    cost.starts += starts[0]
    for checker in checkers:
        cost.broken[checker.invariant] += len(checker.violations)
        if isinstance(checker, NoRepeats):
            cost.repeats += checker.repeats.total()


def measured(seeds: int = SEEDS, seconds: float = SECONDS) -> dict[str, Cost]:
    """Return what each kind of fault has cost, none at all first."""
    costs: dict[str, Cost] = {}
    for what in (NONE, *kinds()):
        cost = costs[what] = Cost()
        for seed in range(1, seeds + 1):
            run_one(what, seed, seconds, cost)
        print("  ".join(cost.row(what)), flush=True)
    return costs


def rows_of(page: str) -> list[list[str]]:
    """Return the rows that the page has."""
    lines = written(page, TABLE).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def updated(page: str, made: str) -> str:
    """Return the page with that table."""
    return filled(PAGE.name, page, {**others(page, TABLE), TABLE: lambda: made})


def main(arguments: Sequence[str]) -> int:
    """Measure, and write the table; see the module."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args(arguments)
    logging.getLogger("kafka_keyshared").setLevel(logging.CRITICAL + 1)
    costs = measured(asked.seeds, asked.seconds)
    made = table(HEAD, [cost.row(what) for what, cost in costs.items()])
    PAGE.write_text(updated(PAGE.read_text("utf-8"), made), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
