"""Checkers over a history told by hand, and what a test expects of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.checkers import every_checker
from kafka_keyshared.lab.simulator.checkers.checker import Checker, Violation
from tests.simulation.told import Told

Story = Callable[[Told], object]


def settings(**chosen: Any) -> SubscriptionSettings:
    return SubscriptionSettings(workers=("worker-0", "worker-1"), **chosen)


def begun(told: Told, count: int = 3, key: str = "a") -> Told:
    """Records of one key, and member 1, which reads them from the start."""
    told.write(*[key] * count)
    told.join(1, 2)
    told.assign(1)
    return told


def assert_right(story: Story, *subs: SubscriptionSettings, **how: Any) -> dict[str, Checker]:
    """Tell a story that no checker has anything to say about; return the checkers, by name."""
    told = Told()
    found = every_checker(told.history, subs or [settings()], **how)
    story(told)
    return {type(each).__name__: each for each in found}


def assert_found(
    name: str, words: str, story: Story, *subs: SubscriptionSettings, **how: Any
) -> Violation:
    """Tell a story that breaks an invariant; it is the first one that is broken."""
    told = Told()
    found = every_checker(told.history, subs or [settings()], **how)
    with pytest.raises(Violation, match=words) as caught:
        story(told)
    (broken,) = [each for each in found if each.violations]
    assert type(broken).__name__ == name
    assert broken.violations == [caught.value]
    assert caught.value.time == told.timeline.now
    assert str(caught.value).startswith(broken.invariant)
    return caught.value
