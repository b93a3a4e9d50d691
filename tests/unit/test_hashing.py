"""Known answers of every hash, against published vectors and references in plain arithmetic."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import (
    SLOT_FUNCTIONS,
    SLOT_SEED,
    SLOTS,
    _blake3,
    fnv1a_32,
    fnv1a_32_numbered,
    lane_hash,
    murmur3_mix32,
    slot_of,
)

M32 = 2**32
M64 = 2**64


def fnv1a_reference(data: bytes) -> int:
    state = 2166136261
    for byte in data:
        state = ((state ^ byte) * 16777619) % M32
    return state


def rotl(value: int, bits: int, width: int) -> int:
    return ((value << bits) | (value >> (width - bits))) % (1 << width)


def mix32_reference(h: int) -> int:
    h = ((h ^ (h // 2**16)) * 2246822507) % M32
    h = ((h ^ (h // 2**13)) * 3266489909) % M32
    return h ^ (h // 2**16)


def murmur3_32_reference(key: bytes, seed: int) -> int:
    h = seed
    for at in range(0, len(key), 4):
        block = key[at : at + 4]
        k = int.from_bytes(block, "little") * 3432918353 % M32
        h ^= rotl(k, 15, 32) * 461845907 % M32
        if len(block) == 4:
            h = (rotl(h, 13, 32) * 5 + 3864292196) % M32
    return mix32_reference(h ^ len(key))


def mix64_reference(k: int) -> int:
    k = ((k ^ (k // 2**33)) * 0xFF51AFD7ED558CCD) % M64
    k = ((k ^ (k // 2**33)) * 0xC4CEB9FE1A85EC53) % M64
    return k ^ (k // 2**33)


def murmur3_128_reference(key: bytes) -> bytes:
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    for at in range(0, len(key), 16):
        block = key[at : at + 16]
        k1 = int.from_bytes(block[:8], "little")
        k2 = int.from_bytes(block[8:], "little")
        h1 ^= rotl(k1 * c1 % M64, 31, 64) * c2 % M64
        if len(block) < 16:
            h2 ^= rotl(k2 * c2 % M64, 33, 64) * c1 % M64
            break
        h1 = ((rotl(h1, 27, 64) + h2) * 5 + 0x52DCE729) % M64
        h2 ^= rotl(k2 * c2 % M64, 33, 64) * c1 % M64
        h2 = ((rotl(h2, 31, 64) + h1) * 5 + 0x38495AB5) % M64
    h1 ^= len(key)
    h2 ^= len(key)
    h1 = (h1 + h2) % M64
    h2 = (h2 + h1) % M64
    h1, h2 = mix64_reference(h1), mix64_reference(h2)
    h1 = (h1 + h2) % M64
    h2 = (h2 + h1) % M64
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def keys() -> list[bytes]:
    rng = random.Random(20)
    lengths = [*range(70), 200, 1000]
    return [rng.randbytes(length) for length in lengths for _ in range(3)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_fnv1a_gives_the_vectors_of_its_authors(data: bytes, expected: int) -> None:
    assert fnv1a_32(data) == expected == fnv1a_reference(data)


def test_fnv1a_agrees_with_the_reference_and_continues_from_a_state() -> None:
    for key in keys():
        assert fnv1a_32(key) == fnv1a_reference(key)
        half = len(key) // 2
        assert fnv1a_32(key[half:], fnv1a_32(key[:half])) == fnv1a_reference(key)


def test_numbered_hashes_are_those_of_the_written_numbers() -> None:
    start = fnv1a_32(b"worker-3-")
    for count in (0, 1, 9, 10, 11, 100, 101, 1234):
        expected = [fnv1a_32(b"worker-3-%d" % number) for number in range(count)]
        assert fnv1a_32_numbered(start, count) == expected


def test_the_mixer_gives_known_answers_and_is_a_bijection_on_a_sample() -> None:
    assert murmur3_mix32(0) == 0
    assert murmur3_mix32(1) == 0x514E28B7
    rng = random.Random(21)
    values = {rng.randrange(M32) for _ in range(20_000)} | {M32 - 1}
    assert all(murmur3_mix32(value) == mix32_reference(value) for value in values)
    assert len({murmur3_mix32(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
    ],
)
def test_the_murmur3_reference_gives_the_published_vectors(key: bytes, expected: int) -> None:
    assert murmur3_32_reference(key, 0) == expected


def test_the_128_bit_reference_gives_the_published_vector() -> None:
    words = (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)
    assert murmur3_128_reference(b"hello") == b"".join(w.to_bytes(8, "little") for w in words)


BLAKE3_START = [
    *(0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A),
    *(0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19),
]
BLAKE3_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def blake3_reference(key: bytes) -> bytes:
    """Hash a key of at most one chunk, 1,024 bytes: nothing but the compression of its blocks."""
    blocks = [key[at : at + 64] for at in range(0, max(len(key), 1), 64)]
    chain = BLAKE3_START
    for number, block in enumerate(blocks):
        flags = (number == 0) + (0b1010 if number == len(blocks) - 1 else 0)
        padded = block.ljust(64, b"\0")
        words = [int.from_bytes(padded[at : at + 4], "little") for at in range(0, 64, 4)]
        v = [*chain, *BLAKE3_START[:4], 0, 0, len(block), flags]
        for _ in range(7):
            for at, (a, b, c, d) in enumerate(COLUMNS + DIAGONALS):
                # Turned right by 16 and 12, then by 8 and 7.
                for word, first, second in ((2 * at, 16, 20), (2 * at + 1, 24, 25)):
                    v[a] = (v[a] + v[b] + words[word]) % M32
                    v[d] = rotl(v[d] ^ v[a], first, 32)
                    v[c] = (v[c] + v[d]) % M32
                    v[b] = rotl(v[b] ^ v[c], second, 32)
            words = [words[at] for at in BLAKE3_ORDER]
        chain = [v[at] ^ v[at + 8] for at in range(8)]
    return b"".join(word.to_bytes(4, "little") for word in chain)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (bytes(16), "e572dff82304700b856a555ac3a4558d0df3646a3727816500270a93c66aac1e"),
    ],
)
def test_the_blake3_reference_gives_what_the_reference_program_gives(
    key: bytes, expected: str
) -> None:
    assert blake3_reference(key).hex() == expected


REFERENCES: dict[str, Callable[[bytes], int]] = {
    "mmh3": lambda key: murmur3_32_reference(key, 0x6B737631) % 65536,
    "fnv1a": lambda key: fnv1a_reference(key) // 65536,
    "pulsar": lambda key: murmur3_32_reference(key, 0) % 2**31 % 65536,
    "blake3_u16": lambda key: int.from_bytes(blake3_reference(key)[:2], "little"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_each_slot_function_agrees_with_its_reference(name: str) -> None:
    function, reference = SLOT_FUNCTIONS[name], REFERENCES[name]
    for key in keys():
        assert function(key) == reference(key)
        assert 0 <= function(key) < SLOTS


def test_there_is_a_reference_for_every_slot_function() -> None:
    assert set(SLOT_FUNCTIONS) == set(REFERENCES)
    assert SLOT_FUNCTIONS["mmh3"] is slot_of


# What other programs said of these keys, each of the function that is in its name: Guava 33.0.0
# (murmur3_32_fixed with our seed), Go's hash/fnv (New32a) and Pulsar 4.0.0 (Murmur3_32Hash, then
# the remainder; its broker then calls the slot 0, which the empty key has, 1).
VECTORS = {
    b"": {"mmh3": 4136, "fnv1a": 33052, "pulsar": 0},
    b"a": {"mmh3": 18181, "fnv1a": 58380, "pulsar": 27058},
    b"foobar": {"mmh3": 4581, "fnv1a": 49052, "pulsar": 54461},
    b"N12345": {"mmh3": 18973, "fnv1a": 8034, "pulsar": 47336},
    b"order-17": {"mmh3": 59847, "fnv1a": 54320, "pulsar": 34752},
    b"hello, world": {"mmh3": 43339, "fnv1a": 19726, "pulsar": 47999},
    "ключ".encode(): {"mmh3": 8358, "fnv1a": 38340, "pulsar": 8258},
    bytes(16): {"mmh3": 2673, "fnv1a": 26985, "pulsar": 52728},
    bytes(65): {"mmh3": 64645, "fnv1a": 12322, "pulsar": 18545},
    b"\xff\xfe\x80": {"mmh3": 49626, "fnv1a": 12385, "pulsar": 24351},
}

# The crate blake3 1.8, of these numbers' 16 little-endian bytes.
PARTITION_KEYS = {
    0: 29413,
    1: 20596,
    255: 1736,
    1 << 64: 19130,
    0x0123456789ABCDEF0123456789ABCDEF: 21648,
    (1 << 128) - 1: 34755,
}


def test_slots_are_those_that_the_reference_programs_give() -> None:
    for key, slots in VECTORS.items():
        assert {name: SLOT_FUNCTIONS[name](key) for name in slots} == slots, key
    for number, slot in PARTITION_KEYS.items():
        assert SLOT_FUNCTIONS["blake3_u16"](number.to_bytes(16, "little")) == slot


def test_without_the_package_blake3_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "blake3", None)
    _blake3.cache_clear()
    with pytest.raises(ConfigError, match=r"'blake3_u16' needs the package blake3: .*\[blake3\]"):
        SLOT_FUNCTIONS["blake3_u16"](bytes(16))
    monkeypatch.undo()
    assert SLOT_FUNCTIONS["blake3_u16"](bytes(16)) == 29413, "it is looked for again"


def test_the_slots_of_known_keys_never_change() -> None:
    assert int.from_bytes(b"ksv1", "big") == SLOT_SEED
    known = {b"": 4136, b"a": 18181, b"N12345": 18973, bytes(65): 64645}
    assert {key: slot_of(key) for key in known} == known


def test_the_lane_hash_agrees_with_its_reference() -> None:
    for key in keys():
        assert lane_hash(key) == murmur3_128_reference(key)
        assert len(lane_hash(key)) == 16


def test_slots_stay_even_within_one_partition_of_the_producer() -> None:
    # A producer that places by the unsalted hash leaves each partition one residue of it.
    own = [key for i in range(40_000) if murmur3_32_reference(key := b"%d" % i, 0) % 8 == 3]
    eighths = [0] * 8
    for key in own:
        eighths[slot_of(key) % 8] += 1
    assert max(eighths) < 1.2 * len(own) / 8
    assert min(eighths) > 0.8 * len(own) / 8
