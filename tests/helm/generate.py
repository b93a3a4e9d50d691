"""Writes the parts of the chart that follow from other files.

``python tests/helm/generate.py`` puts the package's own settings into ``values.schema.json``, under
``config``, the former names of settings into ``templates/_renamed.tpl``, and the table of
``values.yaml`` into the chart's README. A test says when one is stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kafka_keyshared.config import FileConfig
from kafka_keyshared.config.renamed_settings import CHART as IN_VALUES
from kafka_keyshared.config.renamed_settings import RENAMED, renaming

CHART = Path(__file__).resolve().parents[2] / "helm" / "kafka-keyshared"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"

# The schema's own parts begin with this, so that they can be told from the chart's.
_PREFIX = "config."


def package_schema() -> dict[str, Any]:
    """The package's schema of its settings.

    Not the one of a TOML file: in YAML what is not set may be said, as null.
    """
    return msgspec.json.schema(FileConfig, ref_template="#/$defs/" + _PREFIX + "{name}")


def values_schema(written: dict[str, Any]) -> dict[str, Any]:
    """The chart's schema with what it says under ``config`` made again from the package."""
    schema = deepcopy(written)
    own = package_schema()
    parts = {_PREFIX + name: part for name, part in own["$defs"].items()}
    root = parts.pop(own["$ref"].removeprefix("#/$defs/"))
    # Any free port is no use to a probe.
    _number(root["properties"]["http_port"])["minimum"] = 1
    root["properties"]["kafka"]["propertyNames"] = {"pattern": r"^[a-z0-9_]+(\.[a-z0-9_]+)*$"}
    # The schema has no words of its own for them. The templates refuse them and name the successor.
    root["properties"] |= {
        former: {"description": f"Renamed to {renamed.setting}.", "deprecated": True}
        for former, renamed in RENAMED.items()
    }
    schema["properties"]["config"] = root
    schema["$defs"] = {
        name: part for name, part in schema["$defs"].items() if not name.startswith(_PREFIX)
    } | parts
    return schema


def _number(schema: dict[str, Any]) -> dict[str, Any]:
    """The branch of a schema that is about integers."""
    branches = [each for each in schema.get("anyOf", [schema]) if each.get("type") == "integer"]
    found: dict[str, Any] = branches[0]
    return found


def renamed_template() -> str:
    """The template with the successor of each former name of a setting."""
    # The rule of the templates has the beginning.
    texts = {former: renaming(former, IN_VALUES).partition(": ")[2] for former in RENAMED}
    lines = "\n".join(f"{former}: {json.dumps(text)}" for former, text in texts.items())
    return (
        "{{/*\nThe successor of each former name of a setting under config. Generated.\n*/}}\n"
        '{{- define "keyshared.renamed" -}}\n' + lines + "\n{{- end -}}\n"
    )


def described(text: str) -> Iterator[tuple[str, str, str]]:
    """Every key of a ``values.yaml`` with its default and the comment above it.

    A key that only holds others has no default of its own: theirs follow.
    """
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("# --"):
            comment = [bare.removeprefix("# --").strip()]
        elif bare.startswith("#") and comment:
            comment.append(bare.removeprefix("#").strip())
        elif match := re.match(r"^( *)([A-Za-z_]+):(?: (.+))?$", line):
            indent, name, default = len(match[1]), match[2], match[3]
            path = [*((at, key) for at, key in path if at < indent), (indent, name)]
            yield ".".join(key for _, key in path), default or "", " ".join(comment)
            comment = []
        else:
            comment = []


def table(text: str) -> str:
    """The rows of a ``values.yaml`` as a Markdown table."""
    rows = [
        f"| `{key}` | {f'`{default}`' if default else ''} | {comment} |"
        for key, default, comment in described(text)
    ]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def readme(written: str, values: str) -> str:
    """The README with its table made again."""
    before, _, rest = written.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(values)}\n\n{END}{after}"


def generated() -> dict[Path, str]:
    """Every file that is made here, with what it must say."""
    schema, page = CHART / "values.schema.json", CHART / "README.md"
    made = values_schema(json.loads(schema.read_text("utf-8")))
    values = (CHART / "values.yaml").read_text("utf-8")
    return {
        schema: json.dumps(made, indent=2, ensure_ascii=False) + "\n",
        CHART / "templates" / "_renamed.tpl": renamed_template(),
        page: readme(page.read_text("utf-8"), values),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, "utf-8")
