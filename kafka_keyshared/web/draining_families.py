"""The metrics of slots that drain, which are PIP-379's under our names, and of lent ones."""

from __future__ import annotations

from kafka_keyshared.web.family import Family, summed

DRAINING = (
    Family(
        "keyshared_draining_hashes",
        "gauge",
        "Slots that have a new worker while their old one still has leases of them.",
        (),
        summed(lambda sub: sub.draining_hashes_count),
    ),
    Family(
        "keyshared_draining_pending_records",
        "gauge",
        "Leases that draining slots wait for.",
        (),
        summed(lambda sub: sub.draining_hashes_pending_messages),
    ),
    Family(
        "keyshared_draining_blocked_records",
        "gauge",
        "Records that wait for a slot to drain.",
        (),
        summed(lambda sub: sub.draining_hashes_blocked_messages),
    ),
    Family(
        "keyshared_draining_hashes_cleared_total",
        "counter",
        "Slots that have drained.",
        (),
        summed(lambda sub: sub.draining_hashes_cleared_total),
    ),
    Family(
        "keyshared_lending_workers",
        "gauge",
        "Workers held up by a record whose other keys are with other workers meanwhile.",
        (),
        summed(lambda sub: sum(bool(worker.lends_to) for worker in sub.workers)),
    ),
    Family(
        "keyshared_loans_total",
        "counter",
        "Times that a worker held up by a record has lent its other keys to other workers.",
        (),
        summed(lambda sub: sub.loans),
    ),
)
