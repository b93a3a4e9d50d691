"""The text of the commit metadata: its documented form, and everything that does not have it."""

from __future__ import annotations

import base64
import random
import tracemalloc
import zlib
from itertools import pairwise

import pytest

from kafka_keyshared.core.offsets.commit_metadata import Decoded, Runs, clip, decode, encode
from kafka_keyshared.core.offsets.metadata_sections import LANES_MOST, LaneNotes, Tried
from kafka_keyshared.lab.simulator.commit_text import Whose, read_commit
from tests.support.commit_texts import here
from tests.support.records import P0
from tests.support.seeds import examples


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def block(name: str, *sections: tuple[int, bytes]) -> bytes:
    body = b"".join(bytes([kind]) + sized(payload) for kind, payload in sections)
    return sized(name.encode()) + sized(body)


def origin(position: int, partition: int = 0, topic: str = P0.topic, id_: bytes = b"") -> bytes:
    """Return which log and position a text is of, by the documented format."""
    name = zlib.crc32(topic.encode()).to_bytes(4, "big")
    return numbers(partition, position) + name + sized(id_)


def sealed(body: bytes, position: int = 5) -> str:
    """Wrap blocks that are written for a position of the tests' log."""
    return wrapped(origin(position) + body)


def wrapped(body: bytes) -> str:
    """Wrap a body by the documented format alone, so that hostile ones reach the parser."""
    coded = base64.b85encode(body).decode()
    head = f"KS2{11 + len(coded):03x}"
    crc = zlib.crc32((head + coded).encode()).to_bytes(4, "big")
    return head + base64.b85encode(crc).decode() + coded


def numbers(*values: int) -> bytes:
    return b"".join(map(varint, values))


def every_second(position: int, count: int, step: int = 2) -> Runs:
    return tuple((position + 1 + step * i, position + 2 + step * i) for i in range(count))


def test_both_forms_are_written_as_documented() -> None:
    runs = block("default", (1, numbers(500, 2, 0, 999, 9)))
    assert encode(here(500), {"default": ((502, 503), (1503, 1513))}).text == sealed(runs, 500)
    bits = sum(1 << 2 * i for i in range(40)).to_bytes(10, "little")
    bitmap = block("default", (2, numbers(500, 1) + bits))
    assert encode(here(500), {"default": every_second(500, 40)}).text == sealed(bitmap, 500)


def test_the_oracles_reader_reads_what_is_documented() -> None:
    body = block("a", (1, numbers(500, 2, 0, 999, 1))) + block("b", (2, numbers(500, 3) + b"\x05"))
    assert read_commit(sealed(body, 500), 500) == {"a": {502, 1503, 1504}, "b": {503, 505}}
    assert read_commit(sealed(body, 504), 504) == {"a": {1503, 1504}, "b": {505}}
    assert read_commit("", 500) == {}


@pytest.mark.parametrize(
    "text",
    [
        "KS2",
        sealed(block("a", (1, numbers(5, 2, 0))))[:-1],
        sealed(block("a", (1, numbers(5, 2, 0)))) + "~",
        sealed(block("a", (1, numbers(5, 2, 0)))).replace("KS2", "KS1"),
        sealed(block("a", (1, numbers(5, 2, 0))), 6),
        wrapped(origin(5, 1) + block("a", (1, numbers(5, 2, 0)))),
        wrapped(origin(5, 0, "other") + block("a", (1, numbers(5, 2, 0)))),
        wrapped(origin(5, 0, P0.topic, b"x" * 16) + block("a", (1, numbers(5, 2, 0)))),
        sealed(block("a", (1, numbers(6, 2, 0)))),
        sealed(block("a", (9, numbers(5, 2, 0)))),
        sealed(block("a", (1, numbers(5, 2, 0))) * 2),
    ],
)
def test_the_oracles_reader_takes_nothing_else(text: str) -> None:
    with pytest.raises(AssertionError):
        read_commit(text, 5, Whose(P0, "A" * 22))


@pytest.mark.parametrize("seed", range(20))
def test_the_oracles_reader_and_the_writer_agree_without_sharing_code(seed: int) -> None:
    rng = random.Random(seed)
    sections: dict[str, Runs] = {}
    for name in ("default", "audit"):
        at, runs = 1_000, []
        for _ in range(rng.randint(1, 60)):
            start = at + rng.choice((1, 1, 2, 130, 20_000))
            at = start + rng.choice((1, 1, 1, 3, 200))
            runs.append((start, at))
        sections[name] = tuple(runs)
    encoded = encode(here(1_000), sections)
    assert encoded.truncated == ()
    assert read_commit(encoded.text, 1_000) == {
        name: {offset for run in runs for offset in range(*run)} for name, runs in sections.items()
    }


def test_sections_of_a_later_kind_are_passed_over() -> None:
    text = sealed(block("s", (6, b"later"), (1, numbers(5, 2, 0)), (200, b""), (9, b"x" * 300)))
    assert decode(text, here(5)) == Decoded({"s": ((7, 8),)}, skipped=3)


VALID = encode(here(100), {"default": every_second(100, 30, step=7), "audit": ((150, 9000),)}).text


@pytest.mark.parametrize("junk", ["\0", "\0\0garbage", "é\ud800", VALID, " ", "~" * 100_000])
def test_what_follows_the_declared_length_is_ignored(junk: str) -> None:
    assert decode(VALID + junk, here(100)) == decode(VALID, here(100))


def test_every_cut_off_text_is_refused_whole() -> None:
    for end in range(1, len(VALID)):
        decoded = decode(VALID[:end], here(100))
        assert decoded.problem
        assert (decoded.sections, decoded.unknown) == ({}, {})


def test_every_changed_character_is_noticed() -> None:
    for at in range(len(VALID)):
        for char in {"0", "K", "~", "\n", "é", "\udfff"} - {VALID[at]}:
            decoded = decode(VALID[:at] + char + VALID[at + 1 :], here(100))
            assert decoded.problem
            assert not decoded.sections


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("AQAAAYzLx2Jm", "another program"),
        ('{"offsets":[1,2]}', "another program"),
        ("x" * 102_400, "another program"),
        ("\0", "another program"),
        ("line\nbreak\rand\u2028more", "another program"),
        ("ks1" + VALID[3:], "another program"),
        ("KS1" + VALID[3:], "version '1'"),
        ("KS3" + VALID[3:], "version '3'"),
        ("KS\n" + VALID[3:], "version"),
        ("KS", "version ''"),
        ("KS2", "not a number"),
        ("KS2+1f", "not a number"),
        ("KS2 1f", "not a number"),
        ("KS21_f", "not a number"),
        ("KS2٠١٢", "not a number"),
        ("KS200B", "not a number"),
        ("KS200a" + VALID[6:], "says that it has 10"),
        ("KS2fff" + VALID[6:], "says that it has 4095"),
        (VALID[:6] + "00000" + VALID[11:], "checksum"),
    ],
)
def test_foreign_text_gives_one_line_and_nothing_else(text: str, said: str) -> None:
    decoded = decode(text, here(100))
    assert decoded == Decoded(problem=decoded.problem)
    assert decoded.problem is not None
    assert said in decoded.problem
    assert "100" in decoded.problem
    assert decoded.problem.isascii()
    assert decoded.problem.isprintable()
    assert len(decoded.problem) < 250


RUN = numbers(5, 2, 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x80", "cut off"),
        (b"\xff" * 12, "too large"),
        (varint(2**62) + b"x", "claims more"),
        (sized(b"s"), "cut off"),
        (sized(b"s") + varint(50), "claims more"),
        (sized(b"\xff\xfe") + sized(b""), "not UTF-8"),
        (block("s") + block("s"), "twice"),
        (block("s", (1, RUN), (1, RUN)), "says twice"),
        (block("s", (1, RUN), (2, RUN)), "says twice"),
        (block("s", (1, b"")), "cut off"),
        (block("s", (1, numbers(5, 2))), "cut off"),
        (block("s", (1, numbers(5, 2, 0, 3))), "cut off"),
        (block("s", (2, numbers(5))), "cut off"),
        (block("s", (1, numbers(5, 2**63 - 1, 2**63 - 1))), "larger than Kafka"),
        (block("s", (1, numbers(5, 2**63 - 6, 0))), "larger than Kafka"),
        (block("s", (1, numbers(5, 2**64, 0))), "too large"),
        (sized(b"s") + sized(b"\x01\x7f"), "claims more"),
    ],
)
def test_a_body_that_no_writer_makes_is_refused_behind_a_right_checksum(
    body: bytes, said: str
) -> None:
    decoded = decode(sealed(body), here(5))
    assert decoded == Decoded(problem=decoded.problem)
    assert decoded.problem is not None
    assert said in decoded.problem


def test_a_body_that_is_not_base_85_is_refused_behind_a_right_checksum() -> None:
    for coded in ('"""""', "~~~~~", "a b"):
        head = f"KS2{11 + len(coded):03x}"
        crc = zlib.crc32((head + coded).encode()).to_bytes(4, "big")
        decoded = decode(head + base64.b85encode(crc).decode() + coded, here(5))
        assert decoded.problem is not None
        assert "base 85" in decoded.problem


def test_two_billion_settled_offsets_are_one_run_that_the_log_end_clips() -> None:
    text = sealed(block("default", (1, numbers(0, 0, 2_000_000_000))), 0)
    runs = decode(text, here(0)).sections["default"]
    assert runs == ((0, 2_000_000_001),)
    assert clip(runs, 0, 500) == ((0, 500),)
    assert clip(runs, 2_000_000_001) == ()


@pytest.mark.parametrize(
    "payload",
    [(1, numbers(5) + bytes(3200)), (2, numbers(5, 1) + b"\x55" * 3200), (7, b"\xff" * 3200)],
)
def test_memory_is_bounded_by_the_text_and_not_by_its_claims(payload: tuple[int, bytes]) -> None:
    text = sealed(block("default", payload)) + "\0" * 100
    decode(text, here(5))
    tracemalloc.start()
    decoded = decode(text, here(5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.problem is None
    # At worst a run for every two bits: a pair and two numbers each.
    assert peak < 4_000_000


def mutated(rng: random.Random, bodies: list[bytes]) -> str:
    """Return a text near a valid one; half of them behind a right checksum, so that they parse."""
    body = bytearray(rng.choice(bodies))
    if rng.random() < 0.5:
        text = wrapped(bytes(body))
        at = rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            return text[:at] + chr(rng.randrange(0x300)) + text[at + 1 :]
        if kind == 1:
            return text[:at]
        if kind == 2:
            return text + text[at:] + "\0"
        return text[:at] + rng.choice(["", "\ud83d", "KS2", "0" * 9]) + text[at + 1 :]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(body) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(body):
            body[at] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
        elif kind == 1:
            del body[at : at + rng.randint(1, 4)]
        elif kind == 2:
            body[at:at] = rng.randbytes(rng.randint(1, 5))
        else:
            body += bytes(rng.choice(bodies)[:at])
    return wrapped(bytes(body))


MUTATIONS = examples(100_000)


def test_mutated_texts_never_raise_and_never_reach_below_the_position() -> None:
    rng = random.Random(0x5EED)
    position = 1000
    bodies = []
    for count in (1, 2, 4, 7):
        dense = every_second(position, count * 3)
        sparse = every_second(position + 200, count, step=rng.randint(2, 400))
        lanes = frozenset(rng.randbytes(16) for _ in range(count))
        notes = LaneNotes(lanes, {position + rng.randrange(500): Tried(count) for _ in range(9)})
        for sections, noted in (
            ({"default": dense}, {}),
            ({"default": sparse, "b": dense}, {}),
            ({"default": sparse}, {"default": notes, "b": notes}),
        ):
            text = encode(here(position), sections, notes=noted).text
            bodies.append(base64.b85decode(text[11:]))
    understood = 0
    for _ in range(MUTATIONS):
        text = mutated(rng, bodies)
        at = position + rng.choice((-1, 0, 0, 0, 0, 0, 0, 5))
        decoded = decode(text, here(at), known=rng.choice((None, ("default",))))
        if decoded.problem is not None:
            assert decoded == Decoded(problem=decoded.problem)
            continue
        understood += 1
        for runs in decoded.sections.values():
            assert runs[0][0] >= at
            assert all(start < end < 2**63 for start, end in runs)
            assert all(before[1] < after[0] for before, after in pairwise(runs))
        for notes in decoded.notes.values():
            assert all(at <= offset < 2**63 for offset in notes.tried)
            assert all(len(lane) == 16 for lane in notes.diverted)
            assert len(notes.diverted) <= LANES_MOST
    # Both sides of the parser were reached: texts that still make sense, and texts that do not.
    assert MUTATIONS / 10 < understood < MUTATIONS * 9 / 10
