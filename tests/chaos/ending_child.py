"""A program that is stopped while something hangs: one of each kind that the package makes.

``python -m tests.chaos.ending_child SETTINGS`` takes a JSON object: ``conf``, ``topic``, ``kind``
(run, wrapped, split or pull), what ``hangs`` (handler, close, or a callback by its name) and the
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

import confluent_kafka

from kafka_keyshared import Consumer, KeyShared, split
from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.client import kafka
from kafka_keyshared.client.kafka import KafkaClient
from tests.chaos.child import NEVER, Stamp, say

MEMBERS = 4


class HangingClient(KafkaClient):
    """Hangs in ``close()``, as the client does while a commit is pending."""

    def close(self, patience: float = 10.0) -> bool:
        say("hanging in close")
        return NEVER.wait()


class LosingConsumer(confluent_kafka.Consumer):
    """Loses its partitions when it has delivered something, as after a session that ran out."""

    def subscribe(self, topics: Any, *arguments: Any, **callbacks: Any) -> None:
        self._lost = callbacks["on_lost"]
        super().subscribe(topics, *arguments, **callbacks)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[confluent_kafka.Message]:
        found = super().consume(num_messages, timeout)
        if found:
            self._lost(self, self.assignment())
        return found


class Program:
    """What a user would have written around the package."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.conf: dict[str, Any] = settings["conf"] | settings.get("more", {})
        self.topics: list[str] = [settings["topic"]]
        self.hangs = str(settings.get("hangs", ""))
        self.options: dict[str, Any] = {"commit_interval": 0.3, **settings.get("options", {})}
        self._pause = float(settings.get("pause", 0.03))
        self._count = itertools.count(1)
        if self.hangs in ("on_commit", "error_cb", "stats_cb"):
            self.conf[self.hangs] = self.hanging(self.hangs)
        if self.hangs == "on_lost":
            vars(kafka)["Consumer"] = LosingConsumer

    def work(self, _record: Any) -> None:
        number = next(self._count)
        if number % 10 == 0:
            say("worked")
        if number > 10 and self.hangs == "handler":
            say("hanging in handler")
            NEVER.wait()
        NEVER.wait(self._pause)

    def hanging(self, name: str) -> Callable[..., None]:
        """Return a callback that does not come back, if it is the one to hang."""

        def callback(*_: Any) -> None:
            if self.hangs == name:
                say(f"hanging in {name}")
                NEVER.wait()

        callback.__code__ = callback.__code__.replace(co_name=name)
        return callback

    def run(self) -> int:
        """An app with a handler."""
        hooks = Hooks(client=HangingClient) if self.hangs == "close" else Hooks()
        app = KeyShared(
            self.conf,
            self.topics,
            workers=4,
            on_assign=self.hanging("on_assign"),
            on_revoke=self.hanging("on_revoke"),
            on_lost=self.hanging("on_lost"),
            hooks=hooks,
            **self.options,
        )
        app.handler(self.work)
        return app.run()

    def wrapped(self) -> int:
        """An app around a consumer, which is closed afterwards, as before."""
        consumer = Consumer(self.conf)
        consumer.subscribe(self.topics, on_revoke=self.hanging("on_revoke"))
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
        consumer.subscribe(self.topics, on_revoke=self.hanging("on_revoke"))

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
            self.conf,
            self.topics,
            workers="pull",
            on_revoke=self.hanging("on_revoke"),
            **self.options,
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
