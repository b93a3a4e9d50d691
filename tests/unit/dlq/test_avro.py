"""The Avro form of a dead letter: read back as written, by this version and by others."""

from __future__ import annotations

import copy
import io
import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Message
from fastavro import parse_schema, schemaless_reader

from kafka_keyshared.dlq import avro
from kafka_keyshared.dlq.avro import (
    LetterSchemas,
    UnreadableError,
    decode,
    encode,
    fingerprint_of,
    pack,
)
from tests.support.letters import V1_LETTER, a_publish

V1_FINGERPRINT = "92ca56a647d525c1"

# As version 1 wrote it, and V1_LETTER: whatever comes later has to read them.
V1_TOMBSTONE_WITHOUT_KEY = bytes.fromhex(
    "c30192ca56a647d525c1020000000ac3bc6ec3af0080808080804001000a1456616c75654572726f721c6e6f2073"
    "75636820666c6967687416202046696c65202e2e2e0ad00fa01f04"
)


def test_letters_of_version_1_are_read_for_ever() -> None:
    assert decode(V1_LETTER) == {
        "envelope": 1,
        "key": b"k",
        "value": b"v",
        "headers": [{"name": "h", "value": b"1"}, {"name": "h", "value": None}],
        "source_topic": "orders",
        "source_partition": 3,
        "source_offset": 17,
        "source_timestamp": 1_700_000_000_123,
        "source_group": "billing",
        "attempts": 5,
        "error_type": "ValueError",
        "error_message": "no such flight",
        "error_stack": "  File ...\n",
        "first_failure": 1_000,
        "last_failure": 2_000,
        "replays": 0,
    }
    found = decode(V1_TOMBSTONE_WITHOUT_KEY)
    assert (found["key"], found["value"], found["headers"]) == (None, None, [])
    assert (found["source_topic"], found["source_offset"]) == ("ünï", 1 << 40)
    assert (found["source_timestamp"], found["replays"]) == (-1, 2)


def test_version_1_is_written_as_it_was() -> None:
    """A change of the schema file is a new version, beside the old one."""
    assert avro.known().fingerprint.hex() == V1_FINGERPRINT
    assert pack(a_publish([("h", b"1"), ("h", None)]), "billing")[0] == V1_LETTER


def test_a_tombstone_without_a_key_is_written_as_one() -> None:
    record: Any = Message(
        topic="ünï",
        partition=0,
        offset=1 << 40,
        key=None,
        value=None,
        headers=[("keyshared.replays", b"2")],
        timestamp=(0, -1),
    )
    assert pack(replace(a_publish([]), record=record), "")[0] == V1_TOMBSTONE_WITHOUT_KEY


def test_the_message_says_that_it_is_avro_and_nothing_else() -> None:
    _, headers = pack(a_publish([("h", b"1")]), "billing")
    assert headers == [("keyshared.content", b"avro")]


def test_any_avro_reader_with_the_schema_file_reads_a_letter() -> None:
    schema = json.loads(avro.schema_text())
    data, _ = pack(a_publish([]), "billing")
    found: Any = schemaless_reader(io.BytesIO(data[avro.HEAD_BYTES :]), schema, None)
    assert found["value"] == b"v"
    assert found["last_failure"].timestamp() == 2.0  # the file gives times their logical type


def test_the_fingerprint_is_the_one_of_the_avro_specification() -> None:
    # "int", as Avro's own implementation has it; the encoding wants the low byte first.
    as_specified = 0x7275D51A3F395C8F
    assert fingerprint_of("int") == as_specified.to_bytes(8, "little")  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [-1, 0, 253_402_300_800_000, 2**62], ids=str)
def test_a_timestamp_that_is_no_date_is_kept(at: int) -> None:
    record: Any = Message(topic="t", partition=0, offset=0, timestamp=(1, at))
    sent = replace(a_publish([]), record=record)
    assert decode(pack(sent, "g")[0])["source_timestamp"] == at


def test_texts_that_are_not_unicode_do_not_stop_a_letter() -> None:
    data, _ = pack(a_publish([], "half a pair: \ud800"), "g")
    assert decode(data)["error_message"] == "half a pair: ?"


def test_the_replay_count_comes_from_the_record_and_its_other_marks_do_not() -> None:
    headers: list[tuple[str, Any]] = [
        ("keyshared.replays", b"1"),
        ("own", b"x"),
        ("keyshared.error.type", b"Old"),
        ("keyshared.replays", b"2"),
    ]
    found = decode(pack(a_publish(headers), "g")[0])
    assert found["replays"] == 2
    assert found["headers"] == [{"name": "own", "value": b"x"}]


# --- versions ---


def _version_2() -> dict[str, Any]:
    """What a next version may look like: a field more, with a default."""
    schema = avro.load_schema(avro.schema_text())
    later = copy.deepcopy(schema)
    later["fields"].append({"name": "source_cluster", "type": "string", "default": "unknown"})
    return later


def _knowing(*schemas: dict[str, Any]) -> LetterSchemas:
    """Return what a package knows whose newest schema is the last one."""
    parsed: Any = [parse_schema(schema) for schema in schemas]
    writers = {fingerprint_of(each): one for each, one in zip(schemas, parsed, strict=True)}
    return LetterSchemas(MappingProxyType(writers), parsed[-1], fingerprint_of(schemas[-1]))


def test_a_letter_of_a_later_version_is_read_by_this_ones_rules() -> None:
    version_1, version_2 = avro.load_schema(avro.schema_text()), _version_2()
    whole = {**decode(V1_LETTER), "envelope": 2, "source_cluster": "north"}
    data = encode(whole, _knowing(version_2))
    assert data[:10] != V1_LETTER[:10]
    # Schema resolution: what version 1 has no field for is passed over.
    reader = _knowing(version_2, version_1)
    assert decode(data, reader) == {**decode(V1_LETTER), "envelope": 2}


def test_a_letter_of_version_1_is_read_by_a_later_one() -> None:
    version_1, version_2 = avro.load_schema(avro.schema_text()), _version_2()
    found = decode(V1_LETTER, _knowing(version_1, version_2))
    assert found == {**decode(V1_LETTER), "source_cluster": "unknown"}


def test_a_schema_that_is_not_known_is_said_plainly() -> None:
    data = encode({**decode(V1_LETTER), "source_cluster": "north"}, _knowing(_version_2()))
    with pytest.raises(UnreadableError, match=data[2:10].hex()) as refused:
        decode(data)
    assert "newer kafka-keyshared" in str(refused.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "C3 01"),
        (b"", "C3 01"),
        (b"\xc3\x01", "C3 01"),
        (b"plain", "C3 01"),
        (V1_LETTER[:-5], "damaged"),
        (V1_LETTER[:10], "damaged"),
        (V1_LETTER + b"\0", "1 bytes behind its end"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes | None, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        decode(data)


def test_no_damage_of_a_byte_raises_anything_else() -> None:
    for at in range(avro.HEAD_BYTES, len(V1_LETTER)):
        for changed in (0x00, 0x7F, 0xFF):
            damaged = V1_LETTER[:at] + bytes([changed]) + V1_LETTER[at + 1 :]
            try:
                found = decode(damaged)
            except UnreadableError as error:
                assert "value" in str(error)
            else:
                assert found.keys() == decode(V1_LETTER).keys()
