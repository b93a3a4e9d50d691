"""Writes the table of docs/internals/modes.md: what each way of sharing a stream does.

Nothing in it is said by hand. For each cell a core with workers is driven through a small scene,
and the words are those for what was seen (:mod:`tests.setup.page_tables`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.hashing import SLOTS
from tests.setup.page_tables import filled, table
from tests.support.core_harness import Harness
from tests.support.records import P0, failure, record

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "modes.md"

WORKERS = 4

MODES = {
    "Key-Shared": SubscriptionSettings(),
    "Key-Shared, `delivery='at-most-once'`": SubscriptionSettings(delivery="at-most-once"),
    "Exclusive": SubscriptionSettings(routing=RoutingSettings("exclusive")),
    "Shared (`unordered`)": SubscriptionSettings(routing=RoutingSettings("unordered")),
}
"""What runs in a subscription."""

MANY = [b"key-%d" % number for number in range(40)]


def started(mode: SubscriptionSettings, workers: int = WORKERS, holds: int = 1_000) -> Harness:
    """Return a core with workers that has a partition."""
    settings = replace(mode, workers=worker_names(workers), prefetch_records=holds)
    harness = Harness(settings)
    harness.assign()
    return harness


class Seen:
    """How records ran: in which order they started, and how many at once."""

    def __init__(self, harness: Harness, keys: Sequence[bytes]) -> None:
        harness.fetch(*[record(offset, key) for offset, key in enumerate(keys)])
        self.starts: list[int] = []
        self.at_once = 0
        self.two_of_a_key = False
        for _ in range(10 * len(keys)):
            for worker in harness.pool.workers.values():
                if worker.running is None and (item := worker.start()) is not None:
                    self.starts.append(item.offset())
            running = [w.running.key() for w in harness.pool.workers.values() if w.running]
            self.at_once = max(self.at_once, len(running))
            self.two_of_a_key |= len(set(running)) < len(running)
            # Who started last ends first.
            for worker in reversed(harness.pool.workers.values()):
                if worker.running is not None:
                    worker.finish()
                    break
            harness.deliver()

    def in_order(self, keys: Sequence[bytes], of: Sequence[bytes]) -> bool:
        """Say whether the records of some keys started in the order of their offsets."""
        offsets = [offset for offset in self.starts if keys[offset] in of]
        return offsets == sorted(offsets)


def order(mode: SubscriptionSettings) -> str:
    """In which order do records start?"""
    keys = [MANY[number % 8] for number in range(80)]
    seen = Seen(started(mode), keys)
    if seen.at_once == 1 and seen.starts == sorted(seen.starts):
        return "all of them, by offset"
    if not seen.two_of_a_key and all(seen.in_order(keys, [key]) for key in keys):
        return "per key, by offset"
    return "none"


def at_once(mode: SubscriptionSettings) -> str:
    """How many workers are at work?"""
    many = Seen(started(mode), MANY).at_once
    one = Seen(started(mode), [MANY[0]] * 20).at_once
    return f"{many} of {WORKERS}; {one} with one key"


def no_key(mode: SubscriptionSettings) -> str:
    """Who gets a record without a key?"""
    harness = started(mode)
    for offset in range(WORKERS):
        harness.fetch(record(offset, None))
    busy = sum(1 for worker in harness.sub().workers.values() if worker.leased)
    if busy == 1:
        return "the one that works"
    return "whoever has least" if busy == WORKERS else f"{busy} of {WORKERS} workers"


def fails(mode: SubscriptionSettings) -> str:
    """What becomes of a record whose handler raises, and of its key?"""
    harness = started(mode, workers=1)
    harness.fetch(record(0, b"a"), record(1, b"a"), record(2, b"b"))
    order = harness.work({0: [failure()]})
    for _ in range(3):
        harness.later(60.0)
        order += harness.work()
    again = order.count(0) > 1
    waits = order.index(1) > max(at for at, each in enumerate(order) if each == 0)
    others = order.index(2) < order.index(1)
    return ", ".join(
        [
            "it runs again" if again else "it is dropped",
            "its key waits for it" if waits and again else "its key goes on",
            *(["others go on"] if others and again else []),
        ]
    )


def commits(mode: SubscriptionSettings) -> str:
    """What is committed when 0, 2 and 3 of four records are done?"""
    harness = started(mode)
    of: dict[int, bytes] = {}
    for key in MANY:  # one key for each worker
        of.setdefault(harness.owner_of(record(0, key)).index, key)
    harness.fetch(*[record(offset, of.get(offset, MANY[offset])) for offset in range(4)])
    for worker in [*harness.pool.workers.values()] * 4:
        if worker.running is None and (item := worker.start()) is not None and item.offset() != 1:
            worker.finish()
            worker.step()
    harness.deliver()
    sent = harness.commit()
    if not sent:
        return "nothing"
    entry = sent[0].entries[P0]
    runs = harness.core.snapshots.take(harness.pool.progress(), harness.now)[P0].runs
    settled = [offset for first, end in runs.get("default", ()) for offset in range(first, end)]
    beyond = f"and {' and '.join(map(str, settled))} as settled" if settled else "2 and 3 wait"
    return f"position {entry.position}, {beyond}"


def full(mode: SubscriptionSettings) -> str:
    """What becomes of what comes for a worker that has all it may have?"""
    harness = started(mode, workers=1, holds=4)
    harness.fetch(*[record(offset) for offset in range(10)])
    kept = harness.core.unsettled_count()
    ran = harness.work()
    if ran == list(range(10)):
        return "it waits"
    return "it is dropped" if ran == list(range(kept)) else "some of it is lost"


def joins(mode: SubscriptionSettings) -> str:
    """Which slots move when a fifth worker joins four?"""
    before, after = started(mode).sub().table, started(mode, WORKERS + 1).sub().table
    moved = [slot for slot in range(SLOTS) if before.owners[slot] != after.owners[slot]]
    only = all(after.owners[slot] == WORKERS for slot in moved)
    share = f"{len(moved) / SLOTS:.0%} of the slots"
    if not moved:
        return "nothing moves"
    return f"it takes {share}, nothing else moves" if only else f"{share} move"


def dies(mode: SubscriptionSettings) -> str:
    """What becomes of what a worker has that dies and cannot be started again?"""
    harness = started(mode, workers=2)
    mine = next(key for key in MANY if harness.owner_of(record(0, key)).index == 0)
    harness.fetch(*[record(offset, mine) for offset in range(3)])
    harness.worker(0).start()
    harness.worker(0).die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    ran = harness.work()
    harness.later(60.0)
    ran += harness.work()
    if sorted(ran) != [0, 1, 2][-len(ran) :]:
        return f"{ran} of 0 to 2 run again"
    running = "what it ran runs again" if 0 in ran else "what it ran is dropped"
    in_order = "" if ran[-2:] == [1, 2] else ", in any order"
    return f"{running}, what waited goes to another{in_order}"


ROWS: dict[str, Callable[[SubscriptionSettings], str]] = {
    "order": order,
    "workers at work at once": at_once,
    "a record without a key goes to": no_key,
    "a record fails": fails,
    "0, 2 and 3 are done, 1 runs: committed is": commits,
    "a record comes for a worker that is full": full,
    "a fifth worker joins": joins,
    "a worker is gone for good": dies,
}


def modes() -> str:
    """Return the table of what was seen."""
    rows = [[what, *(see(mode) for mode in MODES.values())] for what, see in ROWS.items()]
    return table(["", *MODES], rows)


TABLES = {"modes": modes}


def updated(text: str) -> str:
    """Return the page with its table as the package is now."""
    return filled(PAGE.name, text, TABLES)


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
