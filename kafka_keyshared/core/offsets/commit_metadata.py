"""Commit metadata: offsets settled beyond the committed position, as ASCII text.

Kafka stores with each committed offset a string of the consumer's choice. Ours names, for each
subscription, the offsets at and after the position that are settled already. So the next owner of
the partition runs none of them again. It also has a few notes on lanes and records
(:mod:`.metadata_sections`). The text is only a hint. :func:`decode` returns for every input, and in
doubt it returns nothing. Then records run again and none is lost. A text is valid only at the
position and in the log for which it was written (:mod:`.metadata_sections`).

Version 2::

    text    = "KS2"     magic and version
              3         length of the whole text, lower-case hexadecimal
              5         CRC-32 of all the rest of the text, base 85
              ...       the body, base 85
    body    = origin block*                   a block for each subscription, in order of id
    origin  = partition position name size id of which log and position (:mod:`.metadata_sections`)
    block   = size id size section*           the id in UTF-8; sizes in bytes
    section = kind(1 byte) size payload       a reader skips the kinds it does not know
    kind 1  = base (gap length)*              a settled set as runs
    kind 2  = base skip bits                  a settled set as a bitmap, low bit first
    kind 3  = base hash*                      diverted lanes
    kind 4  = base (gap number)*              attempts of records that are not settled
    kind 5  = base more (gap number)*         running records (:mod:`.metadata_sections`)

Sizes and numbers are varints of 7 bits a byte, low end first. The first gap counts from the base.
The other gaps and all lengths are stored less 1. Each section has its own base, so a block can be
copied verbatim to a later position. Base 85 puts 4 bytes into 5 characters, needs neither quotes
nor backslashes, and is in the standard library.

There are no counts: each element that is read takes characters, so no text can make a reader
allocate much. The text carries its own length because confluent-kafka reads past the end of
metadata whose writer stored no final NUL. Characters beyond that length are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka_keyshared.core.offsets.metadata_sections import (
    ENVELOPE_CHARS,
    KIND_LANES,
    KIND_RUNNING,
    KIND_TRIED,
    LANES_MOST,
    NONE_RUNNING,
    ORIGIN_BYTES,
    RUNNING_BUDGET,
    TEXT_LIMIT,
    LaneNotes,
    LogPosition,
    Tried,
    bytes_in,
    chars,
    lanes_fit,
    pack_lanes,
    pack_origin,
    pack_running,
    pack_tried,
    read_origin,
    seal,
    unpack_lanes,
    unpack_running,
    unpack_tried,
    unseal,
)
from kafka_keyshared.core.offsets.settled_set_codec import (
    KIND_BITMAP,
    KIND_RUNS,
    ByteReader,
    MalformedError,
    Packed,
    Runs,
    check_runs,
    clip,
    pack,
    payload_bound,
    put_varint,
    settled_runs,
    unpack,
    varint_size,
)
from kafka_keyshared.errors import InvariantError

__all__ = [
    "DEFAULT_SUBSCRIPTION",
    "LANES_BUDGET",
    "SET_BUDGET",
    "TEXT_LIMIT",
    "TRIED_BUDGET",
    "Decoded",
    "Encoded",
    "LogPosition",
    "Runs",
    "clip",
    "decode",
    "encode",
    "lane_rooms",
    "set_budget_of",
    "set_rooms",
    "settled_runs",
    "size_bound",
]

SET_BUDGET = 2800
"""Most characters of the settled sets of all subscriptions, their block headers included."""

LANES_BUDGET = 750
"""Most characters of the diverted lanes of all subscriptions."""

TRIED_BUDGET = 300
"""Most characters of the attempts and archive marks of all subscriptions."""

OVERHEAD_CHARS = ENVELOPE_CHARS + chars(ORIGIN_BYTES)
"""Most characters of a text that are neither set nor notes."""

SMALL = 400
"""Up to this many characters for sets and notes, the sets may take all of them."""

DEFAULT_SUBSCRIPTION = "default"
"""The id of the subscription that exists when the user makes none."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The text to commit, and counts of the data left out.

    ``truncated`` names the subscriptions of which only the lowest offsets of the set were written.
    The others, ``left_out`` in number, run again after a restart. ``dropped_unknown`` counts the
    blocks of unknown subscriptions that did not fit. ``set_chars`` is the number of characters that
    the sets took of their budget.
    """

    text: str
    truncated: tuple[str, ...] = ()
    left_out: int = 0
    dropped_unknown: int = 0
    set_chars: int = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """The content of a committed text.

    ``sections`` has the settled runs of every subscription that has any, all at or after the
    requested position. ``notes`` has the notes on its lanes and records. ``unknown`` has the blocks
    of unknown subscriptions, to be passed to :func:`encode` again. ``skipped`` counts the sections
    of later kinds in known subscriptions. A ``problem`` that is not None says in one line why the
    text was ignored; all other fields are empty then.
    """

    sections: Mapping[str, Runs] = field(default_factory=dict)
    notes: Mapping[str, LaneNotes] = field(default_factory=dict)
    unknown: Mapping[str, bytes] = field(default_factory=dict)
    skipped: int = 0
    problem: str | None = None


def size_bound(span: int, runs: int, subscription: str = DEFAULT_SUBSCRIPTION) -> int:
    """Return an upper bound of the characters of a subscription's block, without building it.

    ``span`` is at least the distance from the position to the end of the last settled run. ``runs``
    is at least the number of runs. With one subscription the whole set is written if this is at
    most :data:`SET_BUDGET`. The bounds of several subscriptions add up.
    """
    if runs <= 0 or span <= 0:
        return 0
    payload = payload_bound(span, runs)
    return chars(_block_overhead(subscription, payload) + payload)


def set_rooms(names: Collection[str], set_budget: int = SET_BUDGET) -> dict[str, int]:
    """Return the guaranteed bytes of each subscription's set, independent of the others.

    Each has an even share of the budget (in characters). The overhead of its block is subtracted.
    """
    share = bytes_in(set_budget) // max(1, len(names))
    return {name: _payload_room(name, share) for name in names}


def set_budget_of(limit: int) -> int:
    """Return the characters for settled sets in texts of at most ``limit`` characters.

    Below the full budget, notes keep a quarter, or the part beyond :data:`SMALL` if that is less. A
    set that does not fit makes records run again; a note that does not fit costs less.
    """
    room = max(0, limit - OVERHEAD_CHARS)
    return min(SET_BUDGET, max(3 * room // 4, min(room, SMALL)))


def lane_rooms(names: Collection[str], limit: int = TEXT_LIMIT) -> dict[str, int]:
    """Return how many lanes of a partition each subscription may divert: all fit the text.

    ``limit`` is how long a text may be, in characters.
    """
    beside_sets = max(0, limit - OVERHEAD_CHARS - set_budget_of(limit))
    share = bytes_in(min(LANES_BUDGET, beside_sets)) // max(1, len(names))
    most = LANES_MOST // max(1, len(names))
    return {name: min(most, lanes_fit(share - _block_overhead(name, share))) for name in names}


def encode(
    at: LogPosition,
    sections: Mapping[str, Runs],
    unknown: Mapping[str, bytes] | None = None,
    notes: Mapping[str, LaneNotes] | None = None,
    *,
    set_budget: int = SET_BUDGET,
    limit: int = TEXT_LIMIT,
) -> Encoded:
    """Return the text that names the offsets settled at and after the position ``at``.

    It is valid at that position of that log only. ``sections`` maps subscription ids to runs of the
    same snapshot as the position. ``unknown`` has the blocks of :attr:`Decoded.unknown`.
    ``set_budget`` bounds the sets and ``limit`` the text, both in characters. A broker with a lower
    ``offset.metadata.max.bytes`` needs a lower limit. The text is empty when there is nothing to
    store.

    A set that does not fit its share of the budget is cut to its longest prefix that does. The
    shares are max-min fair: a set that needs less than an even share gets all it needs. The rest is
    split evenly among the others. ``notes`` have budgets of their own, to which
    :func:`~.metadata_sections.pack_lanes` and :func:`~.metadata_sections.pack_tried` cut them. If
    the limit is too low for both, sets come first. Running records get :data:`RUNNING_BUDGET` of
    the rest. Unknown blocks get the remaining room, the smallest first, so that as few as possible
    are dropped.

    Raises :class:`~kafka_keyshared.errors.InvariantError` when runs are out of order, overlap or
    touch, lie below the position or beyond Kafka's largest offset, or the position is negative.
    """
    position = at.offset
    if position < 0:
        raise InvariantError(f"position {position} is not an offset: there is nothing to commit")
    for name, runs in sections.items():
        check_runs(name, position, runs)
    origin = pack_origin(at)
    room = bytes_in(min(limit, TEXT_LIMIT) - ENVELOPE_CHARS) - len(origin)
    bodies, cut = _known_bodies(position, sections, min(room, bytes_in(set_budget)))
    set_bytes = sum(len(_block(name, body)) for name, body in bodies.items())
    room -= set_bytes
    noted = _noted(position, notes or {}, room)
    # One more section may make the size of its block a byte longer.
    room -= sum(len(each) + 1 + _block_overhead(name, 0) for name, each in noted.items())
    for name, section in _running(position, notes or {}, room).items():
        room -= len(section) + 1 + _block_overhead(name, 0)
        noted[name] = noted.get(name, b"") + section
    blocks = {
        name: _block(name, bodies.get(name, b"") + noted.get(name, b""))
        for name in bodies.keys() | noted.keys()
    }
    # The own data of a known subscription replaces its old block, even when it is empty.
    foreign = {n: _block(n, body) for n, body in (unknown or {}).items() if n not in sections}
    dropped = 0
    for name in sorted(foreign, key=lambda name: (len(foreign[name]), name)):
        if len(foreign[name]) > room:
            dropped += 1
        else:
            blocks[name] = foreign[name]
            room -= len(foreign[name])
    text = seal(origin + b"".join(blocks[name] for name in sorted(blocks))) if blocks else ""
    return Encoded(text, tuple(sorted(cut)), sum(cut.values()), dropped, chars(set_bytes))


def decode(text: str | None, at: LogPosition, known: Collection[str] | None = None) -> Decoded:
    """Return the settled offsets and notes of a committed text, from its position on.

    ``at`` is where the text was found: the log and the position that was committed with it.
    ``known`` has the ids of this process's subscriptions; None treats all as known. None and an
    empty text give an empty result without a problem.

    Never raises. A text that is foreign, cut off, damaged, of another version, or written for
    another log or position than ``at`` gives a ``problem`` and nothing else.
    """
    if not text:
        return Decoded()
    try:
        return _parse_body(unseal(text), at, known)
    except MalformedError as error:
        return Decoded(
            problem=f"commit metadata ignored, everything from offset {at.offset} on runs: {error}"
        )


def _noted(position: int, notes: Mapping[str, LaneNotes], room: int) -> dict[str, bytes]:
    """Return the sections of the notes of each subscription, within their budgets."""
    lanes, tried = bytes_in(LANES_BUDGET), bytes_in(TRIED_BUDGET)
    found: dict[str, bytes] = {}
    for name in sorted(name for name, each in notes.items() if each):
        header = _block_overhead(name, 0) + 1
        diverted = pack_lanes(position, notes[name].diverted, min(lanes, room) - header)
        lanes -= len(diverted) + (header if diverted else 0)
        room -= len(diverted) + header
        attempts = pack_tried(position, notes[name].tried, min(tried, room) - header)
        tried -= len(attempts) + (header if attempts else 0)
        room -= len(attempts)
        if diverted or attempts:
            found[name] = diverted + attempts
        else:
            room += header
    return found


def _running(position: int, notes: Mapping[str, LaneNotes], room: int) -> dict[str, bytes]:
    """Return the sections of running records, within their budget and the ``room`` in bytes."""
    room = min(room, bytes_in(RUNNING_BUDGET))
    found: dict[str, bytes] = {}
    for name in sorted(name for name, each in notes.items() if each.running):
        # One more section may make the size of its block a byte longer.
        header = _block_overhead(name, 0) + 1
        if section := pack_running(position, notes[name].running, room - header):
            found[name] = section
            room -= len(section) + header
    return found


def _known_bodies(
    position: int, sections: Mapping[str, Runs], budget: int
) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the sections of the known sets within ``budget`` bytes, and the offsets cut off.

    The second value has the number of offsets that are not in the section of a subscription.
    """
    room = {name: _payload_room(name, budget) for name in sections}
    packed = {name: pack(position, runs, room[name]) for name, runs in sections.items() if runs}
    needs = {name: _need(name, whole, budget) for name, whole in packed.items()}
    bodies: dict[str, bytes] = {}
    cut: dict[str, int] = {}
    # Max-min fair: the smallest need is served first, and the rest is split again each time.
    order = sorted(packed, key=lambda name: (needs[name], name))
    for turn, name in enumerate(order):
        share = budget // (len(order) - turn)
        section = packed[name]
        if needs[name] > share:
            section = pack(position, sections[name], _payload_room(name, share))
        if not section.complete:
            written = unpack(section.kind, section.payload, position) if section.payload else ()
            cut[name] = _count(sections[name]) - _count(written)
        if section.payload:
            bodies[name] = _section(section)
            budget -= len(_block(name, bodies[name]))
    return bodies, cut


def _count(runs: Runs) -> int:
    return sum(end - start for start, end in runs)


def _need(name: str, section: Packed, budget: int) -> int:
    """Return how many bytes a block needs; a set that had to be cut needs the whole budget."""
    size = len(section.payload)
    return _block_overhead(name, size) + size if section.complete else budget


def _section(section: Packed) -> bytes:
    out = bytearray((section.kind,))
    put_varint(out, len(section.payload))
    return bytes(out) + section.payload


def _block(name: str, body: bytes) -> bytes:
    raw = _id_bytes(name)
    out = bytearray()
    put_varint(out, len(raw))
    out += raw
    put_varint(out, len(body))
    return bytes(out) + body


def _id_bytes(name: str) -> bytes:
    # No id may fail a commit or a decode, not even one with half a surrogate pair in it.
    return name.encode("utf-8", "surrogatepass")


def _block_overhead(name: str, payload: int) -> int:
    """Return the bytes that a block with one section takes besides the section's payload."""
    raw = len(_id_bytes(name))
    section = 1 + varint_size(payload)
    return varint_size(raw) + raw + varint_size(section + payload) + section


def _payload_room(name: str, budget: int) -> int:
    """Return the largest payload whose block takes no more than ``budget`` bytes."""
    room = budget - _block_overhead(name, budget)
    # That overhead is computed for a larger payload and can be a byte or two too large.
    while _block_overhead(name, room + 1) + room + 1 <= budget:
        room += 1
    return room


def _parse_body(body: bytes, at: LogPosition, known: Collection[str] | None) -> Decoded:
    sections: dict[str, Runs] = {}
    notes: dict[str, LaneNotes] = {}
    unknown: dict[str, bytes] = {}
    skipped = 0
    reader = ByteReader(body)
    read_origin(reader, at)
    while reader.more():
        try:
            name = reader.take(reader.varint()).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise MalformedError("a subscription id in it is not UTF-8") from None
        block = reader.take(reader.varint())
        if name in sections or name in unknown:
            raise MalformedError(f"subscription {name[:40]!a} is in it twice")
        if known is None or name in known:
            sections[name], notes[name], others = _parse_block(block, at.offset)
            skipped += others
        else:
            unknown[name] = block
    settled = {name: runs for name, runs in sections.items() if runs}
    noted = {name: each for name, each in notes.items() if each}
    return Decoded(settled, noted, unknown, skipped)


def _parse_block(block: bytes, position: int) -> tuple[Runs, LaneNotes, int]:
    """Return settled runs and notes of a block, and how many sections of later kinds it has."""
    runs: Runs = ()
    diverted: frozenset[bytes] = frozenset()
    tried: dict[int, Tried] = {}
    running = NONE_RUNNING
    seen: set[int] = set()
    others = 0
    reader = ByteReader(block)
    while reader.more():
        kind = reader.take(1)[0]
        payload = reader.take(reader.varint())
        what = KIND_RUNS if kind == KIND_BITMAP else kind
        if what not in {KIND_RUNS, KIND_LANES, KIND_TRIED, KIND_RUNNING}:
            others += 1
            continue
        if what in seen:
            raise MalformedError("a subscription in it says twice what it may say once")
        seen.add(what)
        if what == KIND_LANES:
            diverted = unpack_lanes(payload, position)
        elif what == KIND_TRIED:
            tried = unpack_tried(payload, position)
        elif what == KIND_RUNNING:
            running = unpack_running(payload, position)
        else:
            runs = unpack(kind, payload, position)
    return runs, LaneNotes(diverted, tried, running), others
