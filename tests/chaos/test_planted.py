"""The mistakes that systems of this kind have had, made here one by one: each is caught."""

from __future__ import annotations

import pytest

from tests.setup.mutants import run
from tests.setup.planted import missed_of, read_bugs


@pytest.mark.timeout(900)  # sixty runs of tests, two minutes where nothing else runs
def test_every_planted_fault_is_caught_by_the_test_that_the_page_names() -> None:
    bugs = read_bugs()
    results = run([bug.mutant for bug in bugs])
    assert len(results) == len(bugs) > 20
    missed = missed_of(results)
    assert not missed, "\n".join(map(str, missed))
