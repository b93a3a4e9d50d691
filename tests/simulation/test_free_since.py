"""Whoever is held up by the waits of others is known to be, while it lasts and afterwards."""

from __future__ import annotations

from kafka_keyshared.lab.simulator.timeline import SimulatedProcess, Timeline


def test_a_process_is_held_up_by_who_waits_inside_of_its_wait() -> None:
    timeline = Timeline()
    held, slow = SimulatedProcess(timeline), SimulatedProcess(timeline)
    seen: list[float] = []

    def looks() -> None:
        seen.append(held.free_since())

    timeline.after(1.0, lambda: slow.wait(5.0))
    for second in (0.5, 1.5, 3.0):
        timeline.after(second, looks)
    held.wait(2.0)
    assert seen == [float("-inf"), float("-inf"), float("inf")]
    assert timeline.now == 1_006.0
    assert held.free_since() == 1_006.0
    assert slow.free_since() == float("-inf")


def test_a_wait_inside_of_the_own_wait_holds_nobody_up() -> None:
    timeline = Timeline()
    process = SimulatedProcess(timeline)
    seen: list[float] = []
    timeline.after(0.0, lambda: process.wait(5.0))
    timeline.after(4.0, lambda: seen.append(process.free_since()))
    process.wait(1.0)
    assert seen == [float("-inf")]
    assert process.free_since() == 1_005.0
