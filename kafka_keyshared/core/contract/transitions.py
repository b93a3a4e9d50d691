"""State tables: the allowed transitions as data.

A pair of state and event that is not in its table cannot happen. It is refused before any change,
because a later refusal would leave an inconsistent state behind.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from kafka_keyshared.errors import InvariantError

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)

Table: TypeAlias = Mapping[S, Mapping[E, S]]
"""The next state by state and event."""


def follow(table: Table[S, E], state: S, event: E, what: str) -> S:
    """Return the next state; ``what`` is the object in that state.

    Raises :class:`InvariantError` if the table has none.
    """
    following = table[state].get(event)
    if following is None:
        raise InvariantError(f"{what} is {state.value}; it cannot be that {event.value}")
    return following
