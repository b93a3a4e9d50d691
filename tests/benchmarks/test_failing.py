"""The measurement of told failures, tiny, and how many lines there are however many failures."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.telemetry.failure_kinds import KINDS_MAX
from kafka_keyshared.errors import KeySharedError
from tests.benchmarks import failing
from tests.benchmarks.failing import Failing, FailingPlan, lines_of, measure, silence, to_nowhere

LINES_MAX = 20
"""In any second, whatever fails."""


def test_both_sides_fail_as_often_and_one_of_them_is_told_of() -> None:
    found = measure(FailingPlan(failures=2_500, pairs=1, per_second=500, seconds=15.0, kinds=3))
    assert found["ratios"] == [found["ratio"]]
    assert found["silent_us"] > 0
    assert found["told_us"] > 0
    assert found["most_lines"] == 3, "the first of each kind"
    assert found["lines"] == 4, "and one line for the others of ten seconds"


def test_what_is_left_out_on_one_side_is_what_tells() -> None:
    plan = FailingPlan(per_second=500)
    made = Failing(plan)
    with to_nowhere(), silence():
        made.run(7_500)
    assert made.lines.total() == 0
    assert made.core.subscriptions["default"].counts.failed == 7_500


def test_a_hundred_thousand_failures_in_a_second_are_a_few_lines() -> None:
    plan = FailingPlan(seconds=0.6, kinds=KINDS_MAX + 10)
    assert max(lines_of(plan).values()) <= LINES_MAX
    assert plan.per_second == 100_000


def test_a_run_in_which_something_did_not_fail_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failing, "_handlers", lambda _: [lambda record: None])
    with pytest.raises(KeySharedError, match="did not"):
        Failing(FailingPlan()).run(1)
