"""Processor time and peak memory of a process and its descendants."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BROKER = "kafka.Kafka"
"""Text in the command of a broker, which serves every side alike and is left out."""

_TICK = os.sysconf("SC_CLK_TCK")


class ProcessSample(NamedTuple):
    """A process: its number, its parent's, its command and its own processor time in seconds.

    ``seconds`` includes those of children that it has waited for.
    """

    number: int
    parent: int
    command: str
    seconds: float


def family(number: int) -> list[ProcessSample]:
    """Return a process and all its descendants, without brokers."""
    rows = {each.number: each for each in _every()}
    found, before = {number}, 0
    while len(found) > before:
        before = len(found)
        found |= {each.number for each in rows.values() if each.parent in found}
    return [rows[each] for each in sorted(found) if each in rows and BROKER not in rows[each][2]]


def _every() -> Iterator[ProcessSample]:
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            stat = (place / "stat").read_text()
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        told = stat[stat.rindex(")") + 2 :].split()
        seconds = sum(map(int, told[11:15])) / _TICK
        yield ProcessSample(int(place.name), int(told[1]), command, seconds)


class Peak:
    """The most bytes that each process of a family has had in memory."""

    def __init__(self) -> None:
        self.most: dict[int, tuple[int, str]] = {}

    def look(self, number: int) -> None:
        """Record the kernel's high-water mark of each process that exists."""
        for each in family(number):
            kept = _high_water(each.number)
            if kept >= self.most.get(each.number, (0, ""))[0]:
                self.most[each.number] = (kept, each.command)

    def total(self, having: str = "") -> int:
        """Return the sum over processes with this text in their command, including ended ones."""
        return sum(size for size, command in self.most.values() if having in command)

    def largest(self, having: str = "") -> int:
        """Return the largest peak of one of them."""
        return max((size for size, command in self.most.values() if having in command), default=0)


def _high_water(number: int) -> int:
    try:
        told = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return 0
    [*kept] = [line for line in told.splitlines() if line.startswith("VmHWM")]
    return int(kept[0].split()[1]) << 10 if kept else 0


@contextmanager
def watched(number: int) -> Iterator[Peak]:
    """Watch a family until the end. A process that lives for less than 0.2 s may be missed."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            peak.look(number)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        peak.look(number)
