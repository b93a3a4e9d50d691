"""One member of a soak: ``python -m tests.chaos.soak_child SETTINGS``, as ``child.py``.

Its handler is slow or quick, fails by key, and becomes quick once the file ``drain`` is there. A
partition that it lost is reported as lost twice: when it is told, and when it has forgotten it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.client.port import Rebalance
from kafka_keyshared.lab.demo.ledgers import (
    AuditedClient,
    audited_client,
    on_dead_letter,
    on_rebalance,
)
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.observability.audit.ledger import FileLedger
from tests.chaos.child import NEVER, Stamp, TellingKeyShared, ignore, say
from tests.chaos.faults import faulty_client, faulty_pool
from tests.chaos.pools import use
from tests.chaos.soak_schedule import ALWAYS, BLOCKED, LONG, LONG_RECORD, MAIN, SOMETIMES

DRAIN = "drain"
LOOK_AGAIN = 0.5
DRAINING_PAUSE = 0.0005
HOT_SHARE = 0.1

STANDING = TopicPartition(MAIN, 0)


class Behaviour:
    """How long a record takes, and whether it fails, by its key."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._pause = float(settings["pause"])
        self._drain = Path(settings["directory"]) / DRAIN
        self._looked = 0.0
        self._draining = False
        self._tries: Counter[tuple[int, int]] = Counter()
        # Where there are no dead letters, only keys that say so may block theirs.
        self._most = 2 if settings["topic"] == BLOCKED else 9

    def __call__(self, record: Any) -> None:
        key: bytes | None = record.key()
        if key is not None and key.startswith(LONG):
            NEVER.wait(LONG_RECORD)
            return
        pause = DRAINING_PAUSE if self._in_a_hurry() else self._pause
        NEVER.wait(pause * (HOT_SHARE if key is not None and key.startswith(b"hot") else 1.0))
        if key is None:
            return
        if key.startswith(ALWAYS):
            raise ValueError("this key always fails")
        if key.startswith(SOMETIMES):
            self._perhaps_fail((record.partition(), record.offset()))

    def _perhaps_fail(self, place: tuple[int, int]) -> None:
        """Fail none, one, two or all of the attempts, always the same for one record."""
        self._tries[place] += 1
        fails = (0, 0, 1, 1, 1, 2, 2, 9)[zlib.crc32(b"%d %d" % place) % 8]
        if self._tries[place] <= min(fails, self._most):
            raise RuntimeError("this record fails sometimes")
        del self._tries[place]

    def _in_a_hurry(self) -> bool:
        now = time.monotonic()
        if not self._draining and now - self._looked >= LOOK_AGAIN:
            self._looked = now
            self._draining = self._drain.exists()
        return self._draining


class StandingClient(AuditedClient):
    """Planted: reads the beginning of one partition, then no more of it, and says nothing of it."""

    def consume(self, count: int) -> list[Record]:
        if STANDING in self.positions():
            with contextlib.suppress(KafkaException):  # it may be somebody else's
                self.consumer.pause([ClientPartition(*STANDING)])
        return super().consume(count)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        super().resume(each for each in partitions if each != STANDING)


def reporting(base: type[AuditedClient]) -> type[AuditedClient]:
    """Return a client class that reports a second time what was lost, once it is forgotten."""

    class ReportingClient(base):  # type: ignore[valid-type,misc]
        def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
            def revoke(partitions: list[TopicPartition]) -> None:
                say(f"revoking {len(partitions)}")
                on_revoke(partitions)

            def lose(partitions: list[TopicPartition]) -> None:
                on_lost(partitions)
                for each in partitions:
                    self.ledger.lost(*each)

            super().subscribe(on_assign, revoke, lose)

    return ReportingClient


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; the exit status is the instance's own."""
    settings: dict[str, Any] = json.loads((arguments or sys.argv[1:])[0])
    faulthandler.register(signal.SIGUSR1)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Stamp())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    ledger = FileLedger(Path(settings["directory"]), settings["name"])
    fault = settings.get("fault")
    base = StandingClient if fault == "standing" else faulty_client(fault)
    app = TellingKeyShared(
        settings["conf"],
        [settings["topic"]],
        hooks=Hooks(
            client=audited_client(ledger, ignore, reporting(base)),
            pool=faulty_pool(fault),
            rebalanced=on_rebalance(ledger),
            dead_lettered=on_dead_letter(ledger),
        ),
        **settings["options"],
    )
    use(app, settings["pool"], Behaviour(settings), ledger, fault)
    return app.run()


if __name__ == "__main__":
    sys.exit(main())
