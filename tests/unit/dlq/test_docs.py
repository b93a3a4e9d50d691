"""The page about headers says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_keyshared.dlq import avro, envelope
from tests.support.letters import a_publish

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "headers.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_header_of_a_letter_has_its_line_in_its_place(page: str) -> None:
    _, section = page.split("## The header form")
    told = re.findall(r"^\| `(keyshared\.[a-z.]+)` \|", section, re.MULTILINE)
    # The one behind them is added where calls are traced (tests/integration/test_tracing.py).
    assert told[:-1] == [name for name, _ in envelope.headers_of(a_publish([]), "g")]
    assert told[-1] == "keyshared.traceparent"


def test_the_page_has_the_newest_schema_and_its_fingerprint(page: str) -> None:
    (shown,) = re.findall(r"<!-- schema: (\S+) -->\n```json\n(.*?)```", page, re.DOTALL)
    assert shown[0] == f"dead_letter.v{avro.VERSION}.avsc"
    assert shown[1] == avro.schema_text()
    assert f"the fingerprint is `{avro.known().fingerprint.hex()}`" in page.replace("\n", " ")


def test_every_version_says_which_one_it_is_and_only_adds_fields_with_a_default() -> None:
    names: set[str] = set()
    for version in range(1, avro.VERSION + 1):
        fields = {field["name"]: field for field in json.loads(avro.schema_text(version))["fields"]}
        assert names <= fields.keys()
        assert version == 1 or all("default" in fields[name] for name in fields.keys() - names)
        names = set(fields)
    assert "envelope" in names


def test_the_mark_of_the_avro_form_is_on_the_page(page: str) -> None:
    assert (
        f"one header, `{envelope.CONTENT}`, with the value `{envelope.CONTENT_AVRO.decode()}`"
        in (page)
    )
