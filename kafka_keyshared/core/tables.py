"""State tables: what may follow what, as data.

A pair of state and event that is not in its table cannot happen. It is refused before anything has
moved, because what is refused afterwards leaves behind what nobody has thought of.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from kafka_keyshared.errors import InvariantError

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)

Table: TypeAlias = Mapping[S, Mapping[E, S]]
"""By state and event the state that follows."""


def follow(table: Table[S, E], state: S, event: E, what: str) -> S:
    """Return the state that follows; ``what`` is in it.

    Raises :class:`InvariantError` where the table has none.
    """
    following = table[state].get(event)
    if following is None:
        raise InvariantError(f"{what} is {state.value}; it cannot be that {event.value}")
    return following
