"""Rings are computed once for each set of names and not once for each of thousands of lives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

import pytest

from kafka_keyshared.core.routing import table
from kafka_keyshared.core.routing.ring import VnodeRing


class _KnownRing(VnodeRing):
    """The ring, computed once for each list of names: it is a value, so it can be kept."""

    def arcs(self) -> Iterator[tuple[int, int]]:
        return iter(_arcs(self))

    def with_worker(self, name: str, weight: float | None = None) -> VnodeRing:
        assert weight is None
        return _known((*self.workers, name), self.vnodes)

    def without_worker(self, name: str) -> VnodeRing:
        return _known(tuple(each for each in self.workers if each != name), self.vnodes)

    def brought_to(self, names: Sequence[str]) -> VnodeRing:
        others = [each for each in names if each not in self.workers]
        there = [each for each in self.workers if each in names]
        return _known((*there, *others), self.vnodes)


@lru_cache(maxsize=64)
def _known(names: tuple[str, ...], vnodes: int) -> VnodeRing:
    return _KnownRing(names, vnodes)


@lru_cache(maxsize=64)
def _arcs(ring: VnodeRing) -> list[tuple[int, int]]:
    arcs = groupby(VnodeRing.arcs(ring), itemgetter(0))
    return [(owner, sum(slots for _, slots in run)) for owner, run in arcs]


@pytest.fixture(autouse=True)
def known_rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def known(names: Sequence[str], vnodes: int) -> VnodeRing:
        return _known(tuple(names), vnodes)

    monkeypatch.setattr(table, "VnodeRing", known)
    yield
    _known.cache_clear()
    _arcs.cache_clear()
