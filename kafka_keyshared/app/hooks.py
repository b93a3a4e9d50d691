"""Hooks for tools that observe an instance from inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.core.contract.commands import RecordsDropped
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.executors.handling.call_record import Called
from kafka_keyshared.executors.handling.outputs import Take
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.runtime.instance_view import InstanceView


@dataclass(frozen=True, slots=True)
class Hooks:
    """Hooks for tools that observe an instance from inside: demo, bench and tests.

    - ``client`` and ``pool`` are made in place of :class:`KafkaClient` and :class:`ThreadPool`.
    - ``rebalanced`` is called with partitions that are assigned, revoked or lost.
    - ``dead_lettered`` is called with every broker answer for a dead letter.
    - ``dropped`` is called with records that were settled without their handler.
    - ``stepped`` is called with a view of the instance after every round.
    - ``called`` is called for handler calls in other processes, and ``outputs`` takes the outputs
      of such a handler. In this process the handler itself is wrapped for both.
    """

    client: Callable[..., KafkaClient] = KafkaClient
    pool: Callable[..., ThreadPool] = ThreadPool
    dead_lettered: Callable[[DeadLetterAnswer], None] | None = None
    dropped: Callable[[RecordsDropped], None] | None = None
    rebalanced: Callable[[str, Sequence[Any]], None] | None = None
    stepped: Callable[[InstanceView], None] | None = None
    called: Called | None = None
    outputs: Take | None = None


NO_HOOKS = Hooks()
