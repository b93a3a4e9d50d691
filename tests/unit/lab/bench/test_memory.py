"""What the memory bench reads, and when it refuses to begin."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.lab.bench import memory_side
from kafka_keyshared.lab.bench.memory import MemoryPlan, require_space, summary
from kafka_keyshared.lab.bench.memory_side import Footprint, MemoryMeter, peak_mib, resident_mib

MIB = 1 << 20
SIZE_MIB = 96


def footprint(**changed: Any) -> Footprint:
    found = {
        "peak_mib": 120.0,
        "before_mib": 26.0,
        "mark_mib": 110.0,
        "end_mib": 113.5,
        "curve_mib": [110.0, 113.5],
        "seconds": 12.0,
        "exact": True,
    }
    return Footprint(**{**found, **changed})


def cluster(kind: str, directory: Path | None = None) -> Any:
    return SimpleNamespace(kind=kind, bootstrap="x:1", directory=directory)


def test_what_is_resident_is_read_and_the_peak_stays() -> None:
    before = resident_mib()
    # A mapping of its own, so that closing it gives the memory back at once.
    block = mmap.mmap(-1, SIZE_MIB * MIB)
    # Reserved is not resident.
    assert resident_mib() < before + SIZE_MIB / 2
    block.write(b"x" * (SIZE_MIB * MIB))
    during = resident_mib()
    block.close()
    assert during >= before + SIZE_MIB - 8
    assert peak_mib() >= during - 8
    if memory_side.STATM.exists():
        assert resident_mib() < during - SIZE_MIB / 2


def test_without_proc_the_most_so_far_stands_for_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exact = peak_mib()
    monkeypatch.setattr(memory_side, "STATM", tmp_path / "statm")
    monkeypatch.setattr(memory_side, "STATUS", tmp_path / "status")
    # In MiB on every system, although their units differ.
    assert exact / 2 < resident_mib() == peak_mib() < exact * 20


def test_a_reading_is_taken_at_each_mark_and_at_the_last_record() -> None:
    readings = iter([10.0, 20.0, 21.0, 30.0])
    meter = MemoryMeter(100, 250, lambda: next(readings))
    for done in (0, 99, 100, 150, 199):
        meter.note(done)
    assert (meter.readings, meter.end) == ([10.0], 0.0)
    meter.note(249)
    assert (meter.readings, meter.end) == ([10.0, 20.0], 0.0)
    for _ in range(2):
        meter.note(250)
    assert (meter.readings, meter.end) == ([10.0, 20.0], 21.0)


def test_a_batch_that_passes_several_marks_leaves_a_reading_for_each() -> None:
    meter = MemoryMeter(100, 300, lambda: 7.0)
    meter.note(300)
    assert meter.readings == [7.0, 7.0, 7.0]


def test_growth_counts_from_the_mark_and_the_peak_above_the_bare_loop() -> None:
    bare = footprint(peak_mib=100.0, mark_mib=90.0, end_mib=99.0)
    result = summary(MemoryPlan(), "real", bare, footprint())
    assert result["growth_mib"] == 3.5
    assert result["above_bare_mib"] == 20.0
    assert result["bare_growth_mib"] == 9.0
    assert (result["after_million_mib"], result["end_mib"]) == (110.0, 113.5)
    assert result["keys"] == 10_000_000
    assert result["suspect"] == []


def test_what_makes_the_figures_doubtful_is_said() -> None:
    result = summary(MemoryPlan(keys=500_000), "real", footprint(exact=False), footprint())
    few, guessed = result["suspect"]
    assert "500,000 keys are few" in few
    assert "from 50,000 records on" in few
    assert "the peak is used" in guessed


def test_ten_million_records_are_refused_where_the_disk_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = MemoryPlan().size()
    assert 1_000 * MIB < free < 2_000 * MIB

    def usage(_path: Path) -> Any:
        return SimpleNamespace(free=free)

    monkeypatch.setattr("kafka_keyshared.lab.bench.memory.shutil.disk_usage", usage)
    with pytest.raises(KeySharedError, match=r"--keys 10000000 needs [0-9,]+ MiB of disk") as told:
        require_space(MemoryPlan(), cluster("real", tmp_path))
    assert str(tmp_path) in str(told.value)
    assert "TMPDIR" in str(told.value)
    require_space(MemoryPlan(keys=1_000_000), cluster("real", tmp_path))
    # Where a cluster that is not ours keeps its data is not known.
    require_space(MemoryPlan(), cluster("real"))


def test_more_than_an_embedded_cluster_keeps_is_refused() -> None:
    require_space(MemoryPlan(keys=200_000), cluster("embedded"))
    with pytest.raises(MissingPartError, match="needs a real Kafka"):
        require_space(MemoryPlan(keys=300_000), cluster("embedded"))


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (MemoryPlan(keys=999), "--keys 999"),
        (MemoryPlan(partitions=0), "--partitions 0"),
        (MemoryPlan(value_bytes=-1), "--value-bytes -1"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(plan: MemoryPlan, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        plan.check()
