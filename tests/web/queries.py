"""What queries ask for, held against what instances serve: for alerts and for the dashboard."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator

import pytest

from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.observability.web.metric_family import MetricFamily
from kafka_keyshared.observability.web.prometheus_collector import GROUP_LABEL
from tests.web.labels import ENUMERATED

BY_NAME = {family.name: family for family in FAMILIES}

OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")

TARGET_LABELS = {"namespace", "job", "instance", GROUP_LABEL}
"""Labels of every series: those that Prometheus adds, and the group."""


def promtool(*arguments: str) -> str:
    """What promtool says of what it finds nothing wrong with."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is missing: install the package prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every metric of an expression with the label values that it asks for."""
    for name, asked in re.findall(r"(keyshared_\w+)(?:\{([^}]*)\})?", expression):
        values = re.findall(r'(\w+)(?:=~?|!=)"([^"]*)"', asked)
        yield name, [(label, value) for label, found in values for value in found.split("|")]


def family_of(name: str) -> MetricFamily | None:
    """The metric that a series is of; None for one that no instance serves."""
    for ending in OF_A_HISTOGRAM:
        family = BY_NAME.get(name.removesuffix(ending))
        if name.endswith(ending) and family is not None:
            return family if family.kind == "histogram" else None
    family = BY_NAME.get(name)
    return None if family is not None and family.kind == "histogram" else family


def strangers(expression: str) -> list[str]:
    """What of an expression no instance serves."""
    found: list[str] = []
    labels = {*TARGET_LABELS}
    for name, asked in selectors(expression):
        family = family_of(name)
        if family is None:
            found.append(name)
            continue
        labels |= {*family.labels} | ({"le"} if name.endswith("_bucket") else set())
        found += [
            f"{name}{{{label}={value}}}"
            for label, value in asked
            if value not in ENUMERATED.get((family.name, label), ())
        ]
    found += [f"by {each}" for each in grouped(expression) if each not in labels]
    return found


def grouped(expression: str) -> Iterable[str]:
    """The labels that an expression groups by or matches on."""
    groups = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
    return [each for group in groups for each in group.split(", ")]
