"""A batch that was lost with an executor is run again, and any other failure ends the run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared.spark.driver import run
from kafka_keyshared.spark.driver.lost import TornBatchError
from kafka_keyshared.spark.driver.stop import Stop

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

    def post(self, act: Callable[[], None]) -> None:
        act()


def spark() -> Any:
    context = SimpleNamespace(
        setJobGroup=lambda *_, **__: None,
        cancelJobGroup=lambda *_: None,
        getLocalProperty=lambda _: None,
        setLocalProperty=lambda *_: None,
    )
    conf: dict[str, str] = {}
    runtime = SimpleNamespace(get=conf.get, set=conf.__setitem__, unset=conf.pop)
    return SimpleNamespace(conf=runtime, sparkContext=context)


def run_with(
    monkeypatch: pytest.MonkeyPatch,
    *ends: str | Exception | None,
    stop: Stop | None = None,
    streams: bool = False,
    asked_in: int = 0,
    session: Any = None,
) -> run.SparkRunOutcome:
    """Run batches that end so, one after the other: with this error, or well.

    ``stop`` is asked while the batch of this number runs.
    """
    left = list(ends)

    def batch(self: Any) -> bool:
        if (error := left.pop(0)) is not None:
            raise error if isinstance(error, Exception) else RuntimeError(error)
        self.done.batches += 1
        if stop is not None and self.done.batches == asked_in:
            stop.ask()
        return bool(left)

    monkeypatch.setattr(run, "SoleMember", Member)
    monkeypatch.setattr(run._Run, "batch", batch)
    settings = SimpleNamespace(hands_over=False)
    wanted: Any = SimpleNamespace(
        check=lambda: None,
        settings=settings,
        conf={"group.id": "billing"},
        topics=["orders"],
        outputs=None,
    )
    done = run.run_batches(session or spark(), wanted, stop=stop, streams=streams)
    assert stop is not None or not left
    return done


def test_a_batch_that_is_lost_with_an_executor_is_run_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done = run_with(monkeypatch, None, LOST, None, LOST, LOST, LOST, None)
    assert done.batches == 3
    assert done.ended == "caught_up"
    assert caplog.text.count("it is planned and run again") == 4


def test_so_is_one_of_which_there_are_parts_of_two_attempts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where both attempts of a task came to their end: each read finds either of the two."""
    torn = TornBatchError("3 dead letters are there of 4 that the tasks have made")
    assert run_with(monkeypatch, torn, None).batches == 1
    assert "ran a task twice" in caplog.text


def test_four_times_in_a_row_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="Checkpoint block"):
        run_with(monkeypatch, None, LOST, LOST, LOST, LOST)


def test_any_other_failure_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="no broker"):
        run_with(monkeypatch, LOST, "no broker answers")


@pytest.mark.parametrize("streams", [False, True])
def test_a_stop_ends_a_run_behind_the_batch_that_runs(
    monkeypatch: pytest.MonkeyPatch, *, streams: bool
) -> None:
    done = run_with(monkeypatch, None, None, None, stop=Stop(), streams=streams, asked_in=2)
    assert (done.batches, done.ended) == (2, "stopped")
    stop = Stop()
    stop.ask()
    done = run_with(monkeypatch, None, None, stop=stop, streams=streams)
    assert (done.batches, done.ended) == (0, "stopped")


def test_a_stop_in_the_last_batch_is_no_early_end(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_with(monkeypatch, None, None, stop=Stop(), asked_in=2)
    assert (done.batches, done.ended) == (2, "caught_up")


@pytest.mark.parametrize("rows", ["7", None])
def test_a_session_of_the_callers_has_its_setting_back(
    monkeypatch: pytest.MonkeyPatch, rows: str | None
) -> None:
    session, name = spark(), "spark.sql.execution.arrow.maxRecordsPerBatch"
    if rows is not None:
        session.conf.set(name, rows)
    with pytest.raises(RuntimeError):
        run_with(monkeypatch, None, "no broker answers", session=session)
    assert session.conf.get(name) == rows
