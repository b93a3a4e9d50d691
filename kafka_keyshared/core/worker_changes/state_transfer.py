"""Hand-over of per-key state when a slot changes its worker.

Only for handlers that support it (``hands_over`` in the settings). A slot that moves stays closed
until its state is on the way to the new owner. A draining slot opens once it has drained and its
state was released. Any other moved slot opens once its state was released. The old owner releases
its state after all records that it was given. The new owner adopts before it gets any record of the
slot. Each worker does one thing after the other, so the order holds.

The state is lost if the old owner's thread is gone for good or ``release`` raises. An error is
logged, and the keys start without state. They cannot stay at the old worker, which may be leaving.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from kafka_keyshared.core.contract.commands import Adopt, Command, Notice, Release
from kafka_keyshared.core.contract.events import Released
from kafka_keyshared.core.contract.facts import SlotStateLost
from kafka_keyshared.core.routing.slots import Move, Run, Slots
from kafka_keyshared.core.subscription.state_transfers import HandOver, HandOvers, ReleasedState
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.worker import Worker

NOWHERE = -1
"""Worker id for slots without a worker: their state is kept until a worker owns them."""


def note_moved(
    sub: Subscription,
    hand_overs: HandOvers,
    moves: Iterable[Move],
    drain: Collection[int],
    drained: Iterable[int],
) -> None:
    """Note which slots have moved and can be handed over at once.

    Slots in ``drain`` or ``drained`` are left out: their state is where their leases are. Slots
    with a hand-over under way are left out too: it continues from its target. The state of slots
    that no worker owns now is released, too. Their old worker may be leaving, and another one will
    own them.

    In routing mode ``exclusive`` all keys are one lane, which drains in one slot. The state of all
    slots is where the leases of that slot are. A coroutine that ignores its cancellation changes
    its state until it ends.
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
    """Request the state of all slots that have drained or moved."""
    commands: list[Command] = []
    back, hand_overs.back = hand_overs.back, []
    for kept in back:
        commands += _on_to(sub, hand_overs, kept)
    waiting, hand_overs.waiting = hand_overs.waiting, {}
    for id_, runs in waiting.items():
        slots = Slots(runs)
        worker = sub.workers.get(id_)
        if worker is None or not (worker.present or worker.dismissed):
            commands += _without(sub, id_, slots)
            continue
        commands += _release(sub, hand_overs, id_, slots)
    return commands


def _release(sub: Subscription, hand_overs: HandOvers, worker: int, slots: Slots) -> list[Command]:
    """Request the state of slots from a worker, one release for each new owner."""
    by_owner: dict[int, list[Run]] = {}
    for owner, runs in slots.by_owner(sub.table.arcs).items():
        by_owner.setdefault(max(owner, NOWHERE), []).extend(runs)
    sub.routing.open_slots(
        Slots(by_owner.pop(worker, []))
    )  # moved back before the release was requested
    commands: list[Command] = []
    for target, runs in by_owner.items():
        those = Slots(runs)
        number = hand_overs.begin(HandOver(worker, target, those))
        commands.append(Release(sub.name, worker, number, those))
    return commands


def released(sub: Subscription, event: Released) -> list[Command]:
    """Have the state adopted and open its slots; release again the slots that have moved on since.

    A worker's state of several slots is one value. It goes to its target first, if that worker is
    still present, and moves on from there.
    """
    hand_overs = sub.hand_overs
    if hand_overs is None or (hand_over := hand_overs.out.pop(event.number, None)) is None:
        return []  # given up with its worker
    if event.error is not None:
        return _without(sub, hand_over.worker, hand_over.slots, event.error)
    kept = ReleasedState(hand_over.slots, event.state)
    return _on_to(sub, hand_overs, kept, sub.workers.get(hand_over.target))


def _on_to(
    sub: Subscription, hand_overs: HandOvers, kept: ReleasedState, target: Worker | None = None
) -> list[Command]:
    """Have state adopted by its target, or by a worker that owns some of its slots.

    The state is kept while no worker owns the slots. The target releases again the slots that
    another worker owns now.
    """
    if target is None or not target.present:
        able = [owner for owner in kept.slots.by_owner(sub.table.arcs) if owner >= 0]
        if not able:
            hand_overs.kept.append(kept)
            sub.routing.open_slots(kept.slots)
            return []
        target = sub.workers[able[0]]
    commands: list[Command] = [Adopt(sub.name, target.id, kept.slots, kept.state)]
    # This opens the slots that the target owns; the others move on from there.
    return commands + _release(sub, hand_overs, target.id, kept.slots)


def lost(sub: Subscription, hand_overs: HandOvers, worker: Worker) -> list[Command]:
    """Give up the releases requested from a worker that is gone."""
    commands: list[Command] = []
    for number, each in list(hand_overs.out.items()):
        if each.worker == worker.id:
            del hand_overs.out[number]
            commands += _without(sub, worker.id, each.slots)
    return commands


def _without(
    sub: Subscription, worker: int, slots: Slots, error: str | None = None
) -> list[Command]:
    """Open slots whose state is lost; ``error`` is that of ``release``, if it failed."""
    sub.routing.open_slots(slots)
    known = (*sub.workers.values(), *sub.gone.values())
    name = next((each.name for each in known if each.id == worker), f"worker {worker}")
    return [Notice(SlotStateLost(name, len(slots), error))]
