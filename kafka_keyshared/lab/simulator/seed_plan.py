"""Plan of a run, as one seed draws it.

It has the topics, the group, the members' settings and the disturbances. Each choice is drawn by
its name, from a generator of its own. One more choice or disturbance does not change the meaning of
a seed. A new choice is one line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import NEED_DLQ, PoisonPolicy, RetryPolicy
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import OnEvict, SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator.disturbance_rates import ON_REQUEST, RATES
from kafka_keyshared.lab.simulator.handlers import Habits
from kafka_keyshared.lab.simulator.keys import keyed
from kafka_keyshared.lab.simulator.member import OF_THE_PACKAGE, MemberPlan
from kafka_keyshared.lab.simulator.plan_model import PROTOCOLS, Draw, Plan, T
from kafka_keyshared.lab.simulator.pool import PoolHabits
from kafka_keyshared.lab.simulator.publisher import LetterFaults
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import routed
from kafka_keyshared.lab.simulator.scenarios import emphasised, with_full_chunks
from kafka_keyshared.lab.simulator.stepped import PoolKind

SCOPES: tuple[Literal["topic", "partition", "subscription"], ...] = (
    *("topic", "topic"),
    *("partition", "subscription"),
)
COMMITS = (CommitPolicy(), CommitPolicy(0.1, 0.0, 0.0), CommitPolicy(5.0, 0.5, 0.2))
KINDS: tuple[PoolKind, ...] = ("thread", "thread", "instance", "process", "task", "lease")
EVICTIONS: tuple[OnEvict, ...] = ("redeliver", "ack")
POISON: tuple[PoisonPolicy, ...] = ("drop", "dead_letter", "block", "block_and_dlq", "divert")
AUTHORIZATION_TIMEOUTS = (None, 300.0, 300.0, 1.0, 0.5)
LIMITS = (None, None, DlqLimit(0.5, 20, 5), DlqLimit(0.5, 100, 20))

POOLED = 0.6
"""The share of the subscriptions whose workers share records, where they may."""

OWN_KEYS: tuple[PoolKind, ...] = ("instance", "lease")
"""Workers that have their own keys: they may keep state, or are other programs."""

UNRELIABLE = 0.1
"""The share of the subscriptions without reliability."""

FAVOURED = 0.3
"""The share of the disturbances that a seed has.

A few frequent ones meet each other, and the states that they make, far more often than all of them
at low rates. This is called swarm testing (Groce and others).
"""


def plan_of(chance: Chance) -> Plan:
    """Draw a run. It is small, so that its bounds are reached, and each one is different."""
    draw = Draw(chance)
    plain = _with_own_keys(_plain(draw))
    found = emphasised(plain, draw)
    # The states of an emphasis need workers that leave, are evicted, or hang.
    if found is not plain:
        return found
    return with_full_chunks(_of_its_own(_on_a_loop(found, draw), draw), draw)


def _with_own_keys(plan: Plan) -> Plan:
    """Return the plan without workers that share keys, if its kind of pool does not allow that."""
    member = plan.member
    if member.pool.kind not in OWN_KEYS:
        return plan
    subs = tuple(replace(each, pooled=False) for each in member.subscriptions)
    return replace(plan, member=replace(member, subscriptions=subs))


def _of_its_own(plan: Plan, draw: Draw) -> Plan:
    """Return the plan with the package's own processes or members, in most plans of these kinds."""
    member, kind = plan.member, plan.member.pool.kind
    tracked = all(each.at_least_once for each in member.subscriptions)
    if kind not in OF_THE_PACKAGE or not tracked or not draw.happens("its own pool", 0.8):
        return plan
    subs = [replace(each, individually=False) for each in member.subscriptions]
    if kind == "lease":  # pull members have one subscription, without state
        subs = [replace(subs[0], individually=True, one_in_flight_per_key=True, hands_over=False)]
    pool = replace(
        member.pool,
        own=True,
        wakes=draw.one("its own wakes", (0.0001, 0.0001, 0.02)),
        at_once=draw.one("its own at once", (1, 5, 50)),
    )
    return replace(plan, member=replace(member, subscriptions=tuple(subs), pool=pool))


def _on_a_loop(plan: Plan, draw: Draw) -> Plan:
    """Return the plan with coroutines as workers, in some plans that can have them."""
    member = plan.member
    tracked = all(each.at_least_once for each in member.subscriptions)
    if not tracked or not draw.happens("coroutines on a loop", 0.3):
        return plan
    most = draw.one("records of a slice", (1, 3, 500))
    subs = (
        replace(
            each,
            individually=True,
            slice_records=1 if each.ack_timeout is not None else most,
        )
        for each in member.subscriptions
    )
    pool = replace(
        member.pool,
        kind="task",
        loop=True,
        wakes=draw.one("coroutines wake", (0.0001, 0.0001, 0.02)),
        at_once=draw.one("coroutines at once", (1, 5, 50)),
    )
    return replace(plan, member=replace(member, subscriptions=tuple(subs), pool=pool))


def _plain(draw: Draw) -> Plan:
    """Draw each choice on its own."""
    one = draw.one
    names = ("default", "audit")[: one("subscriptions", (1, 1, 1, 2))]
    return Plan(
        protocol=one("protocol", PROTOCOLS),
        topics=one("topics", (1, 1, 2)),
        partitions=one("partitions", range(1, 7)),
        members=one("members", (1, 2, 2, 3)),
        keys=one("keys", (1, 5, 40, 1_000)),
        null_share=one("null_share", (0.0, 0.1, 0.5)),
        backlog=one("backlog", (20, 200, 1_000)),
        burst=one("burst", (4, 40, 400)),
        burst_every=one("burst_every", (0.003, 0.03, 0.3)),
        metadata_max=one("metadata_max", (4_096, 4_096, 4_096, 300, 160, 100, 60, 24)),
        tells_limit=draw.happens("tells its limit", 0.6),
        tells_ids=draw.happens("tells ids", 0.8),
        disturbances={
            name: one(f"strength of {name}", (1.0, 3.0))
            for name in RATES
            if name not in ON_REQUEST and draw.happens(name, FAVOURED)
        },
        member=MemberPlan(
            subscriptions=tuple(_subscription(draw, name) for name in names),
            commit=one("commit", COMMITS),
            revoke_deadline=one("revoke_deadline", (0.1, 1.0, 5.0)),
            stop_timeout=one("stop_timeout", (0.5, 5.0, 30.0)),
            authorization_timeout=one("authorization_timeout", AUTHORIZATION_TIMEOUTS),
            set_budget=one("set_budget", (SET_BUDGET, SET_BUDGET, 300)),
            pool=PoolHabits(
                later=one("later", (0.0, 0.3)),
                kind=one("kind", KINDS),
                release_fails=one("release_fails", (0.0, 0.3)),
            ),
            rests=one("rests", (0.0, 0.02, 0.1)),
        ),
        habits=Habits(
            failing=one("failing", (0.0, 0.02, 0.2, 0.6)),
            poisoned=one("poisoned", (0.0, 0.003, 0.02)),
            hanging=one("hanging", (0.0, 0.0005, 0.003)),
            stuck=one("stuck", (0.0, 0.0, 0.003, 0.02)),
            hang=one("hang", (2.0, 40.0)),
            at_once=one("at_once", (0.9, 0.3, 0.0)),
            typical=one("typical", (0.001, 0.02, 0.2)),
        ),
        letters=LetterFaults(
            refused=one("refused letters", (0.0, 0.2)), unheard=one("unheard letters", (0.05, 0.4))
        ),
        value_bytes=one("value_bytes", (5, 5, 1_000)),
        static=draw.happens("static", 0.25),
    )


def without_reliability(settings: SubscriptionSettings) -> SubscriptionSettings:
    """Return the settings without features that need tracking, or that would have to wait."""
    waits = settings.routing.mode in ("sticky", "exclusive") or settings.routing.filters
    return replace(
        settings,
        delivery="at-most-once",
        routing=RoutingSettings() if waits else settings.routing,
        retry=RetryPolicy(),
        on_exhausted="block",
        dlq=False,
        dlq_limit=None,
        undecodable=None,
        one_in_flight_per_key=False,
        individually=False,
        ack_timeout=None,
        new_workers_wait=False,
        hands_over=False,
        on_evict="redeliver",
    )


def _subscription(draw: Draw, name: str) -> SubscriptionSettings:
    def one(what: str, among: Sequence[T]) -> T:
        return draw.one(f"{what} of {name}", among)

    # A draw's name seeds its generator. Some names differ from their setting, so that each seed
    # keeps its plan.
    on_exhausted = one("poison", POISON)
    settings = SubscriptionSettings(
        name=name,
        workers=worker_names(one("workers", range(1, 9))),
        order_scope=one("order_scope", SCOPES),
        retry=RetryPolicy(
            attempts=one("attempts", range(1, 5)), backoff=one("backoff", (0.0, 0.1, 1.0))
        ),
        on_exhausted=on_exhausted,
        dlq=on_exhausted in NEED_DLQ or one("dlq", (True, False)),
        window_records=one("window_records", (6, 20, 200, 2_000)),
        prefetch_records=one("leases_per_worker", (1, 5, 50, 1_000)),
        one_in_flight_per_key=one("max_leases_per_key", (False, False, True)),
        unblocking_interval=one("unblocking_interval", (0.0, 0.0, 0.05)),
        new_workers_wait=draw.happens(f"new_workers_wait of {name}", 0.25),
        hands_over=one("hands_over", (False, False, True)),
        window_bytes=one("window_bytes", (64 << 20, 64 << 20, 6_000, 60_000)),
        prefetch_bytes=one("lease_bytes_per_worker", (None, None, 500, 3_000)),
        individually=draw.happens(f"individually of {name}", 0.25),
        call_records=one("call_records", (1, 1, 8)),
        ack_timeout=one("ack_timeout", (None, 1.0, 5.0)),
        on_evict=one("on_evict", EVICTIONS),
        pooled=draw.happens(f"pooled {name}", POOLED),
    )
    limit = one("dlq_limit", LIMITS)
    settings = replace(settings, dlq_limit=limit if settings.dlq else None)
    settings = routed(settings, draw.generator(f"routing of {name}"))
    if draw.happens(f"unreliable {name}", UNRELIABLE):
        settings = without_reliability(settings)
    return keyed(settings, draw.generator(f"keys of {name}"))
