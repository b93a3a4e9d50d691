"""State that follows its keys: the worker that had a slot releases it, the new one adopts it.

Only for handlers that can (``hands_over`` in the settings). A slot that moves is then shut until
its state is on the way to its new owner: one that drains until it has drained and was released,
others until they were released. The old owner releases behind all that it was given, the new one
adopts before anything of the slot: either does one thing after the other.

Where there is no state to be had (the thread is gone for good, or ``release`` has raised), that is
told and the keys begin without. They could not stay where they were: their worker may be leaving.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from kafka_keyshared.core.commands import Adopt, Command, Level, Notice, Release
from kafka_keyshared.core.events import Released
from kafka_keyshared.core.hand_overs import HandOver, HandOvers, Kept
from kafka_keyshared.core.routing.slots import Move, Run, Slots
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.model import counted

GONE = "its thread is gone for good"

NOWHERE = -1
"""In the place of a worker: the state of these slots is kept until somebody has them."""


def note_moved(
    sub: Subscription,
    hand_overs: HandOvers,
    moves: Iterable[Move],
    drain: Collection[int],
    drained: Iterable[int],
) -> None:
    """Note which slots have moved and are to be handed over at once.

    Not those that ``drain`` now or have ``drained`` until now: their state is where their leases
    are. Nor those that are on their way: they go on from where they come to. What becomes no
    worker's is given up too: who had it may be leaving, and somebody will have it.

    Where all keys are one lane, that one drains in one slot, and the state of all is where its
    leases are: a coroutine that ignores its cancellation remembers what it has done when it ends.
    """
    if not drain:
        for worker in list(hand_overs.behind):
            hand_overs.wait(worker, ())
    one_lane = sub.settings.routing.mode == "exclusive"
    later = hand_overs.behind if one_lane and drain else hand_overs.waiting
    elsewhere = Slots(chain(Slots.single(chain(drain, drained)).runs, hand_overs.slots().runs))
    by_worker: dict[int, list[Run]] = {}
    for run, old, _ in moves:
        if old >= 0:
            by_worker.setdefault(old, []).append(run)
    for worker, runs in by_worker.items():
        if at_once := Slots(runs).without(elsewhere).runs:
            later.setdefault(worker, []).extend(at_once)
    kept, hand_overs.kept = hand_overs.kept, []
    for each in kept:
        again = any(owner >= 0 for owner in each.slots.by_owner(sub.table.arcs))
        (hand_overs.back if again else hand_overs.kept).append(each)


def ask(sub: Subscription, hand_overs: HandOvers) -> list[Command]:
    """Ask for the state of all slots that have drained or moved."""
    commands: list[Command] = []
    back, hand_overs.back = hand_overs.back, []
    for kept in back:
        commands += _on_to(sub, hand_overs, kept)
    waiting, hand_overs.waiting = hand_overs.waiting, {}
    for id_, runs in waiting.items():
        slots = Slots(runs)
        worker = sub.workers.get(id_)
        if worker is None or not (worker.present or worker.dismissed):
            commands += _without(sub, id_, slots, GONE)
            continue
        commands += _release(sub, hand_overs, id_, slots)
    return commands


def _release(sub: Subscription, hand_overs: HandOvers, worker: int, slots: Slots) -> list[Command]:
    """Ask a worker for the state of slots, once for each of their new owners."""
    by_owner: dict[int, list[Run]] = {}
    for owner, runs in slots.by_owner(sub.table.arcs).items():
        by_owner.setdefault(max(owner, NOWHERE), []).extend(runs)
    sub.open_slots(Slots(by_owner.pop(worker, [])))  # back before anybody was asked
    commands: list[Command] = []
    for target, runs in by_owner.items():
        those = Slots(runs)
        number = hand_overs.begin(HandOver(worker, target, those))
        commands.append(Release(sub.name, worker, number, those))
    return commands


def released(sub: Subscription, event: Released) -> list[Command]:
    """Have the state adopted, and open its slots; what has moved on meanwhile is released again.

    A worker's state of several slots is one value: it goes where it was meant for, and on from
    there, as long as that worker is.
    """
    hand_overs = sub.hand_overs
    if hand_overs is None or (hand_over := hand_overs.out.pop(event.number, None)) is None:
        return []  # given up with its worker
    if event.error is not None:
        return _without(sub, hand_over.worker, hand_over.slots, f"release() failed: {event.error}")
    kept = Kept(hand_over.slots, event.state)
    return _on_to(sub, hand_overs, kept, sub.workers.get(hand_over.target))


def _on_to(
    sub: Subscription, hand_overs: HandOvers, kept: Kept, target: Worker | None = None
) -> list[Command]:
    """Have state adopted by the worker that it was meant for, or else by one that has its slots.

    While nobody has them it is kept. What is another's by now is released again, from there.
    """
    if target is None or not target.present:
        able = [owner for owner in kept.slots.by_owner(sub.table.arcs) if owner >= 0]
        if not able:
            hand_overs.kept.append(kept)
            sub.open_slots(kept.slots)
            return []
        target = sub.workers[able[0]]
    commands: list[Command] = [Adopt(sub.name, target.id, kept.slots, kept.state)]
    # What is the target's by now is opened, the others go on from there.
    return commands + _release(sub, hand_overs, target.id, kept.slots)


def lost(sub: Subscription, hand_overs: HandOvers, worker: Worker) -> list[Command]:
    """Do without what a worker was asked for that is given up."""
    commands: list[Command] = []
    for number, each in list(hand_overs.out.items()):
        if each.worker == worker.id:
            del hand_overs.out[number]
            commands += _without(sub, worker.id, each.slots, GONE)
    return commands


def _without(sub: Subscription, worker: int, slots: Slots, why: str) -> list[Command]:
    sub.open_slots(slots)
    known = (*sub.workers.values(), *sub.gone.values())
    name = next((each.name for each in known if each.id == worker), f"worker {worker}")
    text = f"{name}: the state of {counted(len(slots), 'slot')} is lost, keys there begin without: "
    return [Notice(Level.ERROR, text + why)]
