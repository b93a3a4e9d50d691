"""A clean stop and a revoke repeat nothing that has settled, whatever the traffic.

With the traffic that is hardest on the settled set: many records wait at once, for a slow key or
for a retry, while others run far ahead. Few partitions, because the room is a partition's.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import client_conf, group_name, write

Coordinates = tuple[int, int]
_PAUSE = threading.Event()


class Traffic:
    """Records, how a handler takes each of them, and what came of it."""

    def __init__(
        self,
        keys: list[bytes],
        bad: Callable[[bytes], bool] = lambda key: False,
        *,
        seconds: float = 0.0,
        partitions: int = 2,
        most: int = 1 << 62,
    ) -> None:
        self.keys = keys
        self._most = most
        self.partitions = partitions
        self.bad = bad
        self._seconds = seconds
        self.settled: Counter[Coordinates] = Counter()
        self._lock = threading.Lock()

    def handle(self, record: Any) -> None:
        if self.bad(record.key()):
            raise ValueError("downstream refuses this customer")
        if self._seconds:
            _PAUSE.wait(self._seconds)
        with self._lock:
            self.settled[record.partition(), record.offset()] += 1

    def possible(self) -> int:
        """How many records can settle, at the least."""
        return min(sum(not self.bad(key) for key in self.keys), self._most)

    def repeated(self) -> list[Coordinates]:
        return [place for place, count in self.settled.items() if count > 1]


def zipf() -> Traffic:
    """Nothing fails, some keys are far busier than others, and each record takes some time."""
    chance = random.Random(3)
    weights = [1 / (rank + 1) for rank in range(2_000)]
    numbers = chance.choices(range(2_000), weights, k=100_000)
    return Traffic([b"key-%d" % number for number in numbers], seconds=0.0005)


def one_failing_key() -> Traffic:
    """The first key fails for good; the others go as fast as they can."""
    keys = [b"key-%d" % (number % 500) for number in range(100_000)]
    return Traffic(keys, lambda key: key == b"key-0")


def a_tenth_fails() -> Traffic:
    """A tenth of the keys fails for good; each record has a key of its own.

    The metadata has room for some 16,000 offsets so, and then the partition waits for a person.
    """
    bad = set(random.Random(5).sample(range(60_000), 6_000))
    keys = [b"%d" % number for number in range(60_000)]
    return Traffic(keys, lambda key: int(key) in bad, partitions=1, most=14_000)


class Instance:
    """One run of an app over the traffic, in a thread."""

    def __init__(self, conf: dict[str, Any], topic: str, traffic: Traffic) -> None:
        hooks = Hooks(stepped=self._stepped, rebalanced=self._rebalanced)
        self.app = KeyShared(conf, [topic], workers=16, hooks=hooks)
        self.app.handler(traffic.handle)
        self.partitions = 0
        self.joined = threading.Event()
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.status = self.app.run()

    def _rebalanced(self, what: str, partitions: Sequence[Any]) -> None:
        self.joined.set()

    def _stepped(self, view: InstanceView) -> None:
        self.partitions = len(view.partitions)

    def stop(self) -> None:
        self.app.stop()
        self._thread.join(60)
        assert self.status == 0, self.app.report


@pytest.mark.parametrize("kind", [zipf, one_failing_key, a_tenth_fails])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_stops_and_rebalances_repeat_nothing_that_has_settled(
    real_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    kind: Callable[[], Traffic],
    strategy: str,
) -> None:
    traffic = kind()
    real_cluster.create_topic(topic, traffic.partitions)
    write(real_cluster, topic, [(key, b"v" * 20) for key in traffic.keys])
    conf = client_conf(real_cluster, group_name()) | {"partition.assignment.strategy": strategy}

    def ahead(count: int) -> Callable[[], bool]:
        goal = min(len(traffic.settled) + count, traffic.possible())
        return lambda: len(traffic.settled) >= goal

    for count in (3_000, 4_000, 5_000):
        alone = Instance(conf, topic, traffic)
        eventually(ahead(count), 60.0)
        alone.stop()
        assert traffic.repeated() == []
    first = Instance(conf, topic, traffic)
    eventually(ahead(300), 60.0)
    second = Instance(conf, topic, traffic)
    eventually(second.joined.is_set, 60.0)
    eventually(lambda: first.partitions + second.partitions == traffic.partitions, 60.0)
    eventually(ahead(300), 60.0)
    second.stop()
    eventually(lambda: first.partitions == traffic.partitions, 60.0)
    first.stop()
    assert traffic.repeated() == []
    assert len(traffic.settled) > 3_000
