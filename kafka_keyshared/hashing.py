"""Hashes of keys, for slots, lane identities and the ring.

Every function here returns the same number on every machine, in every process and in every Python.
Two members of a consumer group, a pool and a Spark job must agree on the slot of a key. A change of
a function would move keys between workers, so known-answer tests freeze them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import mmh3

from kafka_keyshared.errors import ConfigError

SLOTS = 65536
"""How many slots there are: a slot is a 16-bit number, 0..65535."""

SLOT_SEED = 0x6B737631
"""The salt of the default slot function, the letters ``ksv1``.

Producers already choose the partition by an unsalted murmur2 of the same key. The salt keeps the
slots of one partition's keys evenly spread with any partitioner.
"""

LANE_KEY_BYTES = 64
"""Keys up to this many bytes are their own lane identity; longer ones go by :func:`lane_hash`."""

FNV_OFFSET_BASIS = 0x811C9DC5
_FNV_PRIME = 0x01000193
_MASK_32 = 0xFFFFFFFF


def slot_of(key: bytes) -> int:
    """Return the slot of ``key`` under the default slot function, ``mmh3``.

    The slot is the low 16 bits of 32-bit murmur3 (x86) with the seed :data:`SLOT_SEED`.
    """
    return mmh3.hash(key, SLOT_SEED) & 0xFFFF


def fnv1a_32(data: bytes, state: int = FNV_OFFSET_BASIS) -> int:
    """Return the 32-bit FNV-1a hash of ``data``.

    ``state`` continues from an earlier call: ``fnv1a_32(b"ab") == fnv1a_32(b"b", fnv1a_32(b"a"))``.
    """
    for byte in data:
        state = (state ^ byte) * _FNV_PRIME & _MASK_32
    return state


def fnv1a_32_numbered(state: int, count: int) -> list[int]:
    """Return :func:`fnv1a_32` from ``state`` of each decimal number 0, 1, … up to ``count`` - 1.

    Each goes on from the hash of the number without its last digit, so it costs one step.
    """
    digits = range(ord("0"), ord("9") + 1)
    found = [(state ^ digit) * _FNV_PRIME & _MASK_32 for digit in digits]
    for tens in range(1, -(-count // 10)):
        head = found[tens]
        found += [(head ^ digit) * _FNV_PRIME & _MASK_32 for digit in digits]
    return found[:count]


def murmur3_mix32(value: int) -> int:
    """Return ``value`` (32 bits) through murmur3's 32-bit finaliser, a bijection.

    FNV-1a changes little of its high bits when only the last byte changes; this spreads them.
    """
    value &= _MASK_32
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK_32
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK_32
    return value ^ value >> 16


def lane_hash(key: bytes) -> bytes:
    """Return the 16-byte identity of a key: 128-bit murmur3 (x64, seed 0), low word first.

    It names lanes whose key is longer than :data:`LANE_KEY_BYTES` and every lane in the commit
    metadata. It does not resist deliberate collisions. Two keys that collide share a lane, which
    costs parallelism and never order.
    """
    return mmh3.mmh3_x64_128_digest(key)


def _slot_fnv1a(key: bytes) -> int:
    return fnv1a_32(key) >> 16


def _slot_pulsar(key: bytes) -> int:
    return (mmh3.hash(key, 0) & 0x7FFFFFFF) % SLOTS


def blake3_u32(data: bytes) -> int:
    """Return the first four bytes of the BLAKE3 hash of ``data``, little-endian.

    Raises :class:`~kafka_keyshared.errors.ConfigError` where the package ``blake3`` is missing.
    """
    digest: bytes = _blake3()(data).digest(4)
    return int.from_bytes(digest, "little")


@cache
def _blake3() -> Callable[[bytes], Any]:
    try:
        from blake3 import blake3
    except ImportError:
        raise ConfigError(
            "the slot function 'blake3_u16' needs the package blake3: install it with "
            'pip install "kafka-keyshared[blake3]"'
        ) from None
    return blake3


def _slot_blake3_u16(key: bytes) -> int:
    return blake3_u32(key) & 0xFFFF


SlotFunction: TypeAlias = Literal["mmh3", "fnv1a", "pulsar", "blake3_u16"]

SLOT_FUNCTIONS: Mapping[str, Callable[[bytes], int]] = MappingProxyType(
    {
        "mmh3": slot_of,
        "fnv1a": _slot_fnv1a,
        "pulsar": _slot_pulsar,
        "blake3_u16": _slot_blake3_u16,
    }
)
"""The slot functions by their names in the settings.

- ``mmh3`` is the default.
- ``fnv1a`` is the top half of 32-bit FNV-1a.
- ``pulsar`` gives the hash ranges of Pulsar's sticky readers: ``(murmur3 & 0x7fffffff) % 65536``,
  seed 0.
- ``blake3_u16`` gives those of Celeriant: the first two bytes, little-endian, of the BLAKE3 hash of
  a partition key. Such a key is the 16 little-endian bytes of a 128-bit number. The function raises
  :class:`~kafka_keyshared.errors.ConfigError` where the package ``blake3`` is missing.
"""

SLOT_KEY_BYTES: Mapping[str, int] = MappingProxyType({"blake3_u16": 16})
"""Key length in bytes that a slot function requires. Keys of other lengths are undecodable."""
