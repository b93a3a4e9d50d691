"""A random way through what a core may have a pool do with one worker, while records run there."""

from __future__ import annotations

import random
from typing import Any

from kafka_keyshared.model import Drop
from tests.conformance.pool_rules import At, selecting
from tests.conformance.pool_sides import Later, Members, Side
from tests.support.records import ERROR, FakeRecord, record


class Walk:
    """One way, of a side that is new; what it meets of note it counts with the rules."""

    def __init__(self, side: Side, chance: random.Random) -> None:
        self.side = side
        self.chance = chance
        # In any order: what failed, and what was read again, comes behind what is later.
        self.offsets = iter(chance.sample(range(1_000), 1_000))
        self.unfenced: list[Any] = []
        # Members: those whose leases have ended, and of which they do not know.
        self.over: list[Any] = []
        if isinstance(side, Later):
            side.pool.hesitates = lambda: chance.random() < 0.3

    def _records(self) -> list[FakeRecord]:
        shut = {lane[2].decode() for lane in self.side.rules.shut}
        keys = [key for key in [*"aabc", None] if key not in shut]
        return [
            record(next(self.offsets), self.chance.choice(keys))
            for _ in range(self.chance.randint(1, 4))
        ]

    def go(self, steps: int) -> None:
        """Do so many things, then let everything come to its end."""
        for _ in range(steps):
            self._step()
        if (
            self.side.serial
            and self.side.mortal
            and self.side.rules.running()
            and self.chance.random() < 0.5
        ):
            self._evict()
        else:
            self._finish()

    def _start(self) -> None:
        rules = self.side.rules
        if self.side.start() is None:
            rules.met["kept waiting"] += bool(rules.at(At.WAITING))

    def _step(self) -> None:
        side, chance, rules = self.side, self.chance, self.side.rules
        if rules.beside() and chance.random() < 0.15:
            self._end_beside()
        elif not side.serial and chance.random() < 0.5:
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
        elif roll < 0.75 and side.mortal:
            self._lose()
        elif roll < 0.82 and side.timed:
            self._time_out()
        elif roll < 0.85 and self.over:
            self._speak_of_what_is_over()
        else:
            self._end()

    def _lose(self) -> None:
        side = self.side
        (item,) = side.rules.running()
        if item.key() is not None:
            self.unfenced.append(item)
        side.lose()
        side.rules.met["lost before the answer"] += bool(side.rules.asked)
        for _ in range(self.chance.choice((0, 0, 1, 5))):
            side.fail_to_replace()
            assert side.lost() == [side.whose]
            side.rules.met["came back after a while"] += 1
        side.replaced()
        side.rules.met["replaced"] += 1
        self._start()

    def _time_out(self) -> None:
        """Some of what runs is past its time, or was when somebody looked."""
        side, chance, rules = self.side, self.chance, self.side.rules
        side.heeds = chance.random() < 0.5
        running = rules.running()
        # Of one beside which its worker goes on nothing is asked any more.
        given = [each for slice_ in rules.given_now() for each in slice_.records]
        over = [each for each in given if each not in rules.beside()]
        those = [chance.choice(running)] if chance.random() < 0.9 else [chance.choice(over)]
        if not side.serial and chance.random() < 0.5:
            those = [each for each in running if chance.random() < 0.5] or those
        failed = rules.at(At.FAILED)
        fate = side.time_out(*those)
        rules.met[fate.value] += 1
        new = [each for each in those if each.offset() in rules.at(At.FAILED)]
        self.unfenced += [e for e in new if e.key() is not None and e.offset() not in failed]
        if isinstance(side, Members):
            self.over += [each for each in running if each not in rules.running()]
        self._start_if_idle()

    def _start_if_idle(self) -> None:
        if self.side.serial and not self.side.rules.running():
            self._start()

    def _speak_of_what_is_over(self) -> None:
        """A member settles, or fails, what was taken from it."""
        assert isinstance(self.side, Members)
        slice_ = self.side.rules.slice_of(self.over.pop())
        self.side.hear()
        posted = len(self.side.rules.posted)
        if self.chance.random() < 0.5:
            assert self.side.cell.settle([slice_]) == [slice_]
        else:
            assert not self.side.cell.fail(slice_, ERROR)
        self.side.hear()
        assert len(self.side.rules.posted) == posted
        self.side.rules.met["spoke of what was over"] += 1

    def _end_beside(self) -> None:
        side, chance, rules = self.side, self.chance, self.side.rules
        item = chance.choice(rules.beside())
        roll = chance.random()
        ending = ERROR if roll < 0.3 else Drop() if roll < 0.4 else None
        side.end_beside(item, ending, dies=0.4 < roll < 0.5)
        rules.met["ended beside, by death" if 0.4 < roll < 0.5 else "ended beside"] += 1
        if item.offset() in rules.at(At.FAILED) and item.key() is not None:
            self.unfenced.append(item)

    def _submit(self) -> None:
        side = self.side
        side.answer()
        side.hear()
        assert not side.rules.asked, "a recall is not answered"
        if side.rules.waits:
            return
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

    def _evict(self) -> None:
        """Lose the worker for good: its stuck records are all that is left of it."""
        side, rules = self.side, self.side.rules
        side.lose()
        for _ in range(5):
            side.fail_to_replace()
        settle = self.chance.random() < 0.5
        rules.met["evicted, settled" if settle else "evicted, given back"] += 1
        rules.met["evicted beside a stuck record"] += bool(rules.beside())
        side.evict(settle=settle)
        while rules.beside():
            self._end_beside()

    def _finish(self) -> None:
        while self.side.rules.beside():
            self._end_beside()
        for item in self.side.rules.running():
            if item in self.side.rules.running():
                self.side.end(None, item)
        self.side.work()
        for item in self.unfenced:
            self.side.fence(item)
        self.side.work()
        self.side.answer()
        self.side.hear()
