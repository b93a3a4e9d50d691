"""Emphases of seeds: choices that must meet, drawn together.

A plan draws each choice on its own. A state that takes five of them is possible in one plan of
hundreds, and must then happen in that one. A seed with an emphasis has everything that such states
take, and enough work. Chance decides about the rest. A seed may have several, and many have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.routing.filters import ON_UNMATCHED
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator.plan_model import Draw, Plan
from kafka_keyshared.lab.simulator.routings import whole_ranges
from kafka_keyshared.lab.simulator.stepped import PoolKind

Change: TypeAlias = Callable[[SubscriptionSettings], SubscriptionSettings]


class Emphasis(NamedTuple):
    """The share of the plans that have it, and its change to a plan."""

    share: float
    plan: Callable[[Plan, Draw], Plan]


def emphasised(plan: Plan, draw: Draw) -> Plan:
    """Return the plan with the emphases that are drawn for it."""
    for name, emphasis in EMPHASES.items():
        if draw.happens(f"emphasis: {name}", emphasis.share):
            plan = emphasis.plan(_busy(plan), draw)
    return plan


def _busy(plan: Plan) -> Plan:
    """Return the plan with enough work on many keys, and with owners that wait for work."""
    plan = _each(
        plan,
        lambda sub: replace(
            sub,
            window_records=max(sub.window_records, 200),
            window_bytes=max(sub.window_bytes, 60_000),
            prefetch_records=max(sub.prefetch_records, 5),
        ),
    )
    return replace(
        plan,
        keys=max(plan.keys, 40),
        null_share=min(plan.null_share, 0.1),
        backlog=max(plan.backlog, 200),
        burst=max(plan.burst, 40),
        burst_every=min(plan.burst_every, 0.03),
        member=replace(plan.member, rests=0.1),
    )


def stuck(plan: Plan, draw: Draw) -> Plan:
    """Add records that no pool can end and that fail in the end.

    Other records run beside them, at first and later attempts, under each of the policies.
    """

    def times_out(sub: SubscriptionSettings) -> SubscriptionSettings:
        if sub.routing.mode in ("unordered", "exclusive"):
            sub = replace(sub, routing=RoutingSettings())  # these allow few policies or few lanes
        poisoned = _poisoned(sub, draw, STUCK_POISON)
        retry = RetryPolicy(attempts=1, backoff=0.0) if sub.at_least_once else sub.retry
        return replace(poisoned, retry=retry, ack_timeout=1.0, dlq_limit=None)

    plan = _each(plan, times_out)
    kind = draw.one("kind of stuck", UNENDING)
    if all(each.on_exhausted == "divert" for each in plan.member.subscriptions):
        plan = _roomy(plan, draw)
        kind = draw.one("kind of stuck that diverts", UNENDING_MOSTLY)
        if draw.happens("calm while stuck", 0.7):
            plan = _calm(plan, {})
    return replace(
        _with_more(plan, "handlers hung", LOOKED_AFTER),
        orders_possible=0.8,
        member=replace(plan.member, pool=replace(plan.member.pool, kind=kind)),
        habits=replace(
            plan.habits,
            failing=min(plan.habits.failing, 0.2),
            stuck=draw.one("stuck at all", (0.05, 0.1)),
            stuck_for=draw.one("stuck for", (1.8, 1.8, 7.0)),
        ),
    )


def _roomy(plan: Plan, draw: Draw) -> Plan:
    """Return the plan with room to divert many lanes: in metadata, among keys and workers.

    A lane is blocked instead if its hash does not fit into the metadata. In a lane that is already
    diverted no record runs, so none gets stuck.
    """

    def many_workers(sub: SubscriptionSettings) -> SubscriptionSettings:
        return replace(sub, workers=worker_names(max(8, len(sub.workers))))

    return replace(
        _each(plan, many_workers),
        metadata_max=draw.one("room to divert", (*(4_096,) * 4, plan.metadata_max)),
        keys=1_000,
    )


def shared(plan: Plan, draw: Draw) -> Plan:
    """Add workers that share records, and records that run for longer than others wait.

    Members come and go in that time, so partitions with detached records are revoked.
    """

    def shares(sub: SubscriptionSettings) -> SubscriptionSettings:
        if not sub.at_least_once:
            return sub  # its workers keep a row each
        return replace(
            sub,
            workers=worker_names(max(4, len(sub.workers))),
            routing=RoutingSettings(draw.one(f"shared in {sub.name}", ("ring", "auto-split"))),
            individually=False,
            new_workers_wait=False,
            hands_over=False,
            ack_timeout=draw.one(
                f"ack timeout of what is detached in {sub.name}", (None, 0.3, 1.0)
            ),
            pooled=True,
        )

    plan = _each(plan, shares)
    kind = draw.one("kind of what detaches", DETACHING)
    return replace(
        plan,
        disturbances={**plan.disturbances, **MEMBERS_THROWN_OUT, "handlers hung": 3.0},
        members=max(plan.members, 2),
        keys=40,
        metadata_max=4_096,
        member=replace(plan.member, pool=replace(plan.member.pool, kind=kind)),
        habits=replace(
            plan.habits,
            failing=min(plan.habits.failing, 0.2),
            poisoned=min(plan.habits.poisoned, 0.003),
            at_once=0.3,
            typical=draw.one("typical while some detach", (0.001, 0.02)),
            hanging=draw.one("hanging at all", (0.02, 0.06)),
            hang=draw.one("hang while some detach", (0.15, 0.5, 2.0)),
        ),
    )


def looked_after(plan: Plan, draw: Draw) -> Plan:
    """Close many lanes for long, and give orders for each of them.

    Often a few dead letters are too many, and little fits beside a position.
    """

    def closes(sub: SubscriptionSettings) -> SubscriptionSettings:
        closed = _poisoned(sub, draw, LOOKED_AFTER_POISON)
        few = closed.dlq and draw.happens(f"few letters of {sub.name}", 0.6)
        return replace(closed, dlq_limit=FEW_LETTERS) if few else closed

    closed = _each(plan, closes)
    if not _diverts(closed) and draw.happens("little metadata while looked after", 0.6):
        closed = replace(closed, metadata_max=LITTLE_METADATA)
    if draw.happens("calm while looked after", 0.7):
        closed = _calm(closed, {})
    return replace(
        _with_more(closed, LOOKED_AFTER, "a member was stopped"),
        orders_possible=0.8,
        habits=replace(plan.habits, poisoned=draw.one("poisoned at all", (0.02, 0.1))),
        letters=replace(plan.letters, slow=draw.one("slow letters", (0.05, 0.5))),
    )


def joining(plan: Plan, draw: Draw) -> Plan:
    """Add workers that join while others run long in their slots, and that leave again."""

    def waits(sub: SubscriptionSettings) -> SubscriptionSettings:
        if not sub.at_least_once:
            return sub  # it is unknown which of its records are settled
        wait = draw.happens(f"joining waits of {sub.name}", 0.9)
        lost = draw.happens(f"joining is lost of {sub.name}", 0.7)
        return replace(sub, new_workers_wait=wait, on_evict="ack" if lost else sub.on_evict)

    return _with_more(_each(plan, waits), "a worker that joins went", "a worker died")


def withdrawn(plan: Plan, draw: Draw) -> Plan:
    """Move ranges between workers, and leave some without a worker for a while.

    In most plans members stop in that time, with more settled beyond positions than metadata takes.
    """

    def in_ranges(sub: SubscriptionSettings) -> SubscriptionSettings:
        if not sub.at_least_once or sub.routing.mode == "exclusive":
            return sub
        chance = draw.generator(f"ranges that are withdrawn of {sub.name}")
        unmatched = draw.one(f"withdrawn of {sub.name}", ON_UNMATCHED)
        return replace(sub, routing=whole_ranges(sub.workers, chance, unmatched))

    plan = _with_more(_each(plan, in_ranges), "a range was assigned")
    if not _diverts(plan) and draw.happens("stops while withdrawn", 0.75):
        plan = _calm(replace(plan, metadata_max=LITTLE_METADATA), {"a member was stopped": 2.0})
    return plan


def with_full_chunks(plan: Plan, draw: Draw) -> Plan:
    """Return the plan; add full chunks to some of the plans without another emphasis."""
    tracked = all(each.at_least_once for each in plan.member.subscriptions)
    return full_chunks(plan, draw) if tracked and draw.happens("full chunks", 0.22) else plan


def full_chunks(plan: Plan, draw: Draw) -> Plan:
    """Fill one chunk after the other, while partitions and slots move.

    Fetches are small, so that chunks are full although logs are short. Workers are many and fast.
    The plan has none of the disturbances that keep a member from reading on.
    """

    def quick(sub: SubscriptionSettings) -> SubscriptionSettings:
        changed = replace(
            sub,
            workers=worker_names(max(4, len(sub.workers))),
            window_records=1_000,
            prefetch_records=1_000,
        )
        if plan.member.on_a_loop:
            return replace(changed, slice_records=max(sub.slice_records, 50), ack_timeout=None)
        return changed if plan.member.pool.own else replace(changed, individually=False)

    chance = draw.generator("what moves while chunks are full")
    plan = _each(_busy(plan), quick)
    return replace(
        plan,
        disturbances={
            **MEMBERS_MOVE,
            **dict(chance.sample(WORKERS_MOVE, 1)),
            "a subscription was resized": 5.0,
        },
        partitions=max(plan.partitions, 3),
        members=max(plan.members, 2),
        backlog=4_000,
        burst=400,
        member=replace(
            plan.member,
            commit=CommitPolicy(0.1, 0.0, 0.0),
            chunk=draw.one("chunk", (8, 12, 40)),
            rounds=draw.one("rounds", (0.005, 0.009, 0.012)),
        ),
        habits=replace(
            plan.habits,
            failing=min(plan.habits.failing, 0.02),
            poisoned=0.0,
            hanging=0.0,
            stuck=0.0,
            at_once=0.9,
            typical=0.001,
        ),
    )


def deadly(plan: Plan, draw: Draw) -> Plan:
    """Add records that end their process again and again, and little else that ends one.

    Commits name the running records: metadata has room for that, and commits are accepted. So the
    next member knows the suspects, and starts them last.
    """
    plan = replace(
        _each(plan, lambda sub: replace(sub, delivery="at-least-once")),
        metadata_max=draw.one("room to name what ran", (4_096, 1_000)),
        members=1,
    )
    calm = _calm(plan, {"a record became deadly": 3.0})
    kept = {name: each for name, each in calm.disturbances.items() if name not in COMMITS_FAIL}
    return replace(calm, disturbances=kept)


def lettered(plan: Plan, draw: Draw) -> Plan:
    """Keep many dead letters in flight while partitions go, in some plans more than are allowed."""

    def sends(sub: SubscriptionSettings) -> SubscriptionSettings:
        if not sub.at_least_once or sub.routing.mode == "exclusive":
            return sub
        on_exhausted = draw.one(f"letters of {sub.name}", LETTERED_POISON)
        most = draw.one(f"letters allowed of {sub.name}", (None, FEW_LETTERS))
        retry = RetryPolicy(attempts=1, backoff=0.0)
        return replace(sub, on_exhausted=on_exhausted, dlq=True, dlq_limit=most, retry=retry)

    go = {"a member was thrown out": 4.0, "a member was stopped": 2.0}
    rare = {name: each for name, each in plan.disturbances.items() if name in SELDOM}
    return replace(
        _calm(_each(plan, sends), {**go, **rare}),
        metadata_max=4_096,
        keys=1_000,
        members=2,
        habits=replace(plan.habits, failing=0.02, poisoned=0.1),
        letters=replace(plan.letters, slow=0.5),
    )


def outages(plan: Plan, draw: Draw) -> Plan:
    """Repeat outages of the dependency of all handlers, with few other faults.

    Members that stay long enough report an outage. This takes attempts of records with many keys.
    """

    def goes_on(sub: SubscriptionSettings) -> SubscriptionSettings:
        if not sub.at_least_once or sub.routing.mode == "exclusive":
            return sub
        retry = RetryPolicy(attempts=3, backoff=0.2)
        return replace(sub, retry=retry, on_exhausted="dead_letter", dlq=True, dlq_limit=None)

    plan = _each(plan, goes_on)
    habits = replace(
        plan.habits,
        failing=draw.one("failing beside outages", (0.0, 0.01)),
        poisoned=0.0,
        hanging=0.0,
        stuck=0.0,
    )
    # Between two outages there is time to recover.
    calm = _calm(plan, {"a dependency was away": 0.4})
    calm = replace(calm, habits=habits, members=1, keys=1_000, static=False)
    return replace(calm, burst=4, burst_every=0.1)


EMPHASES: Mapping[str, Emphasis] = {
    "outages": Emphasis(0.1, outages),
    "shared": Emphasis(0.05, shared),
    "stuck": Emphasis(0.22, stuck),
    "looked after": Emphasis(0.08, looked_after),
    "joining": Emphasis(0.208, joining),
    "withdrawn": Emphasis(0.13, withdrawn),
    "deadly": Emphasis(0.02, deadly),
    "lettered": Emphasis(0.04, lettered),
}
"""The emphases of seeds by name."""

SELDOM = ("somebody paused and resumed", "a member was cut off")
"""Disturbances that few plans have at that point. The emphasis on letters keeps them."""

COMMITS_FAIL = frozenset(
    {
        *("commits went wrong", "a right on a topic was away"),
        "brokers took other metadata",
    }
)
"""Disturbances that keep commits from being accepted, or from naming running records."""

MEMBERS_MOVE: Mapping[str, float] = {"a member joined": 5.0, "a member was thrown out": 20.0}
MEMBERS_THROWN_OUT: Mapping[str, float] = {**MEMBERS_MOVE, "a member was thrown out": 40.0}
MEMBERS_GO = frozenset(
    {
        *("a member joined", "a member was stopped", "a member was killed"),
        *("a member was thrown out", "a member that asks was thrown out", "a callback raised"),
        *("a member was cut off", "the brokers were away", "an owner stood still for long"),
        *("somebody paused and resumed", "a partition was added", "keys could not be read"),
        *("fetches went wrong", "questions went wrong"),
    }
)
"""Disturbances that take work from a member for long, or end it."""

WORKERS_MOVE = (
    ("a worker was added", 30.0),
    ("a worker died", 10.0),
)
"""Disturbances that move partitions or slots, and how much more often than usual.

No member stops while chunks are full. Half of the stopped members stop while they join. A group
with many stops is therefore always in a rebalance, and fetches nothing.
"""

LOOKED_AFTER = "a lane was ordered about"
POISON: Sequence[PoisonPolicy] = ("dead_letter", "block", "block_and_dlq", "divert")
LOOKED_AFTER_POISON: Sequence[PoisonPolicy] = (*POISON, "block_and_dlq")
STUCK_POISON: Sequence[PoisonPolicy] = (*POISON, "block_and_dlq", *("divert",) * 4)
"""Policies, with a larger share of those that soon close all lanes or delay dead letters for long.
"""

DETACHING: Sequence[PoolKind] = ("thread", "thread", "process", "task")
"""Pools whose workers may share records: those of functions."""

UNENDING: Sequence[PoolKind] = ("thread", "thread", "task")
"""Pools that cannot end a record, or not always."""

UNENDING_MOSTLY: Sequence[PoolKind] = ("thread",) * 5 + ("task",)
"""The same pools, with a larger share of those that never can."""

LETTERED_POISON: Sequence[PoisonPolicy] = ("divert", "divert", "dead_letter")

FEW_LETTERS = DlqLimit(0.05, 20, 2)
"""A dead-letter limit that two letters among 20 records reach."""

LITTLE_METADATA = 60
"""Characters of metadata: too few for most settled sets."""


def _each(plan: Plan, change: Change) -> Plan:
    """Return the plan with each of its subscriptions changed."""
    changed = tuple(map(change, plan.member.subscriptions))
    return replace(plan, member=replace(plan.member, subscriptions=changed))


def _with_more(plan: Plan, *names: str) -> Plan:
    """Return the plan with these disturbances, often."""
    return replace(plan, disturbances={**plan.disturbances, **dict.fromkeys(names, 3.0)})


def _diverts(plan: Plan) -> bool:
    """Return whether a subscription diverts lanes. Metadata must have room for their hashes."""
    return any(each.on_exhausted == "divert" for each in plan.member.subscriptions)


def _calm(plan: Plan, but: Mapping[str, float]) -> Plan:
    """Return the plan without :data:`MEMBERS_GO`, except for these disturbances."""
    kept = {name: each for name, each in plan.disturbances.items() if name not in MEMBERS_GO}
    return replace(plan, disturbances={**kept, **but})


def _poisoned(
    sub: SubscriptionSettings, draw: Draw, among: Sequence[PoisonPolicy]
) -> SubscriptionSettings:
    """Return the subscription with few quick attempts, and a policy that closes lanes."""
    if not sub.at_least_once:
        return sub  # every failed record is dropped
    attempts = draw.one(f"few attempts of {sub.name}", (1, 2))
    on_exhausted = draw.one(f"closing poison of {sub.name}", among)
    if sub.routing.mode == "exclusive":
        on_exhausted = sub.on_exhausted  # few policies go with it
    return replace(
        sub, retry=RetryPolicy(attempts=attempts, backoff=0.0), on_exhausted=on_exhausted, dlq=True
    )
