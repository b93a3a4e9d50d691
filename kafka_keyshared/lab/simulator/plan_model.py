"""Plan of a run, and the drawing of its choices by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from kafka_keyshared.lab.simulator.handlers import Habits
from kafka_keyshared.lab.simulator.member import MemberPlan
from kafka_keyshared.lab.simulator.publisher import LetterFaults
from kafka_keyshared.lab.simulator.rng import Chance

T = TypeVar("T")

Protocol = Literal["eager", "cooperative", "kip-848"]
PROTOCOLS: tuple[Protocol, ...] = ("eager", "cooperative", "kip-848")


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run. Times are in seconds.

    While more than ``backlog`` records are uncommitted, hardly any are written: the rest must be
    worked through after the faults. ``disturbances`` has how much more often than usual each comes.
    ``metadata_max`` is the brokers' limit beside a position. ``tells_limit`` says that they report
    it, ``tells_ids`` that they have topic ids. ``value_bytes`` is the size of every value.
    ``orders_possible`` is the share of the orders for closed lanes that fit the state of the lane.
    ``static`` says that members have an instance id each.
    """

    protocol: Protocol
    topics: int
    partitions: int
    members: int
    keys: int
    null_share: float
    backlog: int
    burst: int
    burst_every: float
    metadata_max: int
    tells_limit: bool
    tells_ids: bool
    disturbances: Mapping[str, float]
    member: MemberPlan
    habits: Habits
    letters: LetterFaults
    value_bytes: int
    orders_possible: float = 0.0
    static: bool = False


class Draw:
    """Draws the choices of a plan, each by its name."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def one(self, name: str, among: Sequence[T]) -> T:
        """Return one of these."""
        return self._chance(f"plan: {name}").choice(among)

    def generator(self, name: str) -> Random:
        """Return the generator for a choice that takes several draws."""
        return self._chance(f"plan: {name}")

    def happens(self, name: str, share: float) -> bool:
        """Return whether this plan has a property that a share of all plans has."""
        return self._chance(f"plan: {name}").random() < share
