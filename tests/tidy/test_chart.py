"""What is generated of the chart is not stale; here, because `make check` runs this."""

from __future__ import annotations

import json

from tests.helm.generate import CHART, generated, readme, values_schema

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))


def test_what_is_generated_is_not_stale() -> None:
    for path, text in generated().items():
        assert path.read_text("utf-8") == text, "run: .venv/bin/python tests/helm/generate.py"


def test_staleness_is_noticed() -> None:
    known = json.loads(json.dumps(SCHEMA))
    del known["properties"]["config"]["properties"]["workers"]
    assert values_schema(known) == SCHEMA != known
    page = (CHART / "README.md").read_text("utf-8")
    values = (CHART / "values.yaml").read_text("utf-8")
    assert readme(page, values.replace("replicaCount: 1", "replicaCount: 2")) != page
