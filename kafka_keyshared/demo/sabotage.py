"""Breaks the contract on purpose, to show that the demo's judge would see it.

``keyshared demo --sabotage KIND`` must end with the matching count above 0 and status 1. A detector that
was never seen to fire proves nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Literal, get_args

from kafka_keyshared.core.events import Commit, CommitAnswered, Slice
from kafka_keyshared.demo.ledgers import AuditedClient
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.pool import Handover
from kafka_keyshared.runtime.threads import ThreadPool

Sabotage = Literal["reorder", "drop", "duplicate", "commit-early"]
KINDS: tuple[str, ...] = get_args(Sabotage)
EVERY = 20
EARLY_BY = 500


def check_kind(kind: str | None) -> None:
    """Raise :class:`ConfigError` for a kind of sabotage that there is not."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--sabotage {kind}: give one of {', '.join(KINDS)}")


class SabotagedPool(ThreadPool):
    """A pool that mistreats one slice in twenty behind the core's back."""

    kind: str
    _submitted = 0

    def submit(self, share: Slice) -> None:
        """Hand the slice over, now and then wrongly."""
        self._submitted += 1
        if self._submitted % EVERY == 0 and len(share.records) > 1:
            if self.kind == "reorder":
                share.records.reverse()
            elif self.kind == "drop":
                return self._hand(share, share.records[1:])
            elif self.kind == "duplicate":
                return self._hand(share, [*share.records, share.records[-1]])
        super().submit(share)
        return None

    def _hand(self, share: Slice, records: list) -> None:  # type: ignore[type-arg]
        handover = Handover(share)
        stop = handover.todo.pop()
        handover.todo = deque([*records, stop])
        cell = self._cells[share.subscription, share.worker]
        cell.given[share] = handover
        cell.inbox.put(handover)


class HastyClient(AuditedClient):
    """A client that commits beyond what is safe."""

    def commit(self, commit: Commit) -> CommitAnswered | None:
        """Send positions that are too high."""
        early = {
            partition: replace(entry, position=entry.position + EARLY_BY, metadata="")
            for partition, entry in commit.entries.items()
        }
        return super().commit(Commit(early))


def sabotaged_pool(kind: str) -> type[ThreadPool]:
    """Return the pool class for this kind of sabotage."""
    return type("SabotagedPool", (SabotagedPool,), {"kind": kind})
