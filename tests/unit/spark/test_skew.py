"""What a ring makes of a skew is what advise says of the same records, and weights even it out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kafka_keyshared.cli.advice.count import SampleCounts
from kafka_keyshared.cli.advice.model import ratio
from kafka_keyshared.cli.weights import read_weights, write_weights
from kafka_keyshared.core.routing.loads import busiest
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.skew import MEASURES, SlotCounts, balanced, spread

KEYS = [b"key-%d" % (number % 300 if number % 3 else number % 7) for number in range(9_000)]


def measured(keys: list[bytes], keyless: int = 0, seconds: float = 0.002) -> SlotCounts:
    """What Spark would count of these keys."""
    slots = Counter(map(slot_of, keys))
    each = {"records": 1.0, "bytes": 100.0, "seconds": seconds}
    top = Counter(keys).most_common(1)[0][1]
    return SlotCounts(
        len(set(keys)),
        {name: (len(keys) + keyless) * each[name] for name in MEASURES},
        {name: keyless * each[name] for name in MEASURES},
        {name: {slot: n * each[name] for slot, n in slots.items()} for name in MEASURES},
        {name: [{name: top * each[name]}] for name in MEASURES},
    )


@pytest.mark.parametrize("workers", [4, 16, 64])
@pytest.mark.parametrize("keyless", [0, 500, 90_000])
def test_a_speed_up_is_what_advise_says_of_the_same_records(workers: int, keyless: int) -> None:
    tally = SampleCounts()
    tally.add(TopicPartition("t", 0), [*KEYS, *[None] * keyless])
    tally.close()
    found = spread(measured(KEYS, keyless), "records", workers)
    most = busiest(tally.loads(workers), tally.records, workers)
    assert found.makespan == most
    assert found.speedup == pytest.approx(ratio(tally.records, most), abs=0.01)
    assert list(found.by_worker.values()) == list(tally.loads(workers).values())


def test_a_makespan_is_no_less_than_the_heaviest_key_and_the_even_part() -> None:
    found = spread(measured(KEYS), "seconds", 16)
    assert found.makespan >= found.bound > 0
    assert found.makespan >= measured(KEYS).totals["seconds"] / 16
    assert found.imbalance == pytest.approx(found.makespan * 16 / measured(KEYS).totals["seconds"])


def test_weights_make_the_busiest_worker_less_busy() -> None:
    found = measured(KEYS)
    weights = balanced(found, "records", 8)
    assert set(weights) == {f"worker-{number}" for number in range(8)}
    before, after = spread(found, "records", 8), spread(found, "records", 8, weights)
    assert after.makespan < 0.9 * before.makespan
    assert sum(after.by_worker.values()) == sum(before.by_worker.values())


def test_where_no_weights_help_each_is_one() -> None:
    one = measured([b"one"] * 100)
    assert set(balanced(one, "records", 4).values()) == {1.0}


def test_weights_come_back_from_their_file_and_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new" / "weights.json"
    write_weights(path, {"worker-0": 1.5, "worker-1": 0.5})
    assert read_weights(path) == {"worker-0": 1.5, "worker-1": 0.5}
    assert read_weights(None) is None
    for text, why in (("{", "not JSON"), ("[]", 'no "weights"'), ('{"weights": {}}', "spark skew")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            read_weights(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_weights(tmp_path / "none")
