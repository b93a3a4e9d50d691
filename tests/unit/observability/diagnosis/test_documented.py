"""The page of causes says what the table of causes says."""

from __future__ import annotations

import re
from pathlib import Path

from kafka_keyshared.observability.diagnosis.causes import CAUSES, PAGE

DOCS = Path(__file__).parents[4] / "docs"


def sections() -> dict[str, str]:
    text = (DOCS / PAGE).read_text("utf-8")
    parts = re.split(r"^### (.+)$", text, flags=re.M)
    return {
        name: " ".join(body.split()) for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_every_cause_has_its_section_in_the_order_of_what_is_mended_first() -> None:
    assert list(sections()) == [each.code for each in CAUSES]


def test_a_section_has_number_level_meaning_and_cure() -> None:
    found = sections()
    for cause in CAUSES:
        text = found[cause.code]
        assert text.startswith(f"Number {cause.number}, `{cause.level}`."), cause.code
        means = f"{cause.means[0].upper()}{cause.means[1:]}."
        assert means in text, f"docs/{PAGE}: {cause.code} should say: {means}"
        assert f"**To do:** {cause.cure}." in text, f"{cause.code}: {cause.cure}"
