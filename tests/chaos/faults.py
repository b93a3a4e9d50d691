"""What can be wrong with a child, each kind to be found by one of the judge's rules.

A detector that was never seen to fire proves nothing, so every scenario is also run with something
broken below or above the core.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kafka_keyshared.client.port import Committed, CommittedOffset, Rebalance
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.lab.demo.sabotage import HastyClient, ReorderingPool
from kafka_keyshared.model import TopicPartition


class ForgetfulClient(AuditedClient):
    """Starts at the committed positions, but without the settled sets that came with them."""

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        found = super().committed(partitions, timeout)
        return {each: CommittedOffset(had.position, None) for each, had in found.items()}


class SilentClient(AuditedClient):
    """Commits nothing while partitions are revoked, and says that it had."""

    _revoking = False

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        def revoke(partitions: list[TopicPartition]) -> None:
            self._revoking = True
            try:
                on_revoke(partitions)
            finally:
                self._revoking = False

        super().subscribe(on_assign, revoke, on_lost)

    def commit(self, commit: Commit) -> CommitAnswer | None:
        if self._revoking:
            return CommitAnswer(commit, CommitResult.ACCEPTED, "")
        return super().commit(commit)


class ClingingClient(AuditedClient):
    """Commits what it has done when its partitions are lost, as if they were still its own."""

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        def lose(partitions: list[TopicPartition]) -> None:
            positions = self.positions()
            on_lost(partitions)
            entries = {
                each: CommitEntry(positions[each], "", -1)
                for each in partitions
                if each in positions
            }
            super(ClingingClient, self).commit(Commit(entries))

        super().subscribe(on_assign, on_revoke, lose)


CLIENTS: dict[str, type[AuditedClient]] = {
    "hasty": HastyClient,
    "forgetful": ForgetfulClient,
    "silent": SilentClient,
    "clinging": ClingingClient,
}

EVERY = 50


def faulty_client(fault: str | None) -> type[AuditedClient]:
    """Return the client class with this fault, or the sound one."""
    return CLIENTS.get(fault or "", AuditedClient)


def faulty_pool(fault: str | None) -> type[ThreadPool]:
    """Return the pool class with this fault, or the sound one."""
    return ReorderingPool if fault == "reordering" else ThreadPool


def faulty_handler(fault: str | None, handler: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the handler, or one that leaves out one record in fifty and calls it done."""
    if fault != "losing":
        return handler
    counter = iter(range(1, 1 << 62))
    lock = threading.Lock()

    def lose_some(record: Any) -> None:
        with lock:
            number = next(counter)
        if number % EVERY:
            handler(record)

    return lose_some
