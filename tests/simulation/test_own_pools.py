"""The package's own parent of processes, and its own members, in made-up time.

What they go through, and that faults in them are found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.processes.process_batches import ProcessBatches
from kafka_keyshared.executors.processes.remote_batch import SentSlice
from kafka_keyshared.executors.processes.shm_progress import ProgressBoard
from kafka_keyshared.executors.processes.worker_process import ProcessEndedError
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.lab.simulator.pool import PoolHabits
from kafka_keyshared.lab.simulator.processes import SimProcesses
from kafka_keyshared.lab.simulator.pulling import SimMembers
from kafka_keyshared.lab.simulator.run import SeedOutcome, run_seed
from kafka_keyshared.lab.simulator.stepped import PoolKind
from kafka_keyshared.lab.simulator.virtual_process import VirtualProcess
from kafka_keyshared.model import Record
from tests.setup.faults import plan_of

DISTURBED = {
    "handlers hung": 5.0,
    "a worker died": 5.0,
    "a subscription was resized": 5.0,
    "a member was stopped": 3.0,
}


def run(kind: PoolKind, seed: int = 4, steps: int = 600, *, summed: bool = False) -> SeedOutcome:
    """Run a seed whose workers are of this kind, with much of what is hard on them."""
    plan = plan_of(seed, "none")
    settings = SubscriptionSettings(workers=worker_names(3), ack_timeout=1.0, hands_over=True)
    if kind == "lease":
        settings = replace(
            settings, hands_over=False, individually=True, one_in_flight_per_key=True
        )
    pool = PoolHabits(wakes=0.02, kind=kind, own=True, release_fails=0.1, at_once=10)
    member = replace(plan.member, subscriptions=(settings,), pool=pool, rests=0.1)
    habits = replace(plan.habits, failing=0.2, at_once=0.3, typical=0.02)
    plan = replace(plan, member=member, habits=habits, keys=20, backlog=200, burst=20)
    return run_seed(seed, steps, replace(plan, disturbances=DISTURBED), summed=summed)


class Counts:
    """Counts what a method is called with that is worth it."""

    def __init__(self, patch: pytest.MonkeyPatch, of: type[Any], name: str) -> None:
        self.found: list[Any] = []
        called = getattr(of, name)

        def counted(itself: Any, *given: Any) -> Any:
            found = called(itself, *given)
            if found not in (None, [], False):
                self.found.append(found)
            return found

        patch.setattr(of, name, counted)


def test_processes_die_are_killed_and_their_last_word_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[Record] = []
    killed: list[bool] = []
    kill = VirtualProcess.kill

    def told(process: VirtualProcess) -> None:
        if process.alive and process._record is not None:
            killed.append(process.past_its_time)
        elif process.alive and process._number and not process._said:
            lost.append(process._records[0])
        kill(process)

    not_made = Counts(monkeypatch, SimProcesses, "dead")
    monkeypatch.setattr(VirtualProcess, "kill", told)
    found = [run("process", seed) for seed in (4, 6)]
    assert [each.violations for each in found] == [[], []]
    for state in ("worker death mid-record", "state handed over", "drain blocked, then released"):
        assert all(each.sometimes[state] for each in found), state
    assert {*killed} == {True, False}, "for a record past its time, and by chance"
    assert lost, "between two records, with a word on its way or to come"
    assert not_made.found, "somebody was found dead at a heartbeat"


def test_members_settle_in_any_order_too_late_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_out = Counts(monkeypatch, Cell, "end_leases")
    late = Counts(monkeypatch, Cell, "settle")
    left = Counts(monkeypatch, SimMembers, "departed")
    found = run("lease", 7)
    assert not found.violations
    assert found.sometimes["record ended before one that began before it"]
    assert timed_out.found and late.found and left.found


@pytest.mark.parametrize("kind", ["process", "lease"])
def test_the_same_seed_is_the_same_run(kind: PoolKind) -> None:
    assert run(kind, 2, 200, summed=True).digest == run(kind, 2, 200, summed=True).digest != ""


def found_in(kind: PoolKind) -> set[str]:
    """What is violated in some seeds, each by the first of its words."""
    return {each.partition(" ")[0] for seed in (4, 6, 7) for each in run(kind, seed).violations}


def test_a_process_that_forgets_what_it_had_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_all_again(sent: SentSlice, _now: float, *, counts: bool) -> int | None:
        del counts
        with sent._lock:
            sent._until = sent._at
            return None

    monkeypatch.setattr(SentSlice, "broken_off", runs_all_again)
    assert "I6" in found_in("process")


def test_a_dead_process_that_fails_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def says_nothing(
        _: ProcessBatches, cell: Any, sent: SentSlice, _count: int, _error: ProcessEndedError
    ) -> None:
        sent.broken_off(0.0)
        cell.reported = sent.last()

    monkeypatch.setattr(ProcessBatches, "_broken_off", says_nothing)
    assert found_in("process") & {"I3", "I4", "I1"}


def test_records_that_start_although_they_were_taken_back_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProgressBoard, "freeze", ProgressBoard.started)
    assert found_in("process") & {"I2", "I3", "I6", "I7", "HistoryError"}


def test_a_lane_that_goes_on_behind_a_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailedLanes, "holds", lambda lanes, record: False)
    assert found_in("process") & {"I3", "InvariantError"}


def test_a_member_that_forgets_what_it_has_received_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Cell, "progress", lambda cell: {})
    assert "I2" in found_in("lease")
