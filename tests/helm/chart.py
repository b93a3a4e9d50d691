"""The chart, rendered by the real helm."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.setup.helm import find_helm

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "kafka-keyshared"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
NEWEST = "1.37"
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

Values: TypeAlias = dict[str, Any]


class RefusedError(Exception):
    """helm ended with an error; its text is what it said."""


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """What helm prints; raises :class:`RefusedError`."""
    program = find_helm()
    assert program is not None
    done = subprocess.run(
        [str(program), *arguments, *(() if values is None else ("--values", "-"))],
        input=json.dumps(values, ensure_ascii=False),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise RefusedError(done.stdout + done.stderr)
    return done.stdout


def case(name: str) -> Values:
    """The values of a file under ``ci/``."""
    read: Values = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text("utf-8"))
    return read


def changed(values: Values, **dotted: Any) -> Values:
    """A copy with values put in; ``config__dlq=True`` sets ``config.dlq``."""
    made = deepcopy(values)
    for path, value in dotted.items():
        *above, last = path.split("__")
        inner = made
        for name in above:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return made


def merged(below: Any, above: Any) -> Any:
    """Values laid over others, as helm lays them over the defaults."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {
            name: merged(below[name], above[name])
            if name in below and name in above
            else above.get(name, below.get(name))
            for name in {**below, **above}
        }
    return above


def minimal(**dotted: Any) -> Values:
    """The least values, with some put in."""
    return changed(case("minimal"), **dotted)


def render(values: Values, *, release: str = "billing") -> list[Values]:
    """The objects that the chart makes of these values; raises :class:`RefusedError`."""
    return deepcopy(_render(json.dumps(values), release))


@functools.cache
def _render(values: str, release: str) -> list[Values]:
    text = helm(
        *("template", release, str(CHART), "--namespace", "team", "--kube-version", NEWEST),
        values=json.loads(values),
    )
    return [each for each in yaml.safe_load_all(text) if each]


def one(objects: list[Values], kind: str, ending: str = "") -> Values:
    """The only object of a kind, or the one whose name ends so."""
    found = [
        each
        for each in objects
        if each["kind"] == kind and each["metadata"]["name"].endswith(ending)
    ]
    assert len(found) == 1, [each["metadata"]["name"] for each in found]
    return found[0]


def pod(objects: list[Values]) -> Values:
    """The pod template's spec of the Deployment."""
    spec: Values = one(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(objects: list[Values]) -> Values:
    """The only container of the Deployment's pods."""
    (found,) = pod(objects)["containers"]
    assert isinstance(found, dict)
    return found


def toml(objects: list[Values]) -> str:
    """The keyshared.toml of the pods."""
    text = one(objects, "ConfigMap", "-config")["data"]["keyshared.toml"]
    assert isinstance(text, str)
    return text
