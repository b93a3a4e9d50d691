"""Writes helm/kafka-keyshared/dashboard.json, for Grafana, from ``dashboard.yaml`` beside this.

``python tests/setup/dashboard.py``. ``tests/web/test_dashboard.py`` says when the file is stale,
and holds every query against the metrics that the package serves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TOLD = Path(__file__).with_name("dashboard.yaml")
FILE = Path(__file__).parents[2] / "helm" / "kafka-keyshared" / "dashboard.json"

SELECTED = 'namespace=~"$namespace",job=~"$job",group=~"$group",instance=~"$instance"'
"""What the variables at the top choose; without Kubernetes there is no namespace: .* takes that."""

INTERVAL = "$__rate_interval"

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4


@dataclass(frozen=True)
class Panel:
    """One panel: pairs of a query and what its lines are called.

    ``bad_from`` is the value from which a stat is red; without it none is.
    """

    title: str
    says: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    bad_from: float | None = None
    width: int = 8


def read() -> dict[str, list[Panel]]:
    """The rows and panels that the file of declarations tells of."""
    told: dict[str, list[dict[str, Any]]] = yaml.safe_load(TOLD.read_text("utf-8"))
    return {row: [_panel(**each) for each in panels] for row, panels in told.items()}


def _panel(
    *,
    title: str,
    says: str,
    unit: str,
    stat: str | None = None,
    quantiles: str | None = None,
    lines: Mapping[str, str] = {},
    bad_from: float | None = None,
) -> Panel:
    if stat is not None:
        return Panel(title, says, unit, [(stat, "")], "stat", bad_from, 4)
    if quantiles is not None:
        rate = f"sum by (le) (rate({quantiles}_bucket[RATE]))"
        lines = {f"p{each}": f"histogram_quantile(0.{each}, {rate})" for each in (50, 95, 99)}
    return Panel(title, says, unit, [(query, name) for name, query in lines.items()])


def selected(query: str) -> str:
    """A query that asks for the chosen instances alone."""

    def put_in(found: re.Match[str]) -> str:
        asked = f",{found[2]}" if found[2] else ""
        return f"{found[1]}{{{SELECTED}{asked}}}"

    return re.sub(r"(keyshared_\w+)(?:\{([^}]*)\})?", put_in, query).replace("RATE", INTERVAL)


def panel(number: int, told: Panel, at: tuple[int, int]) -> dict[str, Any]:
    """A panel as Grafana has it."""
    is_stat = told.kind == "stat"
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if told.bad_from is not None:
        steps.append({"color": "red", "value": told.bad_from})
    size = {"h": STAT_HEIGHT if is_stat else HEIGHT, "w": told.width}
    options: dict[str, Any] = (
        {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
        if is_stat
        else {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    )
    return {
        "id": number,
        "type": told.kind,
        "title": told.title,
        "description": told.says,
        "datasource": SOURCE,
        "gridPos": {**size, "x": at[0], "y": at[1]},
        "fieldConfig": {
            "defaults": {
                "unit": told.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                **({} if is_stat else {"custom": {"fillOpacity": 10, "showPoints": "never"}}),
            },
            "overrides": [],
        },
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": selected(query),
                "legendFormat": legend or "__auto",
            }
            for index, (query, legend) in enumerate(told.queries)
        ],
    }


def panels() -> list[dict[str, Any]]:
    """All rows and panels, from left to right and from the top down."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in read().items():
        size = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        number = len(made) + 1
        made.append(
            {
                "id": number,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": size,
                "panels": [],
            }
        )
        y, x = y + 1, 0
        for told in row:
            if x + told.width > WIDTH:
                x, y = 0, y + made[-1]["gridPos"]["h"]
            made.append(panel(len(made) + 1, told, (x, y)))
            x += told.width
        y += made[-1]["gridPos"]["h"]
    return made


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A choice at the top, from what there is; all of it unless somebody chooses."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    started = "keyshared_start_time_seconds"
    of_job = f'{started}{{namespace=~"$namespace",job=~"$job"}}'
    of_group = f'{started}{{namespace=~"$namespace",job=~"$job",group=~"$group"}}'
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    return {
        "uid": "kafka-keyshared",
        "title": "kafka-keyshared",
        "description": "Key-ordered consumers: is anything wrong, and where.",
        "tags": ["kafka", "kafka-keyshared"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {
            "list": [
                source,
                variable("namespace", "Namespace", f"label_values({started}, namespace)"),
                variable("job", "App", f'label_values({started}{{namespace=~"$namespace"}}, job)'),
                variable("group", "Group", f"label_values({of_job}, group)"),
                variable("instance", "Instance", f"label_values({of_group}, instance)"),
            ]
        },
        "annotations": {"list": []},
        "panels": panels(),
    }


def written() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
