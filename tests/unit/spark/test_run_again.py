"""A batch that was lost with an executor is run again, and any other failure ends the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared.spark.driver import run

LOST = "Job aborted: java.lang.RuntimeError: Checkpoint block rdd_15_0 not found! Either the"


class Member:
    """The group's only member, which nobody joins."""

    def __init__(self, *_given: object) -> None:
        self.open = 0

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        assert not self.open

    def begin(self) -> bool:
        self.open += 1
        return True

    def end(self) -> None:
        self.open -= 1

    def refuse_failed(self) -> None:
        """It is still the only one."""


def spark() -> Any:
    context = SimpleNamespace(
        setJobGroup=lambda *_, **__: None,
        cancelJobGroup=lambda *_: None,
        setLocalProperty=lambda *_: None,
    )
    return SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None), sparkContext=context)


def run_with(monkeypatch: pytest.MonkeyPatch, *ends: str | None) -> run.Outcome:
    """Run batches that end so, one after the other: with this text, or well."""
    left = list(ends)

    def batch(self: Any) -> bool:
        if (text := left.pop(0)) is not None:
            raise RuntimeError(text)
        self.done.batches += 1
        return bool(left)

    monkeypatch.setattr(run, "SoleMember", Member)
    monkeypatch.setattr(run._Run, "batch", batch)
    settings = SimpleNamespace(hands_over=False)
    wanted: Any = SimpleNamespace(
        check=lambda: None, settings=settings, conf={"group.id": "billing"}, topics=["orders"]
    )
    done = run.run_batches(spark(), wanted)
    assert not left
    return done


def test_a_batch_that_is_lost_with_an_executor_is_run_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done = run_with(monkeypatch, None, LOST, None, LOST, LOST, LOST, None)
    assert done.batches == 3
    assert done.ended == "caught_up"
    assert caplog.text.count("it is planned and run again") == 4


def test_four_times_in_a_row_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="Checkpoint block"):
        run_with(monkeypatch, None, LOST, LOST, LOST, LOST)


def test_any_other_failure_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="no broker"):
        run_with(monkeypatch, LOST, "no broker answers")
