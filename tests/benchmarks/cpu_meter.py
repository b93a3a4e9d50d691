"""Processor time of a process and its descendants."""

from __future__ import annotations

from kafka_keyshared.lab.bench.processes import family


class CpuMeter:
    """Counts the processor time of a family from now on."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._before = {each.number: each.seconds for each in family(number)}

    def seconds(self) -> float:
        """Return the processor time used since the meter was made.

        The time of an ended process counts with its parent, once the parent has waited for it. Its
        use from before the start is then subtracted.
        """
        after = {each.number: each.seconds for each in family(self._number)}
        return sum(after.values()) - sum(self._before.values())
