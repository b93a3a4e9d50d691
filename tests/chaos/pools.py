"""A child's handler in each kind of pool, reporting to its ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless, lane_of
from kafka_keyshared.observability.audit.ledger import FileLedger
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from tests.chaos.faults import faulty_handler

Pool = Literal["thread", "asyncio", "process", "batch"]

BATCH = 20
BATCH_WAIT = 0.02

FEW = 2
"""Processes of a child: each takes as much memory as the child itself."""


def workers_of(pool: Pool, count: int) -> int | str:
    """Return the option for so many workers, or records at once."""
    if pool == "batch":
        return count
    return f"{pool}:{min(count, FEW) if pool == 'process' else count}"


def use(
    app: KeyShared,
    pool: Pool,
    behaviour: Callable[[Any], None],
    ledger: FileLedger,
    fault: str | None = None,
) -> None:
    """Give the app the handler, in the form that the pool takes."""
    if pool == "process":
        app.hooks = replace(app.hooks, called=ledger.called)
        app.handler(behaviour)
        return
    handle = faulty_handler(fault, audited(behaviour, ledger))
    if pool == "asyncio":

        async def handle_async(record: Any) -> None:
            await asyncio.to_thread(handle, record)

        app.handler(handle_async)
    elif pool == "batch":
        app.batch_handler(size=BATCH, wait=BATCH_WAIT)(one_by_one(handle))
    else:
        app.handler(handle)


def one_by_one(handle: Callable[[Any], None]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a handler of several records that has a verdict for each, and stops a failed key."""

    def handle_batch(records: Sequence[Any]) -> list[Any]:
        failed: set[Lane] = set()
        verdicts: list[Any] = []
        for record in records:
            lane, verdict = lane_of(record), None
            if is_keyless(lane) or lane not in failed:
                try:
                    handle(record)
                except Exception as error:  # noqa: BLE001 - it is this record's verdict
                    verdict = error
                    failed.add(lane)
            verdicts.append(verdict)
        return verdicts

    return handle_batch
