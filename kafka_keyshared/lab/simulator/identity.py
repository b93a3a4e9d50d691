"""Place of a simulated port: its member, process and history."""

from __future__ import annotations

from typing import NamedTuple

from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess


class Site(NamedTuple):
    """Values that all ports of a member share."""

    member: int
    process: SimulatedProcess
    history: History
