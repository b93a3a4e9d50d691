"""The flush order: waits for leased records, then commits settled ones."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from typing import NamedTuple

from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.model import (
    Record,
    TopicPartition,
    counted,
    in_words,
    name_of,
    named_key,
    some,
)
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.loop import Loop

LOOK_EVERY = 0.01
"""Seconds between two checks of the remaining leases. Each check looks at every slice."""

NAMED_MAX = 5

Positions = Mapping[TopicPartition, int]


def flush(instance: Instance, timeout: float) -> Positions:
    """Order a flush and wait for the answer. Call it from any thread but the owner's.

    Raises :class:`OrderRefusedError` with the reason, and :class:`TimeoutError`, which names the
    records that are still running.
    """
    order = FlushOrder()
    try:
        return instance.ask("flush", order, timeout)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; {order.waits_for()}") from None


class Runs(NamedTuple):
    """A running record, its routing key, and its observed running time in seconds."""

    record: Record
    key: bytes | None
    seconds: float


def running(loop: Loop, ids: Collection[int], progress: Progress, now: float) -> Iterator[Runs]:
    """Yield the running records of these slices."""
    for sub in loop.core.subscriptions.values():
        seen = loop.core.watches[sub.name].running
        for leased in sub.unsettled.leases():
            id_ = leased.slice.id
            for index in leased.running(progress) if id_ in ids else ():
                known = seen.get((id_, index))
                record = leased.slice.came[index]
                seconds = 0.0 if known is None else now - known.since
                yield Runs(record, sub.keys.key(record), seconds)


def waits_for(records: Collection[Runs]) -> str:
    """Return the text that names the records being waited for."""
    names = some(
        (
            f"{name_of(record)}, {named_key(key)}, {in_words(seconds)} so far"
            for record, key, seconds in records
        ),
        NAMED_MAX,
    )
    told = f"it waits for {counted(len(records), 'running record')}"
    return told + (f" ({names})" if records else "")


class FlushOrder:
    """Waits until all current leases have ended, commits, and returns committed positions.

    The answer has the committed position of each partition that stayed assigned throughout. A
    failed record that waits for its retry is not leased, so the flush does not wait for it. Nor
    does it wait for records leased after it began. ``running`` are the records it still waits for.
    """

    def __init__(self) -> None:
        self.running: tuple[Runs, ...] = ()
        self._begun = self._committing = False

    def waits_for(self) -> str:
        """Return the text that names the records to wait for. Any thread may call it."""
        if self._committing:
            return "it waits for the broker to take the commit"
        if not self._begun:
            return "the owner has not started it: a rebalance is in progress"
        return waits_for(self.running)

    def __call__(self, loop: Loop) -> Generator[None, None, Positions]:
        """Run the order, one round per ``yield``."""
        self._begun = True
        progress = loop.pool.progress()
        leased = set(progress)
        now = look_at = loop.ports.clock()
        while leased:
            # Before the first round ends: the caller may give up before the next one.
            self.running = tuple(running(loop, leased, progress, now))
            yield
            while (now := loop.ports.clock()) < look_at:
                yield
            look_at = now + LOOK_EVERY
            progress = loop.pool.progress()
            leased.intersection_update(progress)
        self._committing = True
        core = loop.core
        while core.commits.in_flight:  # one commit is in flight at a time
            yield
        if loop.commits_stopped:
            raise OrderRefusedError(
                "nothing is committed until the group has assigned partitions anew"
            )
        committable = loop.committable()
        if not committable:
            return {}
        loop.commit(committable)
        derived = core.snapshots.derived
        states = {each: core.partitions[each] for each in committable if each in derived}
        wanted = {each: derived[each].position for each in states}
        while True:
            here = [each for each, state in states.items() if core.partitions.get(each) is state]
            found = {each: core.commits.committed(each) for each in here}
            known = {e: at for e, at in found.items() if at is not None and at >= wanted[e]}
            if len(known) == len(here):
                return known
            yield
