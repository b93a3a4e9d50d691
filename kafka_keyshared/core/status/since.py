"""Tracks how long a polled condition has been true."""

from __future__ import annotations

from collections.abc import Hashable


class Lasting:
    """Start time of each condition that was true in every poll since; times are monotonic."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()

    def seconds(self, what: Hashable, now: float) -> float:
        """Note that a condition is true in this poll; return for how many seconds it has been."""
        self._seen.add(what)
        return now - self._since.setdefault(what, now)

    def over(self) -> None:
        """End a poll: conditions that were not noted in it are no longer true."""
        self._since = {what: since for what, since in self._since.items() if what in self._seen}
        self._seen.clear()
