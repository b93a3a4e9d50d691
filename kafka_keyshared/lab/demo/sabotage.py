"""Deliberate contract violations that the demo's judge must detect.

``keyshared demo --sabotage KIND`` must end with the matching count above 0 and status 1. A detector
that has never fired proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.pristine import Originals
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import Record

Sabotage = Literal["reorder", "drop", "duplicate", "commit-early"]
KINDS: tuple[str, ...] = get_args(Sabotage)
EVERY_SLICE = 20
EVERY_RECORD = 500
EARLY_BY = 500


def check_kind(kind: str | None, pool: str = "thread") -> None:
    """Raise :class:`ConfigError` for an unknown kind of sabotage, or one not valid in that pool."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--sabotage {kind}: give one of {', '.join(KINDS)}")
    if kind is not None and pool != "thread":
        raise ConfigError(f"--sabotage {kind}: it breaks threads alone; leave out --workers")


class ReorderingPool(ThreadPool):
    """A pool that reverses one slice in twenty."""

    _submitted = 0

    def submit(self, slice_: Slice) -> None:
        """Hand the slice over, at times in the wrong order."""
        self._submitted += 1
        if self._submitted % EVERY_SLICE == 0:
            # In place, so that the core accepts the wrong order as its own. Otherwise it would
            # stop.
            records = cast("list[Record]", slice_.records)
            records.reverse()
            Originals.__init__(slice_.came, records, slice_.came.topic)
        super().submit(slice_)


class HastyClient(AuditedClient):
    """A client that commits beyond the safe position, and hides that from the core.

    The core gets an answer for the commit that it sent. It waits for that answer before the next
    commit, and would otherwise never commit again.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        answer: Callable[[CommitAnswer], None],
    ) -> None:
        self._meant: dict[Commit, Commit] = {}
        super().__init__(conf, topics, lambda answered: answer(self._as_meant(answered)))

    def commit(self, commit: Commit) -> CommitAnswer | None:
        """Send positions that are too high."""
        early = Commit(
            {
                partition: replace(entry, position=entry.position + EARLY_BY, metadata="")
                for partition, entry in commit.entries.items()
            }
        )
        self._meant[early] = commit
        answered = super().commit(early)
        return None if answered is None else self._as_meant(answered)

    def _as_meant(self, answered: CommitAnswer) -> CommitAnswer:
        return replace(answered, commit=self._meant.pop(answered.commit))


def pool_class(kind: str | None) -> type[ThreadPool]:
    """Return the pool class for this kind of sabotage."""
    return ReorderingPool if kind == "reorder" else ThreadPool


def client_class(kind: str | None) -> type[AuditedClient]:
    """Return the client class for this kind of sabotage."""
    return HastyClient if kind == "commit-early" else AuditedClient


def handler_class(kind: str | None, audited: type[Any]) -> type[Any]:
    """Return the handler class for this kind of sabotage; ``audited`` reports its calls.

    A broken worker acknowledges a record that did not run, or runs a successful record again. The
    core cannot notice either, but the ledger must.
    """
    if kind not in ("drop", "duplicate"):
        return audited

    class Sabotaged(audited):  # type: ignore[misc]
        _handled = 0

        def handle(self, record: Any) -> None:
            self._handled += 1
            if self._handled % EVERY_RECORD:
                super().handle(record)
            elif kind == "duplicate":
                super().handle(record)
                super().handle(record)

    return Sabotaged
