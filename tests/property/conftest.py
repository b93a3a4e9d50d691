"""Rings are computed once for each set of names and not once for each of thousands of lives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

import pytest

from kafka_keyshared.core.routing import table
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing


@lru_cache(maxsize=64)
def _arcs(names: tuple[str, ...]) -> list[tuple[int, int]]:
    arcs = VnodeRing(names, ROUTING_VNODES).arcs()
    return [(owner, sum(slots for _, slots in run)) for owner, run in groupby(arcs, itemgetter(0))]


class _KnownRing:
    """The ring, computed once for each set of names and not once for each of thousands of lives."""

    def __init__(self, names: Sequence[str], vnodes: int) -> None:
        assert vnodes == ROUTING_VNODES
        self._names = tuple(names)

    def arcs(self) -> list[tuple[int, int]]:
        return _arcs(self._names)


@pytest.fixture(autouse=True)
def known_rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(table, "VnodeRing", _KnownRing)
    yield
    _arcs.cache_clear()
