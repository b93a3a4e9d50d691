"""What a pool costs that has nothing to do, and what is left of workers that are there no more."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from operator import gt
from pathlib import Path
from typing import Any

from tests.conformance.opt_outs import RESIZES
from tests.conformance.pool_sides import WAIT, WORKER, Side
from tests.support.records import record

RESTS_WITHIN = 10.0

PAUSE = threading.Event()


def tasks_of(pid: int) -> set[Path]:
    """The threads of a process, as the system has them."""
    return {*Path(f"/proc/{pid}/task").iterdir()}


def switched(tasks: set[Path]) -> int:
    """How often these have been put to run so far."""
    text = "".join((each / "status").read_text() for each in tasks)
    return sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)


def at_rest(tasks: set[Path]) -> int:
    """Wait until they do nothing; return how often they had been put to run by then."""
    deadline, before = time.monotonic() + RESTS_WITHIN, -1
    while (now := switched(tasks)) != before:
        assert time.monotonic() < deadline, "they never rest"
        before = now
        PAUSE.wait(0.05)
    return now


def test_a_pool_that_has_nothing_to_do_does_nothing(kind: type[Side]) -> None:
    """Nothing of it runs, not even to look whether there is something."""
    before, others = tasks_of(os.getpid()), {*multiprocessing.active_children()}
    side = kind()
    side.submit(record(1))
    assert side.work() == [1]
    children = [each for each in multiprocessing.active_children() if each not in others]
    mine = tasks_of(os.getpid()) - before
    for child in children:
        mine |= tasks_of(child.pid or 0)
    rests = at_rest(mine)
    side.submit(record(2))
    assert side.work() == [2]
    assert at_rest(mine) > rests, "that it does something is seen"
    rests = at_rest(mine)
    PAUSE.wait(0.3)
    assert switched(mine) == rests
    side.close()


def left() -> tuple[int, int, int]:
    """How many threads, open files and processes there are."""
    return (
        threading.active_count(),
        len([*Path("/proc/self/fd").iterdir()]),
        len(multiprocessing.active_children()),
    )


def test_a_thousand_resizes_leave_nothing_behind(kind: type[Side]) -> None:
    side: Any = kind()
    item = record(1, None)
    times = RESIZES.get(kind.__name__, 1_000)

    def resize(number: int) -> None:
        side.rules = side.new_rules()
        side.add(number)
        side.submit(item)
        assert side.work() == [1]
        side.dismiss()
        side.whose = WORKER

    def objects(most: tuple[int, ...] | None = None) -> int:
        """The objects that there are once every worker that was dismissed has gone."""
        deadline, before = time.monotonic() + WAIT, None
        while (now := left()) != before or (most and any(map(gt, now, most))):
            assert time.monotonic() < deadline, f"{now}, and there were {most}"
            before = now
            side.lost()
            PAUSE.wait(0.02)
            gc.collect()
        return len(gc.get_objects())

    for number in range(1, 6):
        resize(number)
    before, were = objects(), left()
    for number in range(6, 6 + times):
        resize(number)
    assert objects(were) - before < max(100, times // 2)
    side.close()
