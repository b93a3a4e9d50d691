"""Where keys come from: headers, JSON, Avro, functions; what is null and what is undecodable."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest
from confluent_kafka import Message

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config import make_options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.config.keys import (
    from_avro,
    from_callable,
    from_header,
    from_json,
    key_bytes,
    parse_key,
)
from kafka_keyshared.config.keys.schemas import (
    ASK_AGAIN,
    ASK_AGAIN_MOST,
    PATIENCE,
    PATIENT_IDS,
    PATIENT_WITHIN,
    SCHEMAS_MAX,
    Schemas,
)
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Retry, Undecodable, UnknownFormat

V1 = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "total", "type": "double"},
        {"name": "customer", "type": ["null", "string"]},
        {
            "name": "site",
            "type": {"type": "record", "name": "Site", "fields": [{"name": "no", "type": "long"}]},
        },
    ],
}


def message(value: Any = None, headers: Any = None) -> Any:
    return Message(topic="orders", partition=0, offset=1, key=b"own", value=value, headers=headers)


class ErrorEvent:
    """A message of the client that is no record; its value is the error's text."""

    def error(self) -> str:
        return "broker down"

    def value(self) -> str:
        return '"a"'

    def headers(self) -> None:
        return None


def avro(schema: Any, value: Any, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    if schema_id is not None:
        out.write(b"\x00" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


# --- what is a key ---


class Colour(IntEnum):
    RED = 3


class Name(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (None, None),
        (b"raw\xff", b"raw\xff"),
        (bytearray(b"raw"), b"raw"),
        ("Zoë", "Zoë".encode()),
        ("", b""),
        (Name.ONE, b"one"),
        (7, b"7"),
        (-(10**30), b"-1" + b"0" * 30),
        (Colour.RED, b"3"),
        (True, b"true"),
        (1.0, b"1.0"),
        (0.1, b"0.1"),
        (Decimal("1.50"), b"1.50"),
        (uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        (date(2026, 1, 2), b"2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), b"2026-01-02T03:00:00+00:00"),
        ({"b": [1, None], "a": "ü"}, '{"a":"ü","b":[1,null]}'.encode()),
    ],
)
def test_a_value_has_one_form_as_a_key(value: object, key: bytes | None) -> None:
    assert key_bytes(value) == key


def test_the_order_of_fields_makes_no_difference() -> None:
    assert key_bytes({"a": 1, "b": 2}) == key_bytes({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800", {"a": b"bytes"}, 1j])
def test_what_has_no_form_as_a_key_is_undecodable(value: object) -> None:
    with pytest.raises(Undecodable, match="cannot be the key"):
        key_bytes(value)


# --- headers ---


def test_a_header_is_the_key_and_a_record_without_it_has_a_null_key() -> None:
    key_of = from_header("customer")
    assert key_of(message(headers=[("trace", b"x"), ("customer", b"c-1")])) == b"c-1"
    assert key_of(message(headers=[("trace", b"x")])) is None
    assert key_of(message()) is None
    assert key_of(message(headers=[("customer", None)])) is None
    assert key_of(message(headers=[("customer", b"")])) == b""
    assert key_of(message(headers=[("customer", "text")])) == b"text"


def test_a_header_has_a_name() -> None:
    with pytest.raises(ConfigError, match="must have a name"):
        from_header("")


def test_the_last_header_of_a_name_counts() -> None:
    headers = [("k", b"first"), ("k", b"last")]
    assert from_header("k")(message(headers=headers)) == b"last"
    assert from_header("k")(message(headers=[*headers, ("other", b"x")])) == b"last"


# --- JSON ---


@pytest.mark.parametrize(
    ("pointer", "key"),
    [
        ("/id", b"7"),
        ("/customer/name", "Zoë".encode()),
        ("/customer", b'{"name":"Zo\xc3\xab","tags":["a","b"]}'),
        ("/customer/tags/1", b"b"),
        ("/customer/tags/2", None),
        ("/customer/tags/01", None),
        ("/customer/tags/-", None),
        ("/customer/tags/x", None),
        ("/nothing", None),
        ("/nothing/there", None),
        ("/id/deeper", None),
        ("/empty", None),
        ("/a~1b", b"slash"),
        ("/a~0b", b"tilde"),
        ("/a~01b", b"tilde and one"),
        ('/"', b"quote"),
        ("/", b"no name"),
        ("/lines/0/sku", b"s-1"),
        ("/big", b"123456789012345678901234567890"),
    ],
)
def test_a_pointer_finds_its_place_or_the_key_is_null(pointer: str, key: bytes | None) -> None:
    value = {
        "id": 7,
        "customer": {"name": "Zoë", "tags": ["a", "b"]},
        "empty": None,
        "a/b": "slash",
        "a~b": "tilde",
        "a~1b": "tilde and one",
        '"': "quote",
        "": "no name",
        "lines": [{"sku": "s-1"}],
        "big": 123456789012345678901234567890,
    }
    assert from_json(pointer)(message(json.dumps(value).encode())) == key


def test_the_empty_pointer_is_the_whole_value() -> None:
    assert from_json("")(message(b' "k" ')) == b"k"
    assert from_json("")(message(b"[1, 2]")) == b"[1,2]"


@pytest.mark.parametrize("value", [b"[1]", b"7", b"null", b'"text"'])
def test_json_that_is_no_object_has_no_such_place(value: bytes) -> None:
    assert from_json("/id")(message(value)) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b'{"id": 7',
        b'{"id": 7} trailing',
        b'{"id": "\xff"}',
        b'[1, "half',
        b"[" * 200_000,
        b'{"id":' + b"[" * 200_000,
        b"{'id': 7}",
    ],
)
def test_what_is_no_json_is_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable, match="the value is not JSON"):
        from_json("/id")(message(value))


@pytest.mark.parametrize("pointer", ["id", "/a~2b", "/a~", " /id"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ConfigError, match="is not a JSON pointer"):
        from_json(pointer)


def test_a_record_without_a_value_has_a_null_key() -> None:
    for key_of in (
        from_json("/id"),
        from_avro("customer", schema=V1),
        from_avro("customer", registry={1: V1}.get),
    ):
        assert key_of(message(None)) is None


# --- Avro ---


@pytest.mark.parametrize("schema", [V1, json.dumps(V1)])
def test_a_field_of_bare_avro(schema: Any) -> None:
    assert from_avro("customer", schema=schema)(message(avro(V1, {"customer": "c-1"}))) == b"c-1"


def test_each_version_of_a_schema_is_read_with_its_own() -> None:
    key_of = from_avro("customer", registry={1: V1, 2: V2}.get)
    second = {"total": 1.5, "customer": "c-1", "site": {"no": 4}}
    assert key_of(message(avro(V1, {"customer": "c-1"}, 1))) == b"c-1"
    assert key_of(message(avro(V2, second, 2))) == b"c-1"


def test_a_path_goes_into_records_and_a_missing_field_or_a_null_is_a_null_key() -> None:
    value = {"total": 1.5, "customer": None, "site": {"no": 4}}
    written = message(avro(V2, value, 2))
    registry = {2: V2}.get
    assert from_avro("site.no", registry=registry)(written) == b"4"
    assert from_avro("site", registry=registry)(written) == b'{"no":4}'
    for field in ("customer", "unknown", "site.unknown", "total.deeper"):
        assert from_avro(field, registry=registry)(written) is None


def test_logical_types_are_keys_by_their_text() -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": "id", "type": {"type": "string", "logicalType": "uuid"}}],
    }
    known = uuid.UUID(int=5)
    assert (
        from_avro("id", schema=schema)(message(avro(schema, {"id": known}))) == str(known).encode()
    )


@pytest.mark.parametrize("value", [b"", b"\x06ab", b"\xff" * 20, b"\x02\xff"])
def test_malformed_avro_is_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable, match=r"not Avro of its schema: ."):
        from_avro("customer", schema=V1)(message(value))
    with pytest.raises(Undecodable, match=r"not Avro of its schema: ."):
        from_avro("customer", registry={1: V1}.get)(message(b"\x00\x00\x00\x00\x01" + value))


@pytest.mark.parametrize("value", [b"\x00\x00\x00", b"json?", b"\x01short", b"\x07" + b"\0" * 9])
def test_a_value_that_begins_with_no_schema_id_is_not_judged_alone(value: bytes) -> None:
    text = "the value does not begin with the id of a schema: .*; the setting says Avro"
    with pytest.raises(UnknownFormat, match=text) as caught:
        from_avro("customer", registry={1: V1}.get)(message(value))
    assert caught.value.vague
    with pytest.raises(Undecodable, match="the value is empty"):
        from_avro("customer", registry={1: V1}.get)(message(b""))


def test_a_schema_that_is_unknown_or_no_avro_is_the_readers_fault() -> None:
    registry = {1: "this is no schema", 2: '{"type": "object"}'}
    key_of = from_avro("customer", registry=registry.__getitem__)
    wanted = [
        (1, "schema 1: it is not Avro"),
        (2, "schema 2: it is not Avro"),
        (3, "schema 3: the registry knows no such schema"),
    ]
    for schema_id, text in wanted:
        with pytest.raises(UnknownFormat, match=text):
            key_of(message(avro(V1, {"customer": "c"}, schema_id)))


@pytest.mark.parametrize(
    ("field", "where", "text"),
    [
        ("a..b", {"schema": V1}, "is not a path of Avro fields"),
        ("customer", {}, "needs either schema= or registry="),
        ("customer", {"schema": V1, "registry": {}.get}, "needs either"),
        ("custmer", {"schema": V1}, "not of a record with a field 'custmer'; it has customer"),
        ("customer", {"schema": "{"}, "the schema is not an Avro schema"),
        ("customer", {"schema": '"string"'}, "it has none"),
        ("customer", {"registry": 7}, "give a function of a schema's id"),
    ],
)
def test_a_field_or_a_schema_that_cannot_work_is_refused(
    field: str, where: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        from_avro(field, **where)


# --- registries ---


class Described:
    """A schema as Confluent's client gives it."""

    def __init__(self, schema: Any) -> None:
        self.schema_str = json.dumps(schema)


class RefusedError(Exception):
    """An error as Confluent's client raises it."""

    def __init__(self, http_status_code: int) -> None:
        super().__init__(f"HTTP {http_status_code}")
        self.http_status_code = http_status_code


class FakeRegistry:
    """As much of Confluent's ``SchemaRegistryClient`` as a key function uses."""

    def __init__(self) -> None:
        self.by_id = {41: Described(V1), 42: Described(V2)}
        self.guid = str(uuid.UUID(int=99))
        self.asked: list[int | str] = []

    def get_schema(self, schema_id: int) -> Described:
        self.asked.append(schema_id)
        if schema_id not in self.by_id:
            raise RefusedError(404)
        return self.by_id[schema_id]

    def get_schema_by_guid(self, guid: str) -> Described:
        self.asked.append(guid)
        if guid != self.guid:
            raise RefusedError(404)
        return self.by_id[41]


# What the AvroSerializer of confluent-kafka 2.16.1 makes of {"customer": "c-1"} under V1, whose id
# is 41 and whose GUID ends in 99: first as it is, then with header_schema_id_serializer.
SERIALIZED = b"\x00\x00\x00\x00)\x06c-1"
SERIALIZED_BARE = b"\x06c-1"
SCHEMA_ID_HEADER = ("__value_schema_id", b"\x01" + b"\x00" * 15 + b"c")


def test_what_confluents_serializer_writes_is_read() -> None:
    registry = FakeRegistry()
    assert from_avro("customer", registry=registry)(message(SERIALIZED)) == b"c-1"
    assert registry.asked == [41]


def test_an_id_in_the_header_is_found_there_and_the_value_is_all_avro() -> None:
    registry = FakeRegistry()
    written = message(SERIALIZED_BARE, [("trace", b"t"), SCHEMA_ID_HEADER])
    assert from_avro("customer", registry=registry)(written) == b"c-1"
    assert registry.asked == [registry.guid]


def test_a_header_that_is_no_schema_id_is_not_judged_alone() -> None:
    written = message(avro(V1, {"customer": "c-1"}), [("__value_schema_id", b"?")])
    with pytest.raises(UnknownFormat, match="the header __value_schema_id does not begin"):
        from_avro("customer", registry=FakeRegistry())(written)


def test_a_registry_that_answers_not_found_knows_no_such_schema() -> None:
    with pytest.raises(UnknownFormat, match="schema 43: the registry knows no such schema"):
        from_avro("customer", registry=FakeRegistry())(message(avro(V1, {"customer": "c"}, 43)))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_schema_is_asked_for_once_and_an_unknown_one_with_back_off() -> None:
    registry, clock = FakeRegistry(), Clock()
    schemas = Schemas(registry, clock)
    assert schemas.get(41) is schemas.get(41)
    delays = []
    for _ in range(6):
        with pytest.raises(UnknownFormat) as caught:
            schemas.get(7)
        with pytest.raises(UnknownFormat):
            schemas.get(7)
        delays.append(caught.value.after)
        clock.now += caught.value.after or 0.0
    assert registry.asked == [41, *[7] * 6]
    assert delays == [ASK_AGAIN, 2.0, 4.0, 8.0, ASK_AGAIN_MOST, ASK_AGAIN_MOST]
    registry.by_id[7] = Described(V1)
    assert schemas.get(7).fields == ["customer"]


def test_an_unknown_schema_is_waited_for_from_the_first_time_it_is_asked_for() -> None:
    clock = Clock()
    schemas = Schemas(FakeRegistry(), clock)
    for passed, left in ((0.0, PATIENCE), (4.0, PATIENCE - 4.0), (PATIENCE, 0.0)):
        clock.now = 100.0 + passed
        with pytest.raises(UnknownFormat) as caught:
            schemas.get(7)
        assert caught.value.patience == pytest.approx(left)


def test_many_unknown_ids_at_once_are_garbage_and_none_is_waited_for() -> None:
    clock = Clock()
    schemas = Schemas(FakeRegistry(), clock)

    def patience(schema_id: int) -> float:
        with pytest.raises(UnknownFormat) as caught:
            schemas.get(schema_id)
        return caught.value.patience

    ids = range(100, 100 + PATIENT_IDS)
    assert [patience(each) for each in ids] == [PATIENCE] * PATIENT_IDS
    assert patience(7) == 0.0
    assert patience(100) == 0.0
    clock.now += PATIENT_WITHIN
    assert patience(8) == PATIENCE, "those are long ago"


def test_a_registry_that_is_down_means_not_now_and_is_asked_with_back_off() -> None:
    asked: list[object] = []

    def down(schema_id: object) -> None:
        asked.append(schema_id)
        raise ConnectionError("no route to host")

    clock = Clock()
    schemas = Schemas(down, clock)
    for schema_id in (1, 2, 3):
        with pytest.raises(Retry) as caught:
            schemas.get(schema_id)
        assert caught.value.after == pytest.approx(ASK_AGAIN)
        assert str(caught.value.__cause__) == "no route to host"
    assert asked == [1]
    clock.now += ASK_AGAIN
    with pytest.raises(Retry) as caught:
        schemas.get(2)
    assert asked == [1, 2]
    assert caught.value.after == pytest.approx(2 * ASK_AGAIN)


def test_an_error_of_the_registry_that_is_not_404_means_not_now() -> None:
    def failing(schema_id: object) -> None:
        raise RefusedError(500)

    with pytest.raises(Retry):
        Schemas(failing).get(1)


def test_schemas_are_remembered_up_to_a_bound() -> None:
    asked: list[object] = []

    def every(schema_id: object) -> Any:
        asked.append(schema_id)
        return V1 if isinstance(schema_id, int) and schema_id % 2 else None

    schemas = Schemas(every)
    for schema_id in range(4 * SCHEMAS_MAX):
        if schema_id % 2:
            schemas.get(schema_id)
        else:
            with pytest.raises(UnknownFormat):
                schemas.get(schema_id)
    assert (len(schemas._known), len(schemas._unknown)) == (SCHEMAS_MAX, SCHEMAS_MAX)
    before = len(asked)
    schemas.get(4 * SCHEMAS_MAX - 1)
    assert len(asked) == before, "the latest are still known"


# --- functions ---


def test_what_a_function_returns_becomes_bytes() -> None:
    assert from_callable(lambda record: record.partition())(message()) == b"0"
    assert from_callable(lambda record: None)(message()) is None


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (Undecodable("because"), Undecodable, "because"),
        (KeyError("id"), Undecodable, "KeyError: 'id'"),
        (RecursionError("deep"), Undecodable, "RecursionError: deep"),
        (Retry(5.0), Retry, "after 5.0 s"),
        (TimeoutError("registry"), Retry, "after the back-off"),
    ],
)
def test_what_a_function_raises(error: Exception, raised: type[Exception], text: str) -> None:
    def fails(record: object) -> None:
        raise error

    with pytest.raises(raised, match=text):
        from_callable(fails)(message())


def test_what_cannot_be_called_with_one_record_is_refused() -> None:
    async def later(record: object) -> None:
        del record

    for refused in (lambda: b"", later, b"key", lambda a, b: a):
        with pytest.raises(ConfigError, match="one record"):
            from_callable(refused)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "key_of",
    [
        from_header("k"),
        from_json(""),
        from_avro("customer", schema=V1),
        from_avro("customer", registry={}.get),
        from_callable(lambda record: b"a"),
    ],
)
def test_an_event_of_the_client_has_no_key(key_of: KeyOf) -> None:
    assert key_of(ErrorEvent()) is None  # type: ignore[arg-type]


# --- settings ---

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def test_options_name_the_key_and_what_becomes_of_records_without_one() -> None:
    settings = subscription_settings(
        make_options({"key": "header:k", "null_keys": "one-lane", "undecodable": "drop"})
    )
    assert settings.key_of is not None
    assert settings.key_of(message(headers=[("k", b"a")])) == b"a"
    assert (settings.null_keys, settings.when_undecodable()) == ("one-lane", "drop")
    unset = subscription_settings(make_options({}))
    assert (unset.key_of, unset.null_keys, unset.when_undecodable()) == (None, "any", "block")
    assert subscription_settings(make_options({"dlq": True})).when_undecodable() == "dead_letter"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "heade:k"}, "key"),
        ({"key": "json:id"}, "key"),
        ({"key": "json:/a~2"}, "not a JSON pointer"),
        ({"key": "avro:id"}, "needs key_schema"),
        ({"key_schema": "some.avsc"}, "is for key='avro:FIELD'"),
        ({"undecodable": "dead_letter"}, "needs a dead-letter topic"),
        ({"undecodable": "null_key", "null_keys": "reject"}, "from one to the other"),
        ({"null_keys": "one_lane"}, "null_keys"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_consumed(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        KeyShared(CONF, ["orders"], **options)


def test_an_app_takes_a_function_for_its_key_and_leaves_ours_as_they_are() -> None:
    ours = from_header("k")
    assert KeyShared(CONF, ["orders"], key=ours).subscription.key_of is ours
    own = KeyShared(CONF, ["orders"], key=lambda record: record.offset()).subscription.key_of
    assert own is not None
    assert own(message()) == b"1"
    with pytest.raises(ConfigError, match="one record"):
        KeyShared(CONF, ["orders"], key=lambda: b"a")  # type: ignore[arg-type,misc]


def test_a_text_names_where_the_key_is(tmp_path: Path) -> None:
    assert parse_key("record") is None
    value = json.dumps({"a": {"b": "c"}}).encode()
    found = message(value, [("a:b", b"h")])
    wanted: list[tuple[str, bytes]] = [("header:a:b", b"h"), ("json:/a/b", b"c")]
    for text, key in wanted:
        key_of = parse_key(text)
        assert key_of is not None
        assert key_of(found) == key


def test_a_schema_file_is_for_bare_avro_and_a_folder_for_the_wire_format(tmp_path: Path) -> None:
    file = tmp_path / "7.avsc"
    file.write_text(json.dumps(V1), "utf-8")
    bare, framed = parse_key("avro:customer", file), parse_key("avro:customer", tmp_path)
    assert bare is not None
    assert framed is not None
    assert bare(message(avro(V1, {"customer": "c-1"}))) == b"c-1"
    assert framed(message(avro(V1, {"customer": "c-1"}, 7))) == b"c-1"
    with pytest.raises(UnknownFormat, match="schema 8"):
        framed(message(avro(V1, {"customer": "c-1"}, 8)))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda there: parse_key("headers:a"), "give 'record', 'header:NAME'"),
        (lambda there: parse_key("avro:customer"), "needs key_schema"),
        (lambda there: parse_key("avro:customer", there / "missing.avsc"), "No such file"),
        (lambda there: parse_key("json:/a", there), "is for key='avro:FIELD'"),
        (lambda there: parse_key("header"), "give 'record'"),
    ],
)
def test_a_text_that_names_no_key_is_refused(
    call: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=text):
        call(tmp_path)


def test_many_headers_at_once_say_what_each_says_alone() -> None:
    """Or nothing at all: then each is asked alone."""
    key_of: Any = from_header("k")
    alone = [("k", b"1")]
    kinds: list[Any] = [alone, [*alone, ("other", b"x")], None, [("k", None)], [("other", b"x")]]
    messages = [message(headers=each) for each in kinds * 3]
    assert key_of.of_all(messages) == [key_of(each) for each in messages]
    assert key_of.of_all([]) == []
    with pytest.raises(TypeError, match="no bytes"):
        key_of.of_all([*messages, message(headers=[("k", "a text")])])
    assert key_of(message(headers=[("k", "a text")])) == b"a text"


# --- schemas that refer to others ---

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "acme",
    "fields": [{"name": "id", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "acme",
    "fields": [{"name": "customer", "type": "acme.Customer"}, {"name": "n", "type": "int"}],
}
EVENT = ["acme.Order", "acme.Customer"]


class Reference(NamedTuple):
    """A reference as Confluent's client gives it."""

    name: str
    subject: str
    version: int


class Registered:
    """A schema with its kind and references, as Confluent's client gives it."""

    def __init__(
        self, schema: Any, references: Sequence[Reference] = (), kind: str = "AVRO"
    ) -> None:
        self.schema_str = schema if isinstance(schema, str) else json.dumps(schema)
        self.references = list(references)
        self.schema_type = kind
        self.schema = self


TO_CUSTOMER = Reference("acme.Customer", "customer", 1)
TO_ORDER = Reference("acme.Order", "order", 2)


class Subjects:
    """A registry with subjects; ``asked`` has every question that it was asked."""

    def __init__(self) -> None:
        self.by_id: dict[int, Registered] = {
            41: Registered(ORDER, [TO_CUSTOMER]),
            42: Registered('syntax = "proto3"; message O {}', kind="PROTOBUF"),
            43: Registered({"type": "object"}, kind="JSON"),
            # Both refer to Customer, and Event needs it through Order too.
            44: Registered(EVENT, [TO_ORDER, TO_CUSTOMER]),
        }
        self.versions: dict[tuple[str, int], Registered] = {
            ("customer", 1): Registered(CUSTOMER),
            ("order", 2): Registered(ORDER, [TO_CUSTOMER]),
        }
        self.asked: list[object] = []
        self.away = False

    def get_schema(self, schema_id: int) -> Registered:
        return self._answer(schema_id, self.by_id)

    def get_version(self, subject: str, version: int) -> Registered:
        return self._answer((subject, version), self.versions)

    def _answer(self, asked: Any, known: dict[Any, Registered]) -> Registered:
        self.asked.append(asked)
        if self.away:
            raise RefusedError(503)
        if asked not in known:
            raise RefusedError(404)
        return known[asked]


def order(number: int, schema_id: int | None = 41, *, union: bool = False) -> Any:
    names: dict[str, Any] = {}
    fastavro.parse_schema(CUSTOMER, named_schemas=names)
    schema = fastavro.parse_schema(ORDER, named_schemas=names)
    out = io.BytesIO()
    if schema_id is not None:
        out.write(b"\x00" + schema_id.to_bytes(4, "big"))
    if union:
        out.write(b"\x00")  # the first branch
    fastavro.schemaless_writer(out, schema, {"customer": {"id": f"c-{number}"}, "n": number})
    return message(out.getvalue())


def test_schemas_that_a_schema_refers_to_are_fetched_once_each() -> None:
    registry = Subjects()
    key_of = from_avro("customer.id", registry=registry)
    assert [key_of(order(number)) for number in (1, 2)] == [b"c-1", b"c-2"]
    assert key_of(order(3, 44, union=True)) == b"c-3", "a union of referenced schemas"
    assert registry.asked == [41, ("customer", 1), 44, ("order", 2)]


def test_a_registry_that_is_away_amid_references_is_asked_for_the_rest_later() -> None:
    registry, clock = Subjects(), Clock()
    schemas = Schemas(registry, clock)
    del registry.versions["customer", 1]
    with pytest.raises(UnknownFormat, match=r"schema 41: it refers to acme.Customer \(subject"):
        schemas.get(41)
    registry.away = True
    clock.now += ASK_AGAIN
    with pytest.raises(Retry) as caught:
        schemas.get(41)
    assert not isinstance(caught.value, UnknownFormat)
    registry.away, registry.versions["customer", 1] = False, Registered(CUSTOMER)
    clock.now += ASK_AGAIN
    assert schemas.get(41).fields == ["customer", "n"]


@pytest.mark.parametrize(
    ("schema_id", "text"),
    [
        (42, "schema 42 is PROTOBUF; the setting says Avro"),
        (43, "schema 43 is JSON Schema; the setting says Avro"),
    ],
)
def test_a_schema_of_another_kind_is_named(schema_id: int, text: str) -> None:
    with pytest.raises(UnknownFormat, match=text):
        from_avro("customer", registry=Subjects())(order(1, schema_id))


def test_references_in_a_circle_and_to_other_kinds_are_named() -> None:
    registry = Subjects()
    registry.versions["customer", 1] = Registered(CUSTOMER, [TO_ORDER])
    with pytest.raises(UnknownFormat, match=r"schema 41: its references go in a circle through"):
        from_avro("customer.id", registry=registry)(order(1))
    registry.versions["customer", 1] = Registered("message C {}", kind="PROTOBUF")
    with pytest.raises(UnknownFormat, match=r"it refers to acme.Customer .*, which is PROTOBUF"):
        from_avro("customer.id", registry=registry)(order(1))


def test_a_function_that_cannot_be_asked_for_references_is_told_what_it_lacks() -> None:
    key_of = from_avro("customer.id", registry=Subjects().by_id.get)
    with pytest.raises(UnknownFormat, match=r"give it a method get_version\(subject, version\)"):
        key_of(order(1))
    names: dict[str, Any] = {}
    fastavro.parse_schema(CUSTOMER, named_schemas=names)
    parsed = fastavro.parse_schema(ORDER, named_schemas=names)
    assert from_avro("customer.id", registry=lambda _: parsed)(order(1)) == b"c-1"
    assert from_avro("customer.id", schema=parsed)(order(2, None)) == b"c-2"


def test_files_of_schemas_refer_to_files_beside_them_by_full_name(tmp_path: Path) -> None:
    (tmp_path / "41.avsc").write_text(json.dumps(ORDER), "utf-8")
    folder = parse_key("avro:customer.id", tmp_path)
    assert folder is not None
    with pytest.raises(UnknownFormat, match=r"schema 41: it refers to acme.Customer, which is"):
        folder(order(1))
    with pytest.raises(ConfigError, match="which is nowhere defined; a name that it refers to is"):
        parse_key("avro:customer.id", tmp_path / "41.avsc")
    (tmp_path / "acme.Customer.avsc").write_text(json.dumps(CUSTOMER), "utf-8")
    folder, file = (parse_key("avro:customer.id", tmp_path / name) for name in (".", "41.avsc"))
    assert folder is not None
    assert file is not None
    assert (folder(order(1)), file(order(2, None))) == (b"c-1", b"c-2")
    (tmp_path / "acme.Customer.avsc").write_text(json.dumps(ORDER), "utf-8")
    with pytest.raises(ConfigError, match="refers to itself"):
        parse_key("avro:customer.id", tmp_path / "41.avsc")


def test_text_of_a_function_that_is_no_avro_is_named_as_what_it_looks_like() -> None:
    with pytest.raises(UnknownFormat, match="it looks like Protobuf"):
        from_avro("id", registry={1: 'syntax = "proto3";'}.get)(order(1, 1))


# --- other wire formats ---

PLAIN = b'{"customer": "c-1"}'
GUID = uuid.UUID("7d3f5a52-0d53-4c7e-8a1e-3f1f4b6f2a10").bytes


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\x00\x00\x00\x07" + PLAIN,
        b"\xef\xbb\xbf" + PLAIN,
        b"\x00\x00\x00\x00\x07\xef\xbb\xbf" + PLAIN,
        b"\x01" + GUID + PLAIN,
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x07" + PLAIN,
        b"\x03\x00" + GUID + PLAIN,
    ],
)
def test_json_behind_a_schema_id_or_a_byte_order_mark_is_json(value: bytes) -> None:
    assert from_json("/customer")(message(value)) == b"c-1"
    assert from_json("")(message(value)) == b'{"customer":"c-1"}'


@pytest.mark.parametrize("value", [b"\x00\x00\x00\x00\x07" + PLAIN[:-1], b"\0" * 20, b"\0\0\0\0\7"])
def test_broken_json_behind_a_schema_id_and_zero_bytes_are_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable, match="the value is not JSON"):
        from_json("/customer")(message(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (SERIALIZED, "Confluent wire format, schema id 41"),
        # Protobuf: the id, the message indexes, the message.
        (b"\x00\x00\x00\x00\x2a\x04\x02\x02\x0a\x01c", "Confluent wire format, schema id 42"),
        (b"\x03\x05" + GUID + b"x\x9c", "AWS Glue wire format, schema version"),
        (b"\x00" * 8 + b"\x07\x06c-1", "Apicurio wire format with an 8-byte id, 7"),
        (b"Obj\x01\x04", "an Avro container file"),
        (b"\xc3\x01" + b"f" * 8, "Avro single-object encoding"),
        (PLAIN.decode().encode("utf-16"), "text in UTF-16"),
        (gzip.compress(PLAIN, mtime=0), "gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd"),
    ],
)
def test_a_value_in_another_known_format_is_not_judged_and_the_format_is_named(
    value: bytes, text: str
) -> None:
    with pytest.raises(UnknownFormat) as caught:
        from_json("/customer")(message(value))
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith("; the setting says plain JSON")
    assert caught.value.kind.startswith(text), "so another schema id is another kind"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.kind, str(again), again.delay()) == (
        caught.value.kind,
        str(caught.value),
        caught.value.delay(),
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (PLAIN, "plain JSON"),
        (b"\xef\xbb\xbf" + PLAIN, "plain JSON"),
        (b"\x00" * 8 + b"\x07\x06c-1", "Apicurio wire format"),
        (gzip.compress(PLAIN, mtime=0), "gzip"),
        (b"\x03\x00" + GUID + b"\x06c-1", "AWS Glue"),
    ],
)
def test_another_format_under_an_avro_setting_is_named(value: bytes, text: str) -> None:
    with pytest.raises(UnknownFormat, match=f"^{text}.*says Avro in Confluent's wire format"):
        from_avro("customer", registry=FakeRegistry())(message(value))


def test_the_id_of_apicurio_in_a_header_is_named() -> None:
    written = message(SERIALIZED_BARE, [("apicurio.value.globalId", b"\0" * 7 + b"\x07")])
    with pytest.raises(UnknownFormat, match="an Apicurio schema id in the header"):
        from_avro("customer", registry=FakeRegistry())(written)


def test_a_schema_id_in_front_of_bare_avro_is_named_even_where_its_bytes_could_be_read() -> None:
    """A zero byte reads as the empty string: every record would have the same wrong key."""
    key_of = from_avro("customer", schema=V1)
    with pytest.raises(UnknownFormat, match=r"^Confluent wire format, schema id 41; .* bare Avro"):
        key_of(message(SERIALIZED))
    assert key_of(message(SERIALIZED_BARE)) == b"c-1"
    assert key_of(message(avro(V1, {"customer": ""}))) == b""


def test_json_whose_first_byte_could_be_bare_avro_is_named() -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}
    key_of = from_avro("n", schema=schema)
    assert key_of(message(avro(schema, {"n": 5}))) == b"5"
    for value in (b'{"n": 5}', gzip.compress(PLAIN, mtime=0)):
        with pytest.raises(UnknownFormat, match="the setting says bare Avro"):
            key_of(message(value))
