"""The pools that tests and simulation have instead of real ones do as these do."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from tests.conformance.pool_sides import (
    Fake,
    FakeInstances,
    FakeProcesses,
    Instances,
    Side,
    Threads,
)
from tests.conformance.pool_walk import Walk
from tests.conformance.process_side import Processes
from tests.support.core_harness import Harness
from tests.support.records import record
from tests.support.seeds import seeds

SEEDS_OF: dict[type[Side], Sequence[int]] = {Processes: (0, 3, 4, 7)}
"""Of those whose steps take long: these meet all that there is to meet."""

SEEDS = seeds(30)

DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@DIES
@pytest.mark.parametrize(
    ("kinds", "seed"),
    [
        (kinds, seed)
        for kinds in ((Threads, Fake), (Instances, FakeInstances), (Processes, FakeProcesses))
        for seed in SEEDS_OF.get(kinds[0], SEEDS)
    ],
)
def test_the_fake_does_to_the_letter_what_a_thread_does(
    kinds: tuple[type[Side], ...], seed: int
) -> None:
    """Or all that the core's tests show with it would be shown of nothing."""
    said = []
    for kind in kinds:
        side = kind()
        Walk(side, random.Random(f"letter-{seed}")).go(60)
        said.append(side.rules.said)
        side.close()
    assert said[0] == said[1]


def test_the_keys_of_a_worker_that_dies_before_it_has_answered_run_elsewhere() -> None:
    core = Harness(SubscriptionSettings(workers=("worker-0", "worker-1")))
    core.pool.answers_later = core.pool.hesitates = lambda: True
    core.assign()
    core.fetch(*(record(offset, b"key-%d" % offset) for offset in range(20)))
    dead = core.worker(1)
    running = dead.start()
    assert running is not None
    core.tell(ev.Join("default", "worker-2"))
    assert dead.asked
    dead.die()
    core.pool.replaceable = False
    core.beat(8)
    core.pool.answers_later = core.pool.hesitates = lambda: False
    core.deliver()
    core.later(60.0)
    assert sorted(core.work()) == list(range(20))
    assert core.committed() == (20, [])
    assert "worker-1" in core.sub().gone
