"""Rights that the simulated brokers refuse, each until it is granted again.

What reads a topic and what takes its commits are different brokers, and a changed access-control
list does not reach all of them at once. So fetches and commits of a topic are refused apart.
"""

from __future__ import annotations


class Rights:
    """What is refused now: fetches or commits by topic, and everything of the group."""

    def __init__(self) -> None:
        self.fetches: dict[str, None] = {}
        self.commits: dict[str, None] = {}
        self.group = False

    def may_read(self, topic: str) -> bool:
        """Say whether a topic may be fetched from."""
        return topic not in self.fetches

    def grant_all(self) -> None:
        """Refuse nothing any more."""
        self.fetches.clear()
        self.commits.clear()
        self.group = False
