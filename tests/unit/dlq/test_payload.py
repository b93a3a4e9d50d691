"""Bytes shown as text, JSON, Avro or hex."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from kafka_keyshared.dlq.avro import MARKER, fingerprint_of
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.errors import ConfigError

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Paid",
    "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "bytes", "double"]}},
    ],
}


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "paid.avsc"
    path.write_text(json.dumps(SCHEMA))
    return path


def paid() -> bytes:
    from decimal import Decimal

    out = io.BytesIO()
    tags = {"none": None, "raw": b"\xff", "much": float("inf"), "some": 0.5}
    schemaless_writer(out, parse_schema(SCHEMA), {"amount": Decimal(12), "at": 0, "tags": tags})
    return out.getvalue()


SHOWN = {
    "amount": "12",
    "at": "1970-01-01T00:00:00+00:00",
    "tags": {"none": None, "raw": "ff", "much": "inf", "some": 0.5},
}


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        (b"", {"text": ""}),
        (b"paid", {"text": "paid"}),
        ("größer\n".encode(), {"text": "größer\n"}),
        (b'{"a": [1, 2.5, null]}', {"json": {"a": [1, 2.5, None]}}),
        (b" [1]", {"json": [1]}),
        (b"12", {"text": "12"}),
        (b"{broken", {"text": "{broken"}),
        (b"[NaN]", {"text": "[NaN]"}),
        (b"\x00\xff", {"hex": "00ff"}),
        (b"\x1b[31mred", {"hex": "1b5b33316d726564"}),
        (b"[" * 100_000, {"text": "[" * 100_000}),
    ],
)
def test_auto_shows_what_it_can(data: bytes | None, shown: Any) -> None:
    found = Decoder(PayloadFormat.AUTO).value(data)
    if found is not None and "hex" in found:
        found.pop("problem", None)
    assert found == shown


@pytest.mark.parametrize(
    ("payload", "data", "shown"),
    [
        (PayloadFormat.HEX, b"paid", {"hex": "70616964"}),
        (PayloadFormat.TEXT, b"{}", {"text": "{}"}),
        (PayloadFormat.JSON, b'"x"', {"json": "x"}),
    ],
)
def test_a_form_that_was_asked_for(payload: PayloadFormat, data: bytes, shown: Any) -> None:
    assert Decoder(payload).value(data) == shown


@pytest.mark.parametrize(
    ("payload", "data", "why"),
    [
        (PayloadFormat.TEXT, b"\xff", "UTF-8"),
        (PayloadFormat.JSON, b"{", "not JSON"),
        (PayloadFormat.JSON, b"NaN", ""),
    ],
)
def test_what_is_not_what_was_asked_for_is_hex_and_says_why(
    payload: PayloadFormat, data: bytes, why: str
) -> None:
    found = Decoder(payload).value(data)
    assert found is not None
    assert found["hex"] == data.hex()
    assert why in found["problem"]


@pytest.mark.parametrize("payload", [PayloadFormat.AVRO, PayloadFormat.AUTO])
@pytest.mark.parametrize("head", ["bare", "confluent", "single object"])
def test_avro_of_a_schema_bare_and_behind_either_head(
    schema_file: Path, payload: PayloadFormat, head: str
) -> None:
    heads = {
        "bare": b"",
        "confluent": b"\x00\x00\x00\x00\x2a",
        "single object": MARKER + fingerprint_of(SCHEMA),
    }
    shown = Decoder(payload, schema_file).value(heads[head] + paid())
    assert shown == {"avro": SHOWN}
    assert json.dumps(shown, allow_nan=False)


def test_bare_avro_that_begins_with_a_zero_is_not_taken_for_confluents(tmp_path: Path) -> None:
    path = tmp_path / "s.avsc"
    path.write_text('"string"')
    assert Decoder(PayloadFormat.AVRO, path).value(b"\x0c" + b"orders") == {"avro": "orders"}
    assert Decoder(PayloadFormat.AVRO, path).value(b"\x00") == {"avro": ""}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 30])
def test_what_is_not_avro_of_the_schema(schema_file: Path, data: bytes) -> None:
    forced = Decoder(PayloadFormat.AVRO, schema_file).value(data)
    assert forced == {"hex": data.hex(), "problem": "not Avro of the schema given"}
    chosen = Decoder(PayloadFormat.AUTO, schema_file).value(data)
    assert chosen is not None
    assert "avro" not in chosen


def test_keys_and_headers_are_text_or_hex() -> None:
    decoder = Decoder(PayloadFormat.JSON)
    assert decoder.plain(b'{"a": 1}') == {"text": '{"a": 1}'}
    assert decoder.plain(None) is None
    assert Decoder(PayloadFormat.HEX).plain(b"k") == {"hex": "6b"}


@pytest.mark.parametrize(
    ("text", "said"), [(None, "no such file"), ("{", "not an Avro"), ('{"type": "x"}', "not an")]
)
def test_a_schema_that_cannot_be_used_is_refused(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "s.avsc"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        Decoder(PayloadFormat.AUTO, path)


def test_avro_without_a_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="--schema"):
        Decoder(PayloadFormat.AVRO)


@pytest.mark.parametrize("union", [False, True])
def test_a_schema_file_may_refer_to_files_beside_it(tmp_path: Path, *, union: bool) -> None:
    customer = {
        "type": "record",
        "name": "acme.Customer",
        "fields": [{"name": "id", "type": "string"}],
    }
    fields = [{"name": "customer", "type": "acme.Customer"}]
    order: Any = {"type": "record", "name": "acme.Order", "fields": fields}
    data = b"\x04c1"
    if union:
        (tmp_path / "acme.Order.avsc").write_text(json.dumps(order))
        order, data = ["null", "acme.Order"], b"\x02" + data
    path = tmp_path / "41.avsc"
    path.write_text(json.dumps(order))
    with pytest.raises(ConfigError, match=r"not an Avro schema: .*Customer"):
        Decoder(PayloadFormat.AVRO, path)
    (tmp_path / "acme.Customer.avsc").write_text(json.dumps(customer))
    decoder = Decoder(PayloadFormat.AVRO, path)
    for value in (data, b"\0\0\0\0\x29" + data):
        assert decoder.value(value) == {"avro": {"customer": {"id": "c1"}}}
