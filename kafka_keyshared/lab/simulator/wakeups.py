"""Scheduling of the turns of workers in a simulated pool."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kafka_keyshared.lab.simulator.pool import PoolHabits
from kafka_keyshared.lab.simulator.pool_probe import Place, PoolProbe
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess


class Turns:
    """Gives a worker one turn a little after it is woken, however often it is woken.

    ``turn`` is called then, unless the process has gone.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        telling: PoolProbe,
        chance: Random,
        habits: PoolHabits,
        turn: Callable[[Place], None],
    ) -> None:
        self._process = process
        self._telling = telling
        self._chance = chance
        self._habits = habits
        self._turn = turn
        self._woken: set[Place] = set()

    def soon(self, action: Callable[[], None]) -> None:
        """Run an action after the time that a woken worker takes."""
        self._process.timeline.after(self._chance.expovariate(1 / self._habits.wakes), action)

    def wake(self, place: Place) -> None:
        """Give a worker a turn a little later."""
        if place not in self._woken:
            self._woken.add(place)
            self.soon(partial(self.take, place))

    def take(self, place: Place) -> None:
        """Give it the turn now."""
        self._woken.discard(place)
        if not self._telling.ended and self._process.alive:
            self._turn(place)
