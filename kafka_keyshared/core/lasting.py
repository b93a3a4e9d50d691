"""For how long something has been so, of what is only looked at: each look says what is so now."""

from __future__ import annotations

from collections.abc import Hashable


class Lasting:
    """Since when each thing has been seen to be so, look after look. Times are monotonic."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()

    def seconds(self, what: Hashable, now: float) -> float:
        """Take note that it is so in this look; return for how many seconds it has been."""
        self._seen.add(what)
        return now - self._since.setdefault(what, now)

    def over(self) -> None:
        """End a look: what was not noted in it is so no more."""
        self._since = {what: since for what, since in self._since.items() if what in self._seen}
        self._seen.clear()
