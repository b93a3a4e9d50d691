"""The measurement of what a key that hangs leaves to others, tiny: others are done."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.limits.blocked_quota import LookAhead
from kafka_keyshared.errors import KeySharedError
from tests.benchmarks import slow_key, verify
from tests.benchmarks.slow_key import SlowPlan, measure

PLAN = SlowPlan(seconds=8.0, pairs=1)


def test_others_go_on_while_a_hot_key_hangs_and_that_is_judged() -> None:
    found = measure(PLAN)
    (case,) = [case for case in verify.CASES if case.name == "slow-key"]
    assert {floor.figure for floor in case.floors} <= found.keys()
    assert found["kept"] >= 0.99
    # As lax as a busy machine may need; `make verify` holds it to less.
    assert found["added_share"] < 0.5


def test_it_tells_where_what_waits_for_the_hot_key_fills_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LookAhead, "worth_it", lambda _: False)
    monkeypatch.setattr(LookAhead, "due", lambda *_: False)
    assert measure(PLAN)["kept"] < 0.9


def test_where_nothing_is_done_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_key.Run, "_fetch", lambda *_: None)
    with pytest.raises(KeySharedError, match="0 records were done where nothing hung"):
        measure(PLAN)
