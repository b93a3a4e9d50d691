"""A running instance with something on every screen of the console."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kafka_keyshared import DeadLetter, KeyShared, Retry
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.status import Status
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import running
from tests.support.live_cluster import client_conf, group_name, write

HOSTILE = b"<img src=x onerror=\"document.title='broken into'\">"
"""A key that a page that took it for markup would run."""

WORKERS = 8
SECONDS = 60.0
"""How long anything may take; a machine may be slow."""


class BadAddressError(ValueError):
    """What the handler fails with."""


class Scene:
    """An instance over 6 partitions: most records pass, and some keys do what their names say.

    ``hold-…`` runs until :meth:`let_go`, ``bad-…`` and the hostile key fail and block, ``later-…``
    is tried again in an hour, ``refused-…`` becomes a dead letter. A key in ``mended`` passes, and
    is among ``passed`` then.
    """

    def __init__(self, cluster: Cluster, topic: str, **options: Any) -> None:
        self.cluster = cluster
        self.topic = topic
        self.failed_at: dict[bytes, float] = {}
        self.mended: set[bytes] = set()
        self.passed: set[bytes] = set()
        self._let_go = threading.Event()
        self._ended = threading.Event()
        self._pause = threading.Event()
        cluster.create_topic(topic, 6)
        cluster.create_topic(f"{topic}.dlq", 2)
        given: dict[str, Any] = {
            "workers": WORKERS,
            "commit_interval": 0.2,
            "retry": {"attempts": 2, "backoff": 0.01},
            "on_exhausted": "block",
            "dlq": f"{topic}.dlq",
            "http_port": 0,
            "console_port": 0,
            "show_keys": True,
            "revoke_deadline": 1.0,
            # Workers that share what waits have no slots that drain.
            "new_workers_wait": True,
        }
        self.app = KeyShared(client_conf(cluster, group_name()), [topic], **(given | options))
        self.app.handler(self._handle)

    def _handle(self, record: Any) -> None:
        key: bytes = record.key()
        if key in self.mended:
            self.passed.add(key)
        elif key.startswith(b"hold-"):
            self._let_go.wait()
        elif key.startswith(b"bad-") or key == HOSTILE:
            self.failed_at[key] = time.time()
            raise BadAddressError(f"no such address: {key.decode(errors='replace')}")
        elif key.startswith(b"later-"):
            raise Retry(after=3_600.0)
        elif key.startswith(b"refused-"):
            raise DeadLetter("the shop is closed")
        else:
            self._pause.wait(0.002)

    def write(self, *keys: bytes) -> None:
        """Write a record of each key."""
        write(self.cluster, self.topic, [(key, b"v" * 20) for key in keys])

    def status(self) -> Status:
        """What the instance looks like, once it looks like anything."""
        self.until(lambda: self.app.status() is not None)
        status = self.app.status()
        assert status is not None
        return status

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline
            self._pause.wait(0.02)

    def key_of(self, worker: str, prefix: str) -> bytes:
        """Return a key of a worker's that begins like that."""
        board = self.app._board
        self.until(lambda: (full := board.read(full=True)) is not None and owner(full, 0) != "")
        full = board.read(full=True)
        assert full is not None
        keys = (f"{prefix}{number}".encode() for number in range(100_000))
        return next(key for key in keys if owner(full, slot_of(key)) == worker)

    def let_go(self) -> None:
        """Let what is held run on."""
        self._let_go.set()

    def set_up(self) -> None:
        """Block two keys, hold two records, let one slot drain; end with six workers."""
        self.write(*(b"customer-%d" % (n % 90) for n in range(600)))
        self.until(lambda: bool(self.status().partitions))
        self.write(HOSTILE, b"bad-7", b"later-1", *(b"refused-%d" % n for n in range(4)))
        held = [self.key_of("worker-7", "hold-"), self.key_of("worker-2", "hold-")]
        self.write(*held, *(each for each in held for _ in range(5)), HOSTILE, HOSTILE, b"bad-7")
        self.until(lambda: sum(each.runs for each in self._workers()) >= 2)
        threading.Thread(target=self._resize, daemon=True).start()
        self.until(lambda: any(each.draining for each in self._workers()))

    def _resize(self) -> None:
        # It is not over before what is held is let go, and that is the end of the scene.
        with suppress(KeySharedError, TimeoutError):
            self.app.scale(6, 600.0)

    def _workers(self) -> Any:
        return self.status().subscriptions[0].workers

    def flow(self) -> None:
        """Write some records, again and again, until the scene is over."""
        number = 0
        while not self._ended.is_set():
            self.write(*(b"customer-%d" % ((number + n) % 90) for n in range(60)))
            number += 60
            self._ended.wait(0.3)

    def end(self) -> None:
        """End what is under way."""
        self._ended.set()
        self.let_go()


def owner(status: Status, slot: int) -> str:
    """Return whose a slot is, "" for nobody's."""
    (sub,) = status.subscriptions
    found = [at for first, last, at in sub.slots or () if first <= slot <= last and at >= 0]
    return sub.workers[found[0]].name if found else ""


@contextmanager
def scene(cluster: Cluster, topic: str, *, busy: bool = True, **options: Any) -> Iterator[Scene]:
    """Run a scene; one that is not ``busy`` has nothing on its screens yet but what passes."""
    made = Scene(cluster, topic, **options)
    with running(made.app):
        flow = threading.Thread(target=made.flow, daemon=True)
        try:
            if busy:
                made.set_up()
            flow.start()
            yield made
        finally:
            made.end()
            if flow.is_alive():
                flow.join(SECONDS)
