"""A random way through what a core may have a pool do with one worker, while records run there."""

from __future__ import annotations

import random
from typing import Any

from kafka_keyshared.model import Drop
from tests.support.pool_rules import At, selecting
from tests.support.pool_sides import Fake, Later, Side, Threads
from tests.support.records import ERROR, FakeRecord, record


class Walk:
    """One way, of a side that is new; what it meets of note it counts with the rules."""

    def __init__(self, side: Side, chance: random.Random) -> None:
        self.side = side
        self.chance = chance
        # In any order: what failed, and what was read again, comes behind what is later.
        self.offsets = iter(chance.sample(range(1_000), 1_000))
        self.unfenced: list[Any] = []
        if isinstance(side, Later):
            side.pool.hesitates = lambda: chance.random() < 0.3

    def _records(self) -> list[FakeRecord]:
        keys = [*"aabc", None]
        return [
            record(next(self.offsets), self.chance.choice(keys))
            for _ in range(self.chance.randint(1, 4))
        ]

    def go(self, steps: int) -> None:
        """Do so many things, then let everything come to its end."""
        for _ in range(steps):
            self._step()
        self._finish()

    def _start(self) -> None:
        rules = self.side.rules
        if self.side.start() is None:
            rules.met["kept waiting"] += bool(rules.at(At.WAITING))

    def _step(self) -> None:
        side, chance, rules = self.side, self.chance, self.side.rules
        if not side.serial and chance.random() < 0.5:
            self._start()
        elif not rules.running():
            self._submit()
            self._start()
        else:
            self._act(chance.random())

    def _act(self, roll: float) -> None:
        side, chance, rules = self.side, self.chance, self.side.rules
        if roll < 0.25:
            self._submit()
        elif roll < 0.4:
            given = [each for each in rules.given_now() if chance.random() < 0.5]
            side.ask(selecting(given) if chance.random() < 0.6 else None)
        elif roll < 0.5 and self.unfenced:
            side.fence(self.unfenced.pop(0))
        elif roll < 0.55:
            side.lapse(rules.given_now())
        elif roll < 0.7:
            side.answer()
            side.hear()
        elif roll < 0.75 and isinstance(side, Threads | Fake):
            self._lose(side)
        else:
            self._end()

    def _lose(self, side: Threads | Fake) -> None:
        (item,) = side.rules.running()
        if item.key() is not None:
            self.unfenced.append(item)
        side.lose()
        side.rules.met["lost before the answer"] += bool(side.rules.asked)
        side.replaced()
        side.rules.met["replaced"] += 1
        self._start()

    def _submit(self) -> None:
        side = self.side
        side.answer()
        side.hear()
        assert not side.rules.asked, "a recall is not answered"
        if side.serial and self.chance.random() < 0.5:
            side.together(*self._records())
        else:
            side.submit(*self._records())

    def _end(self) -> None:
        side, chance = self.side, self.chance
        item = chance.choice(side.rules.running())
        roll = chance.random()
        if roll < 0.3:
            side.end(ERROR, item)
            if item.key() is not None:
                self.unfenced.append(item)
        else:
            side.end(Drop() if side.serial and roll < 0.4 else None, item)
        if side.serial:
            self._start()

    def _finish(self) -> None:
        for item in self.side.rules.running():
            if item in self.side.rules.running():
                self.side.end(None, item)
        self.side.work()
        for item in self.unfenced:
            self.side.fence(item)
        self.side.work()
        self.side.answer()
        self.side.hear()
