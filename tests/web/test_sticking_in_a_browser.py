"""Ways in which an instance is made to stand still: Overview names the cause of each of them."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.benchmarks import verify
from tests.benchmarks.sticking import WAYS, read_cause

# A browser has much to do, and a machine may be slow.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", WAYS)
def test_overview_alone_names_the_cause(name: str, browser: Browser) -> None:
    read = read_cause(WAYS[name], browser, alone=0.0)
    assert WAYS[name].says[0] in read.text
    assert read.faults == []


def test_each_way_is_held_to_half_a_minute() -> None:
    (case,) = [case for case in verify.CASES if case.name == "sticking"]
    assert [(each.figure, each.bound, each.at_most) for each in case.floors] == [
        (f"{name}_s", 30.0, True) for name in WAYS
    ]
