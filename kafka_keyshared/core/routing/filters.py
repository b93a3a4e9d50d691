"""Key filters of workers: glob patterns on the key's bytes.

Filters answer two separate questions. The *declared* filters of all workers, present or away,
decide whether any worker may take a record. Otherwise the records of a restarting worker would be
skipped. The current owner is chosen among the present workers: it is the owner in a routing that
has only the workers that want the key.

If no worker filters, there is no object of this module (:func:`filters_of`) and no check is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from kafka_keyshared.core.routing.port import Owner, Routing, Unowned
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import LANE_KEY_BYTES, SLOTS

OnUnmatched: TypeAlias = Literal["skip", "hold", "error"]
"""Policy for a record that no declared worker takes.

``skip`` settles it unrun. ``hold`` keeps it until a worker that takes it is declared. ``error``
ends the instance without settling it.
"""

ON_UNMATCHED: tuple[OnUnmatched, ...] = ("skip", "hold", "error")

KEYS_KNOWN = 1_024
"""Keys of at most 64 bytes that are cached with the workers that want them.

A longer key is matched every time.
"""

_ANY, _ONE = b"*?"


def matches(pattern: bytes, key: bytes) -> bool:
    """Return whether the whole key matches: ``*`` is any bytes or none, ``?`` is one byte.

    There is no escape and no other wildcard. Matching takes at most len(pattern) * len(key) steps,
    because only the last ``*`` is ever retried with one byte more.
    """
    at = here = 0
    star = retried = -1
    while here < len(key):
        if at < len(pattern) and pattern[at] == _ANY:
            star, retried = at, here
            at += 1
            if at == len(pattern):
                return True
        elif at < len(pattern) and pattern[at] in (_ONE, key[here]):
            at += 1
            here += 1
        elif star < 0:
            return False
        else:
            # The star must end before the next byte that equals the byte after it in the pattern.
            follows = pattern[star + 1]
            retried = retried + 1 if follows == _ONE else key.find(follows, retried + 1)
            if retried < 0:
                return False
            at, here = star + 1, retried
    return not pattern[at:].strip(b"*")


@dataclass(frozen=True, slots=True, init=False)
class Filters:
    """The patterns that each worker has declared, present or away.

    A worker without patterns, or with ``*``, is a *catch-all*: it takes every key, and records
    without a key. A pattern never matches a record without a key.
    """

    patterns: tuple[tuple[str, tuple[bytes, ...]], ...]
    catch_alls: frozenset[str] = field(compare=False)
    # Patterns without wildcards are looked up instead of matched.
    _plain: Mapping[bytes, frozenset[str]] = field(repr=False, compare=False)
    _globs: tuple[tuple[bytes, str], ...] = field(repr=False, compare=False)

    def __init__(self, patterns: Mapping[str, Iterable[str | bytes]]) -> None:
        made = {name: _patterns(name, given) for name, given in patterns.items()}
        catch_alls = frozenset(name for name, own in made.items() if not own or _takes_all(own))
        plain: dict[bytes, frozenset[str]] = {}
        globs = []
        for name, own in made.items():
            for pattern in own if name not in catch_alls else ():
                if _ANY in pattern or _ONE in pattern:
                    globs.append((pattern, name))
                else:
                    plain[pattern] = plain.get(pattern, catch_alls) | {name}
        # The only way to fill a frozen instance; nothing writes to it afterwards.
        object.__setattr__(self, "patterns", tuple(made.items()))
        object.__setattr__(self, "catch_alls", catch_alls)
        object.__setattr__(self, "_plain", plain)
        object.__setattr__(self, "_globs", tuple(globs))

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that have declared filters, present or away."""
        return tuple(name for name, _ in self.patterns)

    def with_worker(self, name: str, patterns: Iterable[str | bytes] = ()) -> Filters:
        """Return the filters with those of one worker added or replaced."""
        return Filters({**dict(self.patterns), name: patterns})

    def takers(self, key: bytes | None) -> frozenset[str]:
        """Return the workers that were declared to want the key; None is a null key."""
        if key is None:
            return self.catch_alls
        found = self._plain.get(key, self.catch_alls)
        return found.union(name for pattern, name in self._globs if matches(pattern, key))


def filters_of(patterns: Mapping[str, Iterable[str | bytes]]) -> Filters | None:
    """Return the filters of these workers, or None if every worker takes every key."""
    made = Filters(patterns)
    return made if len(made.catch_alls) < len(made.patterns) else None


def check_filters(routing: Routing, filters: Filters) -> None:
    """Raise :class:`ConfigError` if the routing cannot use these filters.

    That is a routing that takes no filters, or one with a worker that has declared none.
    """
    if not routing.takes_filters:
        raise ConfigError(
            f"{type(routing).__name__} takes no filters: it looks at no key; leave the "
            f"filters of {', '.join(filters.workers)} out, or choose another routing"
        )
    silent = [name for name in routing.workers if name not in filters.workers]
    if silent:
        raise ConfigError(
            f"worker {', '.join(map(repr, silent))} has not declared which keys it takes while "
            "others filter: declare an empty list for every key"
        )


class FilteredSlots:
    """A slot function for filtering workers: it splits a slot by the workers that want the key.

    It returns *wide* slots. The low 16 bits are the slot of the key. The bits above number the set
    of workers declared to want it. All keys of a wide slot have one owner. Its number stays the
    same when workers join and leave. So a wide slot is leased and drained like any slot.

    It caches at most :data:`KEYS_KNOWN` keys, and every set of workers that it has met.
    """

    def __init__(self, slot: Callable[[bytes], int], filters: Filters) -> None:
        self._slot = slot
        self._takers: list[frozenset[str]] = []
        self._number_of: dict[frozenset[str], int] = {}
        self.declare(filters)

    def declare(self, filters: Filters) -> None:
        """Use these filters from now on; existing wide slots keep their meaning."""
        self.filters = filters
        self._known = lru_cache(KEYS_KNOWN)(self._set_of)

    def __call__(self, key: bytes) -> int:
        """Return the wide slot of the key."""
        slot = self._slot(key)
        known = self._known if len(key) <= LANE_KEY_BYTES else self._set_of
        return known(key) * SLOTS + slot

    def owner(self, wide: int, routing: Routing) -> Owner:
        """Return the worker that gets the keys of a wide slot.

        It is ``Unowned.UNASSIGNED`` if no worker was declared to take them, and ``Unowned.AWAY`` if
        all of those workers are away.
        """
        takers = self._takers[wide // SLOTS]
        return routing.owner_among(wide % SLOTS, takers) if takers else Unowned.UNASSIGNED

    def _set_of(self, key: bytes) -> int:
        takers = self.filters.takers(key)
        number = self._number_of.get(takers)
        if number is None:
            number = self._number_of[takers] = len(self._takers)
            self._takers.append(takers)
        return number


def shown(filtered: FilteredSlots | None) -> dict[str, tuple[str, ...]]:
    """Return the patterns of each worker, as text; empty if no worker filters."""
    patterns = () if filtered is None else filtered.filters.patterns
    return {
        name: tuple(each.decode("utf-8", "backslashreplace") for each in those)
        for name, those in patterns
    }


def check_unmatched(
    routing: Routing, filters: Filters | None, on_unmatched: OnUnmatched | None
) -> None:
    """Raise :class:`ConfigError` if a record may have no worker and ``on_unmatched`` is unset.

    It need not be set if the workers without filters have all slots between them.
    """
    if on_unmatched is not None:
        if on_unmatched not in ON_UNMATCHED:
            raise ConfigError(
                f"on_unmatched={on_unmatched!r}: give one of {', '.join(map(repr, ON_UNMATCHED))}"
            )
        return
    say = (
        "give on_unmatched='skip' (settled, and never run), 'hold' (kept until a worker takes it) "
        "or 'error'"
    )
    if filters is not None and not filters.catch_alls:
        raise ConfigError(
            f"no worker takes every key, each of {', '.join(filters.workers)} has filters: {say}, "
            "or let one worker do without"
        )
    gaps = routing.uncovered(None if filters is None else filters.catch_alls)
    if gaps:
        first = f"{gaps[0].first}..{gaps[0].last}"
        more = f" and {len(gaps) - 1} more" if gaps[1:] else ""
        whom = "no worker" if filters is None else "no worker without filters"
        raise ConfigError(f"{whom} has the slots {first}{more}: {say}, or assign them")


def _patterns(name: str, given: Iterable[str | bytes]) -> tuple[bytes, ...]:
    """Return a worker's patterns as bytes, each once."""
    if isinstance(given, str | bytes):
        raise ConfigError(
            f"worker {name!r}: filters={given!r}: give a list of patterns, [{given!r}]"
        )
    made = []
    for pattern in given:
        if not isinstance(pattern, str | bytes):
            raise ConfigError(
                f"worker {name!r}: filter {pattern!r}: a pattern is text or bytes, as 'ship*'"
            )
        made.append(pattern.encode() if isinstance(pattern, str) else pattern)
    return tuple(dict.fromkeys(made))


def _takes_all(patterns: Iterable[bytes]) -> bool:
    return any(pattern and not pattern.strip(b"*") for pattern in patterns)
