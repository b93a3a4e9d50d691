"""Runs what is asked of a pool with every pool that there is: see ``opt_outs.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.opt_outs import pools_of
from tests.conformance.pool_sides import Side


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that takes a ``kind`` of pool, itself or by its ``side``, each of them."""
    # Clients have kinds of their own.
    of_pools = not metafunc.module.__name__.rpartition(".")[2].startswith("test_client")
    if "kind" in metafunc.fixturenames and of_pools:
        pools = pools_of(metafunc.definition.originalname)
        metafunc.parametrize("kind", list(pools.values()), ids=list(pools))


@pytest.fixture
def side(kind: type[Side]) -> Iterator[Side]:
    """A pool with one worker, whose steps are the test's to choose."""
    made = kind()
    yield made
    made.close()
