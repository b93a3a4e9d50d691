"""Where to read on of a log that has not, or no longer, what was received of it."""

from __future__ import annotations

import logging

import pytest

from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.runtime.reposition import NO_ID, inside
from kafka_keyshared.runtime.topic_ids import TopicId
from tests.support.records import P0

SAME, OTHER = TopicId("one", "one"), TopicId("one", "two")
NOT_TOLD, NEVER_KNOWN = TopicId("one", None), TopicId(None, "one")
ANEW, CUT, READ_ON = "the topic was deleted and recreated", "it was cut off", "which the log has"
GONE, NOBODY_SAYS = "2 offsets are gone", "neither the topic's id nor the epoch of its leader"


@pytest.mark.parametrize(
    ("bounds", "id_", "place", "said"),
    [
        # The place is in the log.
        (LogBounds(0, 9), NO_ID, 5, READ_ON),
        (LogBounds(0, 9), SAME, 5, READ_ON),
        (LogBounds(0, 5), NOT_TOLD, 5, READ_ON),
        (LogBounds(0, 9), OTHER, 0, ANEW),
        (LogBounds(2, 9, 7), OTHER, 2, ANEW),
        # It is before its start.
        (LogBounds(7, 9), NO_ID, 7, GONE),
        (LogBounds(7, 9), SAME, 7, GONE),
        (LogBounds(7, 9), OTHER, 7, ANEW),
        # It is behind its end, and the epoch has risen.
        (LogBounds(0, 3, 2), SAME, 3, CUT),
        (LogBounds(0, 3, 2), OTHER, 0, ANEW),
        (
            LogBounds(0, 3, 2),
            NO_ID,
            3,
            f"{CUT} (as by the election of a leader that lagged behind) "
            "(decided without the topic's id)",
        ),
        (LogBounds(0, 3, 2), NOT_TOLD, 3, "(decided without the topic's id)"),
        (LogBounds(0, 3, 2), NEVER_KNOWN, 3, "(decided without the topic's id)"),
        # The epoch has not risen: no log is cut off so. The id was asked for too late.
        (LogBounds(0, 3, 1), SAME, 0, ANEW),
        (LogBounds(2, 3, 0), SAME, 2, ANEW),
        (LogBounds(0, 3, 1), OTHER, 0, ANEW),
        (LogBounds(0, 3, 1), NO_ID, 0, f"{ANEW} (decided without the topic's id)"),
        (LogBounds(2, 3, 0), NOT_TOLD, 2, f"{ANEW} (decided without the topic's id)"),
        # Nobody tells the epoch.
        (LogBounds(0, 3), SAME, 3, CUT),
        (LogBounds(0, 3), OTHER, 0, ANEW),
        (LogBounds(0, 3), NO_ID, 0, NOBODY_SAYS),
        (LogBounds(0, 3), NOT_TOLD, 0, NOBODY_SAYS),
    ],
)
def test_where_to_read_on(
    bounds: LogBounds, id_: TopicId, place: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        found = inside(P0, 5, bounds, 1, id_)
    (line,) = caplog.records
    assert found.position == place
    assert found.remade is (said.startswith((ANEW, NOBODY_SAYS)))
    assert found.another is (found.remade or said not in (READ_ON, GONE))
    wanted = {READ_ON: logging.INFO, GONE: logging.WARNING}.get(said, logging.ERROR)
    assert line.levelno == wanted
    assert said in line.getMessage()


def test_where_nothing_was_received_the_log_is_read_where_a_start_would_be() -> None:
    assert inside(P0, None, LogBounds(0, 9), -1, OTHER) == (None, False, False)


def test_a_log_that_ends_before_what_has_settled_was_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is read from before that, so nothing was out of range; new records come there again."""
    assert inside(P0, 5, LogBounds(0, 8), 1, SAME, settled_end=8) == (5, False, False)
    for bounds in (LogBounds(0, 5), LogBounds(0, 7)):
        caplog.clear()
        assert inside(P0, 5, bounds, 1, SAME, settled_end=8) == (5, True, False)
        assert "settled records beyond its end are forgotten" in caplog.text


def test_an_epoch_that_was_not_received_says_nothing() -> None:
    """As of a position that another client has committed."""
    assert inside(P0, 5, LogBounds(0, 3, 0), -1).position == 0
    assert inside(P0, 5, LogBounds(0, 3, 0), -1, SAME).position == 3
