"""One incarnation of an instance in a process of its own, to be killed from outside.

``python -m tests.chaos.child SETTINGS`` takes a JSON object: where the cluster, topic, group and
ledger directory are, how this incarnation is called, in which kind of ``pool`` its handler runs and
how it behaves, and what is wrong with it (``fault``). It writes a file ledger, and the instance's
own log to stderr. There it also says, flushed and before it goes on, the moments that somebody
outside may want to hit: ``revoking``, ``assigning``, ``lost``, ``signalled``.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.client.port import Rebalance
from kafka_keyshared.lab.demo.ledgers import (
    AuditedClient,
    audited_client,
    on_dead_letter,
    on_rebalance,
)
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import FileLedger
from tests.chaos.faults import faulty_client, faulty_pool
from tests.chaos.pools import use, workers_of

NEVER = threading.Event()


def say(text: str) -> None:
    """Write a line to stderr in one piece; also from a signal handler."""
    os.write(2, f"{time.monotonic():.3f} {text}\n".encode())


class Gate:
    """Closed until there is a file of that name: how the parent holds a child at a moment."""

    def __init__(self, directory: Path, name: str) -> None:
        self._file = directory / name

    def wait(self) -> None:
        while not self._file.exists():
            NEVER.wait(0.02)


class Behaviour:
    """How the handler treats a record.

    ``fails`` is a key that always fails, ``hangs`` one whose handler never returns, ``slow`` one
    that takes ``slow_pause`` seconds; the others take ``pause`` seconds. Handlers of keys that
    begin with ``gated`` wait for the gate ``handler``.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._pause = float(settings.get("pause", 0.002))
        self._slow_pause = float(settings.get("slow_pause", 5 * self._pause))
        self._gate = Gate(Path(settings["directory"]), "handler")
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
            say("hanging now")
            NEVER.wait()
        if key.startswith(b"gated"):
            say("at the gate")
            self._gate.wait()
        NEVER.wait(self._slow_pause if key == self._keys.get("slow") else self._pause)


def telling(base: type[AuditedClient], hold: Gate | None) -> type[AuditedClient]:
    """Return a client class that says when its callbacks run; ``hold`` keeps it in on_assign."""

    class TellingClient(base):  # type: ignore[valid-type,misc]
        def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
            def assign(partitions: list[TopicPartition]) -> None:
                say(f"assigning {len(partitions)}")
                if hold is not None:
                    hold.wait()
                on_assign(partitions)

            def revoke(partitions: list[TopicPartition]) -> None:
                say(f"revoking {len(partitions)}")
                on_revoke(partitions)

            def lose(partitions: list[TopicPartition]) -> None:
                on_lost(partitions)
                say(f"lost and forgotten {time.monotonic_ns()}")

            super().subscribe(assign, revoke, lose)

    return TellingClient


class TellingKeyShared(KeyShared):
    """Says when a signal has been taken; ``signal_seconds`` is how long that takes."""

    signal_seconds = 0.0

    def stop(self) -> None:
        super().stop()
        say("signalled")
        NEVER.wait(self.signal_seconds)


class Stamp(logging.Formatter):
    """Puts the clock of the ledger before each line, so that logs of several can be merged."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{time.monotonic():.3f} {record.levelname} {record.getMessage()}"


def ignore(_partition: TopicPartition, _position: int) -> None:
    """The ledger has heard of the accepted commit already."""


def scale(app: KeyShared, scales: Iterable[tuple[Gate, int]]) -> None:
    """Have so many workers once the gate is open, and say so."""
    for gate, count in scales:
        gate.wait()
        app.scale(count)
        say(f"scaled to {count}")


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Stamp())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    directory = Path(settings["directory"])
    ledger = FileLedger(directory, settings["name"])
    fault, pool = settings.get("fault"), settings.get("pool", "thread")
    hold = Gate(directory, "assign") if settings.get("hold_assign") else None
    app = TellingKeyShared(
        settings["conf"],
        [settings["topic"]],
        hooks=Hooks(
            client=audited_client(ledger, ignore, telling(faulty_client(fault), hold)),
            pool=faulty_pool(fault),
            rebalanced=on_rebalance(ledger),
            dead_lettered=on_dead_letter(ledger),
        ),
        **{"workers": workers_of(pool, 8), "commit_interval": 0.3, **settings.get("options", {})},
    )
    app.signal_seconds = float(settings.get("signal_seconds", 0.0))
    use(app, pool, Behaviour(settings), ledger, fault)
    name, counts = settings["name"], settings.get("scales", ())
    scales = [(Gate(directory, f"{name}-{count}"), count) for count in counts]
    threading.Thread(target=scale, args=(app, scales), daemon=True).start()
    return app.run()


if __name__ == "__main__":
    sys.exit(main())
