"""Every public name of the package, as JSON: what a release may not change in silence.

``python tests/setup/public_names.py`` writes ``docs/reference/public-names.json``; a tidy test
compares the file with the package. ``--diff FILE`` prints the names that came and went since.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "reference" / "public-names.json"
EXPORTING = ("kafka_keyshared", "kafka_keyshared.config.keys", "kafka_keyshared.testing")
Names = Mapping[str, list[str]]


def names() -> Names:
    """Return the public names by their kind, each kind sorted."""
    kinds = {
        "exports": _exports(),
        "settings": _settings(),
        "command line": _command_line(),
        "metrics": _metrics(),
        "status fields": _status_fields(),
        "diagnosis causes": _causes(),
        "headers": _headers(),
    }
    return {kind: sorted(set(found)) for kind, found in kinds.items()}


def _exports() -> Iterator[str]:
    for package in EXPORTING:
        module = import_module(package)
        for name in module.__all__:
            yield f"{package}.{name}"
            each = getattr(module, name)
            for base in each.__mro__ if isclass(each) else ():
                if base.__module__.startswith("kafka_keyshared"):
                    members = (member for member in vars(base) if not member.startswith("_"))
                    yield from (f"{package}.{name}.{member}" for member in members)


def _settings() -> Iterator[str]:
    from kafka_keyshared.config.file import FileConfig

    yield from _paths(FileConfig, "")


def _paths(kind: Any, before: str) -> Iterator[str]:
    """Yield the fields of a structure, and those of the structures in it."""
    for each in msgspec.structs.fields(kind):
        path = f"{before}{each.encode_name}"
        yield path
        for inner in _structures(each.type):
            yield from _paths(inner, f"{path}.")


def _structures(annotation: Any) -> Iterator[Any]:
    if isclass(annotation) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _structures(inner)
    if hasattr(annotation, "__origin__") and hasattr(annotation, "__metadata__"):
        yield from _structures(annotation.__origin__)


def _command_line() -> Iterator[str]:
    from tests.setup.cli_page import verbs

    for verb, command in verbs().items():
        yield verb
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                yield f"{verb} {option}"


def _metrics() -> Iterator[str]:
    from kafka_keyshared.observability.web.metric_catalog import FAMILIES

    for family in FAMILIES:
        yield f"{family.name}{{{','.join(family.labels)}}}"


def _status_fields() -> Iterator[str]:
    from kafka_keyshared.status import Status

    yield from _paths(Status, "")


def _causes() -> Iterator[str]:
    from kafka_keyshared.observability.diagnosis.causes import CAUSES

    for cause in CAUSES:
        yield cause.code


def _headers() -> Iterator[str]:
    from kafka_keyshared.dlq import envelope

    for _, value in getmembers(envelope):
        if isinstance(value, str) and value.startswith("keyshared.") and value != "keyshared.":
            yield value


def changes(before: Names, after: Names) -> Iterator[str]:
    """Yield what went and what came, kind by kind."""
    for kind in sorted({*before, *after}):
        old, new = set(before.get(kind, ())), set(after.get(kind, ()))
        yield from (f"{kind}: - {name}" for name in sorted(old - new))
        yield from (f"{kind}: + {name}" for name in sorted(new - old))


def text(found: Names) -> str:
    """Return the names as the file has them."""
    return json.dumps(found, indent=1) + "\n"


def main() -> int:
    """Write the file, or print what has changed since another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--diff", type=Path, help="a file that this script wrote before")
    arguments = parser.parse_args()
    found = names()
    if arguments.diff is None:
        PAGE.write_text(text(found), "utf-8")
        return 0
    for line in changes(json.loads(arguments.diff.read_text("utf-8")), found):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
