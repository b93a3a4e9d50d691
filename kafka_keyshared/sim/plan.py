"""What one seed makes of a run: topics, group, members' settings, and what may happen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from kafka_keyshared.core.commit import CommitPolicy
from kafka_keyshared.core.metadata import SET_BUDGET
from kafka_keyshared.core.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.settings import SubscriptionSettings, worker_names
from kafka_keyshared.sim.handlers import Habits
from kafka_keyshared.sim.member import MemberPlan
from kafka_keyshared.sim.pool import PoolHabits

Protocol = Literal["eager", "cooperative", "kip-848"]
PROTOCOLS: tuple[Protocol, ...] = ("eager", "cooperative", "kip-848")
SCOPES: tuple[Literal["topic", "partition", "subscription"], ...] = (
    *("topic", "topic"),
    *("partition", "subscription"),
)
COMMITS = (CommitPolicy(), CommitPolicy(0.1, 0.0, 0.0), CommitPolicy(5.0, 0.5, 0.2))
POISON: tuple[PoisonPolicy, ...] = ("drop", "dead_letter", "block")


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. Times are in seconds; ``value_bytes`` is how large every value is."""

    protocol: Protocol
    topics: int
    partitions: int
    members: int
    keys: int
    null_share: float
    records: int
    burst: int
    burst_every: float
    fault_every: float
    member: MemberPlan
    habits: Habits
    value_bytes: int = 5


def plan_of(chance: Random) -> Plan:
    """Draw a run: small, so that its bounds are met, and each one different."""
    names = ("default", "audit")[: chance.choice((1, 1, 1, 2))]
    subscriptions = tuple(_subscription(chance, name) for name in names)
    fast = chance.random() < 0.5
    plan = Plan(
        protocol=chance.choice(PROTOCOLS),
        topics=chance.choice((1, 1, 2)),
        partitions=chance.randint(1, 6),
        members=chance.choice((1, 2, 2, 3)),
        keys=chance.choice((1, 5, 40, 1_000)),
        null_share=chance.choice((0.0, 0.1, 0.5)),
        records=chance.choice((1_000, 5_000, 20_000)),
        burst=chance.choice((4, 40, 400)),
        burst_every=chance.choice((0.003, 0.03, 0.3)),
        fault_every=chance.choice((0.3, 1.0, 3.0)),
        member=MemberPlan(
            subscriptions=subscriptions,
            commit=chance.choice(COMMITS),
            revoke_deadline=chance.choice((0.1, 1.0, 5.0)),
            stop_timeout=chance.choice((0.5, 5.0, 30.0)),
            set_budget=chance.choice((SET_BUDGET, SET_BUDGET, 300)),
            pool=PoolHabits(later=chance.choice((0.0, 0.3))),
        ),
        habits=Habits(
            failing=chance.choice((0.0, 0.02, 0.2)),
            poisoned=chance.choice((0.0, 0.003, 0.02)),
            hanging=chance.choice((0.0, 0.0005, 0.003)),
            hang=chance.choice((2.0, 40.0)),
            at_once=0.9 if fast else 0.3,
            typical=chance.choice((0.001, 0.02)),
        ),
    )
    # Drawn last, so that what was drawn before stays what a seed makes of it.
    subscriptions = tuple(_in_bytes(chance, each) for each in subscriptions)
    return replace(
        plan,
        member=replace(plan.member, subscriptions=subscriptions),
        value_bytes=chance.choice((5, 5, 1_000)),
    )


def _subscription(chance: Random, name: str) -> SubscriptionSettings:
    poison = chance.choice(POISON)
    return SubscriptionSettings(
        name=name,
        workers=worker_names(chance.randint(1, 8)),
        order_scope=chance.choice(SCOPES),
        retry=RetryPolicy(attempts=chance.randint(1, 4), backoff=chance.choice((0.0, 0.1, 1.0))),
        poison=poison,
        dlq=poison == "dead_letter" or chance.random() < 0.5,
        window_records=chance.choice((6, 20, 200, 2_000)),
        leases_per_worker=chance.choice((1, 5, 50, 1_000)),
        max_leases_per_key=chance.choice((None, None, 1)),
    )


def _in_bytes(chance: Random, settings: SubscriptionSettings) -> SubscriptionSettings:
    """Draw the bounds in bytes, and whether records settle one by one."""
    return replace(
        settings,
        window_bytes=chance.choice((64 << 20, 64 << 20, 6_000, 60_000)),
        lease_bytes_per_worker=chance.choice((None, None, 500, 3_000)),
        individually=chance.random() < 0.25,
    )
