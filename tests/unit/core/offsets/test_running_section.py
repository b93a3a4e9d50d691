"""The section that names running records: its form, what fits, and what has not its form."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET, TEXT_LIMIT, decode, encode
from kafka_keyshared.core.offsets.metadata_sections import (
    COUNTED_MOST,
    RUNNING_BUDGET,
    STARTED,
    WAITING,
    LaneNotes,
    RunningNote,
    Tried,
    merged,
    pack_running,
)
from kafka_keyshared.core.offsets.settled_set_codec import MAX_OFFSET
from kafka_keyshared.lab.simulator.commit_text import read_notes
from tests.support.commit_texts import here
from tests.unit.core.offsets.test_metadata_format import block, every_second, numbers, sealed

RUNNING = RunningNote({503: STARTED, 600: WAITING}, 3)
PAYLOAD = (5, numbers(500, 3, 3, 1, 96, 0))


def test_running_records_are_written_as_documented() -> None:
    text = encode(here(500), {}, notes={"s": LaneNotes(running=RUNNING)}).text
    assert text == sealed(block("s", PAYLOAD), 500)
    assert decode(text, here(500)).notes == {"s": LaneNotes(running=RUNNING)}
    notes = read_notes(text, 500)["s"]
    assert (notes.running, notes.more) == ({503: 1, 600: 0}, 3)


def test_a_number_counts_owners_and_is_never_more_than_a_byte() -> None:
    text = sealed(block("s", (5, numbers(500, 0, 3, 7, 0, 5_000))), 500)
    assert decode(text, here(500)).notes["s"].running == RunningNote({503: 7, 504: COUNTED_MOST})


def test_what_is_below_the_position_is_left_out() -> None:
    text = sealed(block("s", (5, numbers(500, 0, 3, 1, 0, 1))), 504)
    assert decode(text, here(504)).notes["s"].running == RunningNote({504: STARTED})


@pytest.mark.parametrize(
    "payload",
    [numbers(501, 0, 3, 1), numbers(500), numbers(500, 0, 3), numbers(0, 0, MAX_OFFSET, 1)],
)
def test_another_form_is_refused(payload: bytes) -> None:
    assert decode(sealed(block("s", (5, payload)), 500), here(500)).problem is not None


def test_the_first_records_are_named_and_the_others_counted() -> None:
    numbers_ = dict.fromkeys(range(2000), STARTED)
    text = encode(here(0), {}, notes={"s": LaneNotes(running=RunningNote(numbers_))}).text
    assert len(text) <= RUNNING_BUDGET + 11
    kept = decode(text, here(0)).notes["s"].running
    assert len(kept.numbers) > 20
    assert set(kept.numbers) == set(range(len(kept.numbers)))
    assert len(kept.numbers) + kept.more == 2_000


def test_running_records_take_nothing_from_a_set() -> None:
    """A broker with a low limit takes the set first."""
    runs = {"default": every_second(500, 20_000)}
    alone = encode(here(500), runs, set_budget=SET_BUDGET)
    notes = {
        "default": LaneNotes(running=RunningNote(dict.fromkeys(range(501, 3_000, 2), STARTED)))
    }
    both = encode(here(500), runs, notes=notes, set_budget=SET_BUDGET)
    assert both.set_chars == alone.set_chars
    assert len(both.text) <= TEXT_LIMIT
    low = encode(here(500), {"default": ((501, 502),)}, notes=notes, limit=40)
    assert decode(low.text, here(500)).sections == {"default": ((501, 502),)}
    assert not decode(low.text, here(500)).notes


def test_a_section_without_room_is_left_out() -> None:
    assert pack_running(0, RUNNING, 20) == b""
    assert pack_running(0, RunningNote({}, 5), 96) == b""


def test_a_living_member_that_comes_back_has_no_suspects() -> None:
    one = LaneNotes(tried={5: Tried(2)}, running=RunningNote({5: STARTED}))
    assert merged(one, one) == LaneNotes(tried={5: Tried(2)})
