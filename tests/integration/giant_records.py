"""A program whose records are of several MB each, and what it holds of them.

``python -m tests.integration.giant_records SETTINGS`` takes a JSON object: ``conf``, ``topic``,
``count`` and ``options``. Nothing is done until so much is held that nothing more is fetched; then
each record is. It prints a JSON object: how much more was ever resident than before its instance
ran (``above_mib``), the most that the window held, that one worker had leased and that one
partition had of the window (``window_mib``, ``leased_mib``, ``partition_mib``), and of each key the
order in which its records ran (``ran``).
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter, defaultdict
from typing import Any

from kafka_keyshared import KeyShared
from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.lab.bench.memory_side import peak_mib, resident_mib
from kafka_keyshared.model import Record
from kafka_keyshared.runtime.instance_view import InstanceView

MIB = 1 << 20

ROUNDS = 20
"""So many more rounds of the owner, of up to half a second each, after nothing is fetched."""


class Seen:
    """The most that was ever held."""

    def __init__(self) -> None:
        self.window = self.leased = self.partition = 0.0
        self._window_at = -1

    def look(self, view: InstanceView) -> None:
        """Look at what is held after a round, where that has changed."""
        (sub,) = view.subscriptions.values()
        self.window = max(self.window, sub.window.bytes)
        for worker in sub.workers.values():
            self.leased = max(self.leased, worker.bytes.held)
        if sub.window.received != self._window_at:
            self._window_at = sub.window.received
            held: Counter[object] = Counter()
            for partition, record in sub.unsettled.records({}):
                held[partition] += size_of(record)
            self.partition = max(self.partition, *held.values(), 0)


def size_of(record: Record) -> int:
    return len(record.value() or b"")


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    full = threading.Event()
    seen, rounds, done = Seen(), 0, 0
    ran: dict[str, list[list[int]]] = defaultdict(list)
    lock = threading.Lock()

    def stepped(view: InstanceView) -> None:
        nonlocal rounds
        seen.look(view)
        assert app.instance is not None
        rounds += bool(app.instance.loop.paused())
        if rounds == ROUNDS:
            full.set()
        if done == settings["count"]:
            app.stop()

    app = KeyShared(
        settings["conf"],
        [settings["topic"]],
        hooks=Hooks(stepped=stepped),
        **settings["options"],
    )

    @app.handler
    def handle(record: Record) -> None:
        nonlocal done
        full.wait()
        with lock:
            ran[(record.key() or b"").decode()].append([record.partition(), record.offset() or 0])
            done += 1

    before = resident_mib()
    status = app.run()
    told = {
        "above_mib": peak_mib() - before,
        "window_mib": seen.window / MIB,
        "leased_mib": seen.leased / MIB,
        "partition_mib": seen.partition / MIB,
        "ran": ran,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
