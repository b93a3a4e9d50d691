"""What many seeds come to: when a run has failed, and what it says then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from kafka_keyshared.cli import simulate
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.lab.simulator.coverage import UNREACHED
from kafka_keyshared.lab.simulator.many import (
    OFTEN,
    WHOLE_SEEDS,
    WHOLE_STEPS,
    SeedsReport,
    run_seeds,
)
from kafka_keyshared.lab.simulator.run import SeedOutcome


def outcome(seed: int, sometimes: dict[str, int], *violations: str) -> SeedOutcome:
    return SeedOutcome(seed, [*violations], 10, 5, 20, "", 1.0, 2.0, Counter(sometimes))


def report(*, whole: bool, count: int, violations: Sequence[str] = ()) -> SeedsReport:
    """A run of one seed, in which one state was reached so often, and another one often."""
    found = SeedsReport(whole=whole)
    found.add(outcome(1, {"rare": count, "frequent": OFTEN}, *violations))
    return found


def test_a_whole_run_fails_that_has_met_a_rare_state_too_seldom() -> None:
    assert report(whole=True, count=0).failed
    assert report(whole=True, count=OFTEN - 1).failed
    assert not report(whole=True, count=OFTEN).failed
    assert not report(whole=False, count=0).failed
    assert report(whole=False, count=OFTEN, violations=["something"]).failed


def test_a_smaller_run_tells_what_it_has_met_too_seldom() -> None:
    shown = report(whole=False, count=7).shown()
    assert shown["seldom"] == {"rare": 7}
    assert shown["sometimes"] == {"rare": 7, "frequent": OFTEN}


@pytest.mark.parametrize(
    ("seeds", "steps", "whole"),
    [
        (WHOLE_SEEDS, WHOLE_STEPS, True),
        (WHOLE_SEEDS - 1, WHOLE_STEPS, False),
        (WHOLE_SEEDS, WHOLE_STEPS - 1, False),
    ],
)
def test_a_run_is_whole_from_some_size_on(
    seeds: int, steps: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kafka_keyshared.lab.simulator.many.run_seed", lambda seed, **how: outcome(seed, {})
    )
    assert run_seeds(range(seeds), steps, 1, lambda outcome: None).whole == whole


def test_a_whole_run_names_what_it_has_met_too_seldom_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulate, "run_seeds", lambda *given: report(whole=True, count=3))
    assert (
        simulate.simulate_verb([1], 10, 1, one=False, shown=OutputFormat.TABLE) == simulate.FAILED
    )
    assert "'rare' occurred 3 times" in capsys.readouterr().err
    monkeypatch.setattr(simulate, "run_seeds", lambda *given: report(whole=False, count=3))
    assert simulate.simulate_verb([1], 10, 1, one=False, shown=OutputFormat.TABLE) == 0
    assert "1 of 2 rare states occurred fewer than 100 times" in capsys.readouterr().err


def test_what_no_run_reaches_is_asked_of_none() -> None:
    found = SeedsReport(whole=True)
    found.add(outcome(1, dict.fromkeys(UNREACHED, 0)))
    assert not found.failed
