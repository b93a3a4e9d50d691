"""Batches that are written and not committed: their names, their notes, and which outputs stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.driver.folders import NOTES, WrittenBatches
from kafka_keyshared.spark.uncommitted_batches import Note, OutputFate, name_of_batch, note_of

Starts = dict[TopicPartition, StartPoint]
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OTHER = TopicPartition("u", 0)


def at(
    position: int, metadata: str | None = "", *, end: int = 100, stored: bool = True
) -> StartPoint:
    return StartPoint(position, metadata, 0, end, stored)


points = st.builds(
    at,
    st.integers(0, 50),
    st.sampled_from(["", "a", "b"]),
    end=st.integers(50, 100),
    stored=st.booleans(),
)
partitions = st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 3))
groups = st.dictionaries(partitions, points, min_size=1)


def stood(starts: Starts) -> Mapping[TopicPartition, tuple[int | None, str]]:
    return {each: (point.position, point.metadata or "") for each, point in starts.items()}


@given(groups, groups, st.data())
def test_a_batch_is_named_by_where_its_whole_group_stands(
    one: Starts, other: Starts, data: st.DataObject
) -> None:
    """Records that come meanwhile, in whatever partition, move an end and no start."""
    moved = {
        each: replace(point, log_end=data.draw(st.integers(point.position or 0, 200)))
        for each, point in reversed(one.items())
    }
    assert name_of_batch("g", moved) == name_of_batch("g", one)
    assert (name_of_batch("g", other) == name_of_batch("g", one)) == (stood(other) == stood(one))
    assert name_of_batch("h", one) != name_of_batch("g", one)


def test_a_record_in_a_partition_that_was_idle_leaves_the_name_of_the_batch() -> None:
    before = {P0: at(5), P1: at(7, end=7)}
    assert name_of_batch("g", {**before, P1: at(7, end=8)}) == name_of_batch("g", before)


def test_a_batch_that_begins_elsewhere_has_a_name_of_its_own() -> None:
    """So none writes over the outputs of one that was committed."""
    groups = [
        ("g", {P0: at(5)}),
        ("g", {P0: at(6)}),
        ("g", {P0: at(5, "more settled")}),
        ("g", {P1: at(5)}),
        ("g", {P0: at(5), P1: at(0)}),
        ("g", {OTHER: at(5)}),
        ("h", {P0: at(5)}),
    ]
    names = [name_of_batch(group, starts) for group, starts in groups]
    assert len(set(names)) == len(names)


@dataclass
class World:
    """A group, its logs, and a folder of outputs: of three records two have one output each."""

    ends: dict[TopicPartition, int] = field(default_factory=lambda: {P0: 5, P1: 0})
    group: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    # --- the files, as `WrittenBatches` has them ---

    def texts(self, folder: str) -> Mapping[str, str]:
        assert folder == NOTES
        return dict(self.notes)

    def write(self, file: str, text: str) -> None:
        self.notes[file] = text

    def remove(self, path: str) -> None:
        self.folders.pop(path, None)
        self.notes.pop(path, None)

    # --- the driver ---

    def starts(self) -> Starts:
        none = (0, "")
        return {
            each: StartPoint(*self.group.get(each, none), 0, end, each in self.group)
            for each, end in self.ends.items()
        }

    def run(self, most: int = 1_000, killed: str = "") -> bool:
        """Run one batch; killed before its commit, or behind it. Say whether it had records."""
        starts, rows = self.starts(), []
        entries = {each: CommitEntry(0, "") for each, at in starts.items() if not at.stored}
        for each, point in starts.items():
            begin = point.position or 0
            end = min(self.ends[each], begin + most)
            if end > begin:
                entries[each] = CommitEntry(end, "")
                rows += [f"{each}@{offset}" for offset in range(begin, end) if offset % 3]
        note, written = note_of("g", starts, entries), WrittenBatches(self)
        if not any(each.position for each in entries.values()):
            return False
        written.begin(note, starts, outputs=bool(rows))
        if rows:
            self.folders[f"batch={note.batch}"] = rows
        if killed == "before":
            return True
        self.group |= {each: (entry.position, entry.metadata) for each, entry in entries.items()}
        if killed != "behind":
            written.committed(note)
        return True

    def all_rows(self) -> list[str]:
        return sorted(row for rows in self.folders.values() for row in rows)

    def require_each_output_once(self) -> None:
        while self.run():
            pass
        WrittenBatches(self).look("g", self.starts())  # as the next run does first
        assert self.all_rows() == sorted(
            f"{each}@{offset}"
            for each, end in self.ends.items()
            for offset in range(end)
            if offset % 3
        )
        assert self.notes == {}


def test_a_record_in_another_partition_writes_no_output_twice() -> None:
    world = World()
    world.run(killed="before")
    world.ends[P1] = 2
    world.require_each_output_once()


@pytest.mark.parametrize("added", [P2, OTHER])
def test_a_partition_that_is_added_before_the_second_attempt_writes_no_output_twice(
    added: TopicPartition,
) -> None:
    """The group has another partition, so the batch has another name."""
    world = World()
    world.run(killed="before")
    world.ends[added] = 4
    world.require_each_output_once()


def test_an_idle_partition_that_another_tool_commits_writes_no_output_twice() -> None:
    world = World(ends={P1: 3})
    world.run()
    world.ends[P0] = 5
    world.run(killed="before")
    world.group[P1] = (3, "by a tool")
    world.require_each_output_once()


def test_a_commit_whose_answer_was_lost_keeps_its_outputs() -> None:
    world = World()
    world.run(killed="behind")
    world.ends[P0], world.ends[P2] = 9, 2
    world.require_each_output_once()


def test_a_second_attempt_that_hands_nothing_out_leaves_nothing_of_the_first() -> None:
    """It ends earlier, so the batch behind it has the records of those outputs."""
    world = World()
    world.run(killed="before")
    world.run(most=1)
    assert world.folders == {}
    world.require_each_output_once()


def test_a_partition_that_a_tool_moves_within_an_uncommitted_batch_is_not_there_twice() -> None:
    world = World(ends={P0: 6, P1: 6})
    world.run(killed="before")
    world.group[P0] = (3, "")
    world.run()
    assert world.all_rows() == [f"t-{n}@{at}" for n in (0, 1) for at in (1, 2, 4, 5) if n or at > 3]


def test_other_metadata_at_the_same_positions_writes_no_output_twice() -> None:
    """A pod came in between, noted attempts or which log it is, and settled nothing."""
    world = World(ends={P0: 5, P1: 3})
    world.run(killed="before")
    world.group = {P0: (0, "by a pod"), P1: (0, "by a pod")}
    world.require_each_output_once()


def test_a_set_that_a_pod_went_on_with_keeps_the_outputs_of_what_is_settled() -> None:
    """The commit of the batch moved no position, as behind a blocked key: only metadata."""
    starts = {P0: at(3, "")}
    note = note_of("g", starts, {P0: CommitEntry(3, "settled")})
    assert note.fate(starts) is OutputFate.GO
    assert note.fate({P0: at(3, "settled")}) is OutputFate.STAY
    assert note.fate({P0: at(3, "settled, and more")}) is OutputFate.STAY


def test_outputs_stay_where_the_group_has_gone_on_by_other_means() -> None:
    """As pods do from where the group stood: nobody can tell any more who was first."""
    world = World(group={P1: (0, "")})
    world.run(killed="before")
    first = world.all_rows()
    world.group[P0], world.ends[P0] = (7, "by a pod"), 9
    world.run()
    assert world.all_rows() == [*first, "t-0@7", "t-0@8"]
    assert world.notes == {}


def test_a_batch_of_partitions_that_the_group_has_no_more_is_decided_when_they_are_back() -> None:
    world = World()
    world.run(killed="before")
    ends = world.ends
    world.ends = {OTHER: 2}
    world.run()
    assert len(world.notes) == 1
    world.ends = ends | world.ends
    world.require_each_output_once()


def test_a_note_of_another_group_or_one_cut_short_is_let_be() -> None:
    world = World()
    world.run(killed="before")
    [text] = world.notes.values()
    theirs = replace(Note.of_text(text) or pytest.fail(text), group="h", batch="theirs")
    world.notes = {f"{NOTES}/theirs.json": theirs.text(), f"{NOTES}/cut.json": text[:-9]}
    world.folders["batch=theirs"] = []
    world.ends[P2] = 3
    world.run()
    assert sorted(world.notes) == [f"{NOTES}/cut.json", f"{NOTES}/theirs.json"]
    assert "batch=theirs" in world.folders


def test_a_note_says_the_same_once_it_is_read() -> None:
    starts = {P0: at(3, None), P1: at(0, stored=False), P2: at(7, "m")}
    entries = {P0: CommitEntry(9, "x"), P1: CommitEntry(0, ""), P2: CommitEntry(7, "m")}
    note = note_of("g", starts, entries)
    assert set(note.moves) == {"t-0", "t-1"}
    assert Note.of_text(note.text()) == note
    assert note.fate(starts) is OutputFate.GO
    assert note.fate({**starts, P0: at(9, "x")}) is OutputFate.STAY
    assert note.fate({P2: starts[P2]}) is OutputFate.UNKNOWN


steps = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 5), st.sampled_from(["", "before", "behind"])),
    st.tuples(st.just("records"), partitions, st.integers(1, 4)),
    st.tuples(st.just("committed by a tool"), partitions, st.sampled_from(["", "tool"])),
)


@given(st.lists(steps, max_size=14))
def test_whatever_happens_between_two_attempts_each_output_is_there_once(
    happens: list[tuple[str, Any, Any]],
) -> None:
    """Kills, lost answers, new partitions and topics, tools that commit where a group stands."""
    world = World()
    for what, one, other in happens:
        if what == "run":
            world.run(one, other)
        elif what == "records":
            world.ends[one] = world.ends.get(one, 0) + other
        elif one in world.ends:
            position, _ = world.group.get(one, (0, ""))
            world.group[one] = (position, other)
    world.require_each_output_once()
