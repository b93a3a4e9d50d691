"""The plan of a run, and the drawing of its choices by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from kafka_keyshared.sim.chance import Chance
from kafka_keyshared.sim.handlers import Habits
from kafka_keyshared.sim.member import MemberPlan
from kafka_keyshared.sim.publisher import LetterFaults

T = TypeVar("T")

Protocol = Literal["eager", "cooperative", "kip-848"]
PROTOCOLS: tuple[Protocol, ...] = ("eager", "cooperative", "kip-848")


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. Times are in seconds.

    While more than ``backlog`` records are not committed, hardly any is written: what is left when
    faults stop has to be worked through. ``disturbances`` are those that come, each with how much
    more often than usual; ``metadata_max`` is what the brokers take beside a position,
    ``tells_limit`` says that they tell it, ``tells_ids`` that they have ids of topics;
    ``value_bytes`` is how large every value is; ``orders_possible`` the share of the orders for
    closed lanes that are given by somebody who looks first what can be done; ``static`` says that
    members have an instance each.
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
    """Draws what a plan is made of, each by its name."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def one(self, name: str, among: Sequence[T]) -> T:
        """Return one of these."""
        return self._chance(f"plan: {name}").choice(among)

    def generator(self, name: str) -> Random:
        """Return what a choice is drawn with that is made of several."""
        return self._chance(f"plan: {name}")

    def happens(self, name: str, share: float) -> bool:
        """Say whether what so many plans have is in this one."""
        return self._chance(f"plan: {name}").random() < share
