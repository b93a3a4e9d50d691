"""One incarnation of an instance in a process of its own, to be killed from outside.

``python tests/chaos/child.py SETTINGS`` takes a JSON object: where the cluster, topic, group and
ledger directory are, how this incarnation is called, and how its handler behaves. It writes a file
ledger, and the instance's own log to stderr.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from kafka_keyshared.audit.ledger import FileLedger
from kafka_keyshared.audit.wrap import audited
from kafka_keyshared.demo.ledgers import (
    AuditedClient,
    audited_client,
    on_dead_letter,
    on_rebalance,
)
from kafka_keyshared.demo.sabotage import HastyClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.service import Hooks, KeyShared

NEVER = threading.Event()


class Behaviour:
    """How the handler treats a record.

    ``fails`` is a key that always fails, ``hangs`` one whose handler never returns, ``slow`` one
    that takes five times as long as the others, which take ``pause`` seconds.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._pause = float(settings.get("pause", 0.002))
        self._keys = {
            name: str(settings[name]).encode()
            for name in ("fails", "hangs", "slow")
            if settings.get(name)
        }

    def __call__(self, record: Any) -> None:
        key = record.key()
        if key == self._keys.get("fails"):
            raise ValueError("this key always fails")
        if key == self._keys.get("hangs"):
            sys.stderr.write("hanging now\n")
            sys.stderr.flush()
            NEVER.wait()
        NEVER.wait(self._pause * (5 if key == self._keys.get("slow") else 1))


def ignore(_partition: TopicPartition, _position: int) -> None:
    """The ledger has heard of the accepted commit already."""


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    ledger = FileLedger(Path(settings["directory"]), settings["name"])
    client = HastyClient if settings.get("hasty") else AuditedClient
    app = KeyShared(
        {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 500,
            # A killed broker takes unacknowledged commits along: they are to be sent again soon.
            "socket.timeout.ms": 3_000,
        },
        [settings["topic"]],
        hooks=Hooks(
            client=audited_client(ledger, ignore, client),
            rebalanced=on_rebalance(ledger),
            dead_lettered=on_dead_letter(ledger),
        ),
        **{"workers": 8, "commit_interval": 0.3, **settings.get("options", {})},
    )
    app.handler(audited(Behaviour(settings), ledger))
    return app.run()


if __name__ == "__main__":
    sys.exit(main())
