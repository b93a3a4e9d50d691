"""Faults of a simulated member's workers, and orders that change the workers."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.lab.simulator.keys import key_by
from kafka_keyshared.lab.simulator.member import Member
from kafka_keyshared.lab.simulator.routings import (
    PATTERNS,
    WORKERS_MOST,
    filters_of_one_more,
    may_filter_later,
    resized_to,
)
from kafka_keyshared.lab.simulator.world import World
from kafka_keyshared.runtime.loop import Loop

NAMES = 30
"""Number of names for a new worker. The ring makes something else of each."""

Place = tuple[str, int]
"""A worker: its subscription, and its number there."""


def kill_worker(world: World, chance: Random) -> bool:
    """End a worker's thread, preferably inside a record. Some cannot be replaced."""
    member = world.some_member(chance)
    if member is None:
        return False
    seen = member.pool.seen()
    alive = [place for place, worker in seen.items() if worker.there]
    running = [place for place in alive if seen[place].running is not None]
    if not alive:
        return False
    member.pool.kill(*chance.choice(running if running and chance.random() < 0.8 else alive))
    member.pool.replaceable = chance.random() < 0.5
    return True


def hang(world: World, chance: Random) -> bool:
    """Make the next handlers of a member take long."""
    member = world.some_member(chance)
    if member is not None:
        member.handlers.hang(chance.randint(1, 4), chance.uniform(1.0, 12.0))
    return member is not None


def add_worker(world: World, chance: Random) -> bool:
    """Add a worker, by an order to the owner."""
    member = world.some_member(chance)
    if member is None or member.stopping:
        return False
    _add(member, chance.choice(list(member.instance.core.subscriptions)))
    return True


def _add(member: Member, subscription: str) -> None:
    """Order one more worker, by a name that gives it a slot of a running record."""

    def order(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        sub = loop.core.subscriptions[subscription]
        taken = {worker.name for worker in sub.workers.values()}
        if len(taken) >= WORKERS_MOST:
            return
        running = [
            key
            for (name, _), worker in member.pool.seen().items()
            if name == subscription and worker.running is not None
            if (key := key_by(sub.settings, worker.running.key())) is not None
        ]
        slots = {sub.keys.slot(key) & 0xFFFF for key in running}
        free = [name for n in range(NAMES) if (name := f"joined-{n}") not in taken]
        routing = sub.table.routing
        busy = (
            name
            for name in free
            for with_it in (routing.with_worker(name),)
            if any(with_it.owner(slot) == name for slot in slots)
        )
        name = next(busy, free[0]) if slots else free[0]
        loop.tell(ev.Join(subscription, name, filters_of_one_more(sub.settings)))

    member.order("add a worker", order)


def add_filtering(world: World, chance: Random) -> bool:
    """Add a worker that takes only some keys, where the members begin without one."""
    member = world.some_member(chance)
    subs = [each.name for each in world.plan.member.subscriptions if may_filter_later(each)]
    if member is None or member.stopping or not subs:
        return False
    subscription, name = chance.choice(subs), f"filtering-{chance.randrange(4)}"
    patterns = chance.sample(PATTERNS, chance.randint(1, 2))

    def order(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        workers = loop.core.subscriptions[subscription].workers.values()
        if len(workers) < WORKERS_MOST and name not in {each.name for each in workers}:
            loop.tell(ev.Join(subscription, name, patterns))

    member.order("add a worker that filters", order)
    return True


def change_filters(world: World, chance: Random) -> bool:
    """Give a filtering worker other keys, present or not, or add one.

    Workers that take every key stay so. Otherwise it would be unknown beforehand which records no
    worker takes.
    """
    member = world.some_member(chance)
    subs = [each.name for each in world.plan.member.subscriptions if may_filter_later(each)]
    if member is None or member.stopping or not subs:
        return False
    subscription, name = chance.choice(subs), f"filtering-{chance.randrange(2)}"
    patterns = tuple(chance.sample(PATTERNS, chance.randint(1, 2)))

    def order(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        sub = loop.core.subscriptions[subscription]
        filtered = sub.table.filtered
        if filtered is not None and name in filtered.filters.workers:
            loop.tell(ev.SetFilters(subscription, name, patterns))
        elif len(sub.workers) < WORKERS_MOST:
            loop.tell(ev.Join(subscription, name, patterns))

    member.order("change filters", order)
    return True


def dismiss_worker(world: World, chance: Random) -> bool:
    """Remove a worker for good once its slice is done, as a member that closes does."""
    member = world.some_member(chance)
    if member is None:
        return False
    subscription = chance.choice(list(member.instance.core.subscriptions))
    there = _dismissible(member, subscription)
    if there:
        # Prefer the last one that came: the slots that moved to it move back.
        member.pool.dismiss(*(there[-1] if chance.random() < 0.7 else chance.choice(there)))
    return bool(there)


def _dismissible(member: Member, subscription: str) -> list[Place]:
    """Return the workers of which one may go, the youngest last.

    One has to stay, and a dead one may not come back.
    """
    those = member.pool.seen().items()
    mine = [each for each in those if each[0][0] == subscription and not each[1].abandoned]
    there = [place for place, worker in mine if worker.there]
    going = any(not (worker.there or worker.gone) for _, worker in mine)
    return [] if going or len(there) < 2 or not member.pool.leaves else there


def come_and_go(world: World, chance: Random) -> bool:
    """Add a worker while others run long in its slots, and remove it before it begins."""
    member = world.some_member(chance)
    if member is None or member.stopping:
        return False
    subscription = chance.choice(list(member.instance.core.subscriptions))
    member.handlers.hang(8, chance.uniform(4.0, 12.0))
    before = len(member.pool.workers)
    dies = chance.random() < 0.7

    def come() -> None:
        if member.alive and not member.stopping:
            _add(member, subscription)
            world.timeline.after(0.2, go)

    def go() -> None:
        there = _dismissible(member, subscription)
        gone = world.healed or not member.alive
        if gone or len(member.pool.workers) == before or not there:
            return
        if dies:
            member.pool.replaceable = False
            member.pool.kill(*there[-1])
        else:
            member.pool.dismiss(*there[-1])

    world.timeline.after(chance.uniform(0.4, 1.0), come)
    return True


def resize(world: World, chance: Random) -> bool:
    """Resize a subscription to other workers, with old and new names, by an order."""
    member = world.some_member(chance)
    if member is None or member.stopping:
        return False
    subscription = chance.choice(list(member.instance.core.subscriptions))
    wanted = resized_to(chance)

    def order(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        loop.tell(ev.Resize(subscription, wanted))

    member.order("resize", order)
    return True
