"""The measurement of a compiled core, tiny and with nothing compiled: it measures what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.errors import KeySharedError
from tests.benchmarks.compiled import ROOT, TAKEN_BY_MYPYC, core_side, in_turn, side_of


def test_the_core_takes_time_for_records_that_are_all_settled_in_the_end() -> None:
    found = core_side(4_000)
    assert not found.compiled
    assert found.ns_a_record > 0


def test_a_copy_that_is_not_compiled_is_measured_as_none(tmp_path: Path) -> None:
    (tmp_path / "kafka_keyshared").symlink_to(ROOT / "kafka_keyshared")
    with pytest.raises(KeySharedError, match="compiled is False"):
        side_of(tmp_path, 2_000)


def test_each_side_begins_in_its_turn() -> None:
    one, other = Path("one"), Path("other")
    begins = [in_turn([one, other], number)[0] for number in range(4)]
    assert begins == [ROOT, one, other, ROOT]


def test_what_is_given_to_mypyc_is_there() -> None:
    core = ROOT / "kafka_keyshared" / "core"
    assert all((core / f"{name}.py").is_file() for name in TAKEN_BY_MYPYC.split())
