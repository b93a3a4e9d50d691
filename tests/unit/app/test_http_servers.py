"""What is served ends with the run, and a stop waits for as long as that may take."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.app import http_servers
from kafka_keyshared.app.group import LAST_WORD_WITHIN
from kafka_keyshared.app.http_servers import Served
from kafka_keyshared.observability.web.admin.server import ENDS_WITHIN
from kafka_keyshared.platform.detached_call import Aside


class Link:
    """A group that hears how the run has ended."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def close(self, *, clean: bool) -> None:
        self.told.append(clean)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long has been waited for each part, at most."""
    found: list[float] = []

    class Heard(Aside[None]):
        def wait(self, timeout: float) -> bool:
            found.append(timeout)
            return super().wait(30.0)

    monkeypatch.setattr(http_servers, "Aside", Heard)
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_waits_until_the_last_word_is_said(clean: bool, waits: list[float]) -> None:
    link: Any = Link()
    nothing: Any = None
    served = Served(nothing, nothing)
    served.group = link
    served.close(wait=True, clean=clean)
    assert link.told == [clean]
    (waited,) = waits
    assert waited > max(LAST_WORD_WITHIN, ENDS_WITHIN + 1.0)


def test_one_that_is_given_up_on_waits_for_nothing(waits: list[float]) -> None:
    link: Any = Link()
    nothing: Any = None
    served = Served(nothing, nothing)
    served.group = link
    served.close(wait=False, clean=False)
    assert waits == [0.0]
