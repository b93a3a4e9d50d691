"""Simulated client as the production code for leaving a group sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from confluent_kafka import Consumer

from kafka_keyshared.client.leave_group import Left, leave
from kafka_keyshared.lab.simulator.membership import Membership
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess


class _Leaving:
    """The consumer calls that :func:`leave` makes."""

    def __init__(self, process: SimulatedProcess, membership: Membership) -> None:
        self._process = process
        self._membership = membership

    def memberid(self) -> str:
        """Return the id, from the coordinator's answer until the group is left."""
        seat = self._membership.seat
        return "" if seat is None or self._membership.closing else f"member-{seat.number}"

    def poll(self, timeout: float) -> None:
        """Let time pass, and run the callbacks that are due."""
        self._process.wait(timeout)
        self._membership.serve()

    def unsubscribe(self) -> None:
        """Give back the owned partitions, and leave if the coordinator is reachable."""
        self._membership.close()


def leave_group(
    process: SimulatedProcess,
    membership: Membership,
    patience: float,
    clock: Callable[[], float],
) -> Left:
    """Leave the group as the real client does, by :mod:`kafka_keyshared.client.leave_group`."""
    return leave(
        cast("Consumer", _Leaving(process, membership)),
        keeps_id=False,
        joining=membership.joining,
        patience=lambda: patience,
        clock=clock,
    )
