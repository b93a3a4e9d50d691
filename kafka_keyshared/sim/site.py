"""Where a simulated port stands: in which process, as which member, and to whom it tells."""

from __future__ import annotations

from typing import NamedTuple

from kafka_keyshared.sim.history import History
from kafka_keyshared.sim.timeline import Process


class Site(NamedTuple):
    """What all ports of a member have in common."""

    member: int
    process: Process
    history: History
