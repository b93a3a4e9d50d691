"""A program that is stopped while something hangs: one of each kind that the package makes.

``python -m tests.chaos.ending_child SETTINGS`` takes a JSON object: ``conf``, ``topic``, ``kind``
(run, wrapped, split or pull), what ``hangs`` (handler, on_revoke, close, first_close) and the
app's ``options``. It says ``worked`` after every tenth record, ``hanging in …``, and at its end
what came back. A record takes ``pause`` seconds.
"""

from __future__ import annotations

import itertools
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from kafka_keyshared import Consumer, KeyShared, split
from kafka_keyshared.runtime.kafka import KafkaClient
from kafka_keyshared.runtime.service import Hooks
from tests.chaos.child import NEVER, Stamp, say

MEMBERS = 4


class HangingClient(KafkaClient):
    """Hangs in ``close()``, as the client does while a commit is pending."""

    def close(self) -> None:
        say("hanging in close")
        NEVER.wait()


class Program:
    """What a user would have written around the package."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.conf: dict[str, Any] = settings["conf"]
        self.topics: list[str] = [settings["topic"]]
        self.hangs = str(settings.get("hangs", ""))
        self.options: dict[str, Any] = {"commit_interval": 0.3, **settings.get("options", {})}
        self._pause = float(settings.get("pause", 0.03))
        self._count = itertools.count(1)

    def work(self, _record: Any) -> None:
        number = next(self._count)
        if number % 10 == 0:
            say("worked")
        if number > 10 and self.hangs == "handler":
            say("hanging in handler")
            NEVER.wait()
        NEVER.wait(self._pause)

    def on_revoke(self, _consumer: Any, _partitions: Any) -> None:
        if self.hangs == "on_revoke":
            say("hanging in on_revoke")
            NEVER.wait()

    def run(self) -> int:
        """An app with a handler."""
        hooks = Hooks(client=HangingClient) if self.hangs == "close" else Hooks()
        app = KeyShared(
            self.conf,
            self.topics,
            workers=4,
            on_revoke=self.on_revoke,
            hooks=hooks,
            **self.options,
        )
        app.handler(self.work)
        return app.run()

    def wrapped(self) -> int:
        """An app around a consumer, which is closed afterwards, as before."""
        consumer = Consumer(self.conf)
        consumer.subscribe(self.topics, on_revoke=self.on_revoke)
        app = KeyShared.wrap(consumer, workers=4, **self.options)
        app.handler(self.work)
        status = app.run()
        consumer.close()
        return status

    def split(self) -> int:
        """A loop that polls and commits, once per member."""
        ends = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ends.set())
        consumer = Consumer(self.conf)
        consumer.subscribe(self.topics, on_revoke=self.on_revoke)

        def loop(member: Any) -> None:
            while not ends.is_set():
                if (message := member.poll(0.5)) is not None:
                    self.work(message)
                    member.commit(message)

        members = split(consumer, MEMBERS, **self.options)
        for each in members:
            threading.Thread(target=loop, args=(each,), daemon=True).start()
        ends.wait()
        status = members.close()
        consumer.close()
        return status

    def pull(self) -> int:
        """Members that ask for one record at a time."""
        app = KeyShared(
            self.conf, self.topics, workers="pull", on_revoke=self.on_revoke, **self.options
        )

        def loop(member: Any) -> None:
            while (record := member.receive()) is not None:
                self.work(record)
                record.ack()

        members = [app.join(f"member-{number}") for number in range(MEMBERS)]
        for each in members:
            threading.Thread(target=loop, args=(each,), daemon=True).start()
        return app.run()


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Stamp())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    program = Program(settings)
    kinds: dict[str, Callable[[], int]] = {
        "run": program.run,
        "wrapped": program.wrapped,
        "split": program.split,
        "pull": program.pull,
    }
    status = kinds[settings["kind"]]()
    say(f"came back with {status}")
    return status


if __name__ == "__main__":
    sys.exit(main())
