"""Snapshots for any number of readers: each is made and encoded once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.observability.web.group.subscribe import GroupListener
from kafka_keyshared.observability.web.snapshot import (
    InstanceSnapshot,
    Setting,
    SnapshotOrigin,
    snapshot,
)
from kafka_keyshared.status import Status

Part = Callable[[InstanceSnapshot], Any]

RING = RoutingSettings()


class Feed:
    """Makes snapshots of the status that ``read`` returns, and keeps the last. Thread-safe.

    ``keys``: they show keys. ``routing`` is the rule from slots to workers.
    """

    def __init__(
        self,
        read: Callable[[], Status | None],
        about: SnapshotOrigin,
        settings: tuple[Setting, ...],
        *,
        keys: bool,
        routing: RoutingSettings = RING,
    ) -> None:
        self._read = read
        self._about = about
        self._settings = settings
        self._keys = keys
        self.routing = routing
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._snapshot: InstanceSnapshot | None = None
        self._text: bytes | None = None

    def latest(self) -> InstanceSnapshot | None:
        """Return the current snapshot; None before there is a status."""
        status = self._read()
        with self._lock:
            return self._of(status)

    def text(self) -> bytes | None:
        """Return the current snapshot as JSON."""
        status = self._read()
        with self._lock:
            found = self._of(status)
            if found is not None and self._text is None:
                self._text = msgspec.json.encode(found)
            return self._text

    def _of(self, status: Status | None) -> InstanceSnapshot | None:
        if status is not self._status:
            self._status, self._text = status, None
            self._snapshot = (
                None
                if status is None
                else snapshot(status, self._about, self._settings, keys=self._keys)
            )
        return self._snapshot


def _workers(found: InstanceSnapshot) -> Any:
    return {
        sub.name: {
            "pool": sub.pool,
            "workers": sub.workers,
            "shared": sub.shared,
            "pending": sub.pending or (),
        }
        for sub in found.status.subscriptions
    }


def _ring(found: InstanceSnapshot) -> Any:
    return {
        sub.name: {
            "routing": sub.routing,
            "workers": [each.name for each in sub.workers],
            "shares": [each.share for each in sub.workers],
            "slots": sub.slots or (),
            "ranges": sub.ranges,
            "unassigned": sub.unassigned,
            "filters": sub.filters,
        }
        for sub in found.status.subscriptions
    }


def _draining(found: InstanceSnapshot) -> Any:
    return [
        {"subscription": sub.name, "worker": worker.name, **msgspec.structs.asdict(each)}
        for sub in found.status.subscriptions
        for worker in sub.workers
        for each in worker.draining
    ]


def _state(found: InstanceSnapshot) -> Any:
    status = found.status
    return {
        "taken_at": status.taken_at,
        "started_at": status.started_at,
        "phase": status.phase,
        "joined": status.joined,
        "group": status.group,
        "about": found.about,
        "totals": found.totals,
    }


PARTS: dict[str, tuple[str, Part]] = {
    "snapshot": ("The whole snapshot; the other answers are parts of it.", lambda found: found),
    "diagnosis": ("The findings, in order of repair.", lambda found: found.diagnosis),
    "state": ("The identity of the instance, its phase, and the sums.", _state),
    "workers": ("The workers of each subscription, and the first of their leases.", _workers),
    "ring": ("The owner of each slot, by subscription.", _ring),
    "draining": ("The slots that drain.", _draining),
    "partitions": (
        "The partitions: their positions and gaps.",
        lambda found: found.status.partitions,
    ),
    "stuck": ("The records without progress, with their stacks.", lambda found: found.stuck),
    "errors": (
        "Failed attempts of each subscription, by kind and key.",
        lambda found: {sub.name: sub.errors for sub in found.status.subscriptions},
    ),
    "rebalances": ("The last rebalances.", lambda found: found.status.rebalanced),
    "dlq": ("Dead letters.", lambda found: found.dlq),
    "settings": (
        "The settings in force, each with its source.",
        lambda found: found.settings,
    ),
}
"""Queries by name: a description, and a function of the snapshot."""

Look = Callable[[GroupListener, str], Any]

OF_GROUP: dict[str, tuple[str, Look]] = {
    "group": (
        "The instances of the group, by their own reports.",
        lambda group, _: group.view(),
    ),
    "report": (
        "The report of this instance to its group.",
        lambda group, asker: group.report(asker),
    ),
}
"""Queries of the group by name. The function also takes the sender's name."""
