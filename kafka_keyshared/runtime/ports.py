"""Ports: the interfaces through which the loop reaches the outside."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from kafka_keyshared.client.port import Client
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.executors.command_interpreter import Mail
from kafka_keyshared.executors.port import Pool


class Publisher(Protocol):
    """The port through which the loop writes dead letters."""

    def publish(self, publish: cmd.Publish) -> None:
        """Send a dead letter; the broker's answer is posted to the mailbox."""

    def serve(self) -> None:
        """Receive the broker's answers."""

    def unanswered(self) -> int:
        """Return how many dead letters the broker has not answered."""

    def close(self, timeout: float) -> None:
        """Wait for unanswered dead letters, at most ``timeout`` seconds, and close."""


@dataclass
class Ports:
    """The outside, as far as the loop may reach it. The pool uses the same ``clock``."""

    client: Client
    pool: Pool
    mailbox: SimpleQueue[Mail]
    clock: Clock
    publisher: Publisher | None = None
