"""The chart renders what Kubernetes takes, under the names and labels that charts have."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import ValidationError

from kafka_keyshared import __version__
from tests.helm.chart import (
    CASES,
    CHART,
    NEWEST,
    case,
    changed,
    container,
    helm,
    minimal,
    one,
    pod,
    render,
)

# The part of the operator's definition that the chart uses; the validator knows no custom kinds.
RELABELINGS = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "sourceLabels": {"type": "array", "items": {"type": "string"}},
            "targetLabel": {"type": "string"},
            "regex": {"type": "string"},
            "action": {"enum": ["replace", "keep", "drop"]},
        },
    },
}
POD_MONITOR = {
    "type": "object",
    "additionalProperties": False,
    "required": ["selector", "podMetricsEndpoints"],
    "properties": {
        "selector": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"matchLabels": {"additionalProperties": {"type": "string"}}},
        },
        "podMetricsEndpoints": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "port": {"type": "string"},
                    "path": {"type": "string"},
                    "interval": {"pattern": "^[0-9]+(ms|s|m|h)$"},
                    "scrapeTimeout": {"pattern": "^[0-9]+(ms|s|m|h)$"},
                    "relabelings": RELABELINGS,
                    "metricRelabelings": RELABELINGS,
                },
            },
        },
    },
}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
RULE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["alert", "expr"],
    "properties": {
        "alert": {"type": "string"},
        "expr": {"type": "string"},
        "for": {"pattern": "^[0-9]+(s|m|h)$"},
        "labels": TEXTS,
        "annotations": TEXTS,
    },
}
PROMETHEUS_RULE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["groups"],
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "rules"],
                "properties": {
                    "name": {"type": "string"},
                    "rules": {"type": "array", "items": RULE, "minItems": 1},
                },
            },
        }
    },
}
OPERATORS = {"PodMonitor": POD_MONITOR, "PrometheusRule": PROMETHEUS_RULE}


def check(made: dict[str, Any], version: str) -> None:
    if (schema := OPERATORS.get(made["kind"])) is not None:
        assert made["apiVersion"] == "monitoring.coreos.com/v1"
        jsonschema.validate(made["spec"], schema)
    else:
        kubernetes_validate.validate(made, version, strict=True)


def test_the_versions_agree_with_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("version", ["1.29", NEWEST])
@pytest.mark.parametrize("name", CASES)
def test_each_case_renders_what_kubernetes_takes(name: str, version: str) -> None:
    objects = render(case(name))
    for made in objects:
        check(made, version)
        assert made["metadata"]["namespace"] == "team"
    kinds = sorted(made["kind"] for made in objects)
    always = ["ConfigMap", "Deployment", "Pod", "ServiceAccount"]
    more = {
        "minimal": [],
        "sasl-tls": ["ConfigMap"],
        "full": ["ConfigMap", "PodDisruptionBudget", "PodMonitor", "PrometheusRule"],
    }
    assert kinds == sorted(always + more[name])


def test_a_packaged_chart_holds_what_helm_needs_and_no_more(tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = {name.removeprefix("kafka-keyshared/") for name in archive.getnames()}
    top = {"Chart.yaml", "values.yaml", "values.schema.json", "alerts.yaml", "dashboard.json"}
    top |= {"README.md", ".helmignore"}
    assert {name for name in names if not name.startswith("templates/")} == top
    assert {f"templates/{path.name}" for path in (CHART / "templates").glob("*.*")} <= names


def test_a_key_that_kubernetes_does_not_know_is_found() -> None:
    made = one(render(minimal()), "Deployment")
    made["spec"]["template"]["spec"]["terminationGracePeriod"] = 40
    with pytest.raises(ValidationError):
        check(made, NEWEST)
    monitor = one(render(case("full")), "PodMonitor")
    monitor["spec"]["podMetricsEndpoints"][0]["intervall"] = "5s"
    with pytest.raises(jsonschema.ValidationError):
        check(monitor, NEWEST)


@pytest.mark.parametrize("values", [{}, *(case(name) for name in CASES)], ids=["none", *CASES])
def test_lint_has_nothing_to_say(values: dict[str, Any]) -> None:
    said = helm("lint", "--strict", str(CHART), "--kube-version", NEWEST, values=values)
    assert "[WARNING]" not in said
    assert "1 chart(s) linted, 0 chart(s) failed" in said


def test_the_selector_finds_the_pods_and_not_the_one_of_helm_test() -> None:
    objects = render(changed(case("full"), podLabels={"app.kubernetes.io/name": "another"}))
    deployment = one(objects, "Deployment")["spec"]
    selector = deployment["selector"]["matchLabels"]
    assert selector.items() <= deployment["template"]["metadata"]["labels"].items()
    assert one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == selector
    assert one(objects, "PodMonitor")["spec"]["selector"]["matchLabels"] == selector
    doctor = one(objects, "Pod")["metadata"]
    assert doctor["annotations"]["helm.sh/hook"] == "test"
    assert not selector.items() <= doctor["labels"].items()
    (spread,) = pod(objects)["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == selector


def test_names_fit_however_long_the_release_is() -> None:
    objects = render(
        changed(case("sasl-tls"), nameOverride="a-name-that-is-quite-long-itself"),
        release="a-release-with-a-name-of-fifty-three-characters-in-it",
    )
    names = [(made["kind"], made["metadata"]["name"]) for made in objects]
    assert all(len(name) <= 63 and not name.endswith("-") for _, name in names)
    assert len(set(names)) == len(names)
    spec = pod(objects)
    mounted = {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    assert mounted == {name for kind, name in names if kind == "ConfigMap"}
    assert spec["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]


@pytest.mark.parametrize(
    ("image", "registry", "wanted"),
    [
        ({"repository": "a/b"}, "", f"a/b:{__version__}"),
        ({"repository": "a/b", "tag": "7"}, "", "a/b:7"),
        ({"registry": "one", "repository": "a/b", "tag": "7"}, "", "one/a/b:7"),
        ({"registry": "one", "repository": "a/b", "tag": "7"}, "two", "two/a/b:7"),
        (
            {"repository": "a/b", "tag": "7", "digest": "sha256:" + "0" * 64},
            "",
            "a/b@sha256:" + "0" * 64,
        ),
    ],
)
def test_the_image_is_put_together(image: dict[str, str], registry: str, wanted: str) -> None:
    objects = render(minimal(image=image, global__imageRegistry=registry))
    assert container(objects)["image"] == wanted
    assert one(objects, "Pod")["spec"]["containers"][0]["image"] == wanted


def test_recreate_has_no_rolling_update_left_over() -> None:
    deployment = one(render(minimal(strategy={"type": "Recreate"})), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_an_account_that_exists_is_used_and_not_made() -> None:
    objects = render(minimal(serviceAccount={"create": False, "name": "there"}))
    assert "ServiceAccount" not in [made["kind"] for made in objects]
    assert pod(objects)["serviceAccountName"] == "there"


def test_the_probes_ask_for_life_and_readiness_and_go_with_the_port() -> None:
    made = container(render(minimal(config__http_port=9100)))
    paths = {name: made[name]["httpGet"]["path"] for name in made if name.endswith("Probe")}
    assert paths == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert all(made[name]["httpGet"]["port"] == made["ports"][0]["name"] for name in paths)
    assert made["ports"][0]["containerPort"] == 9100
    without = container(render(minimal(config__http_port=None)))
    assert not [name for name in without if name.endswith("Probe") or name == "ports"]


def test_notes_warn_of_what_will_be_missed(tmp_path: Path) -> None:
    # helm shows notes to those who have a cluster, so they are made an object here.
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text("utf-8")
    as_object = '{{ define "notes" }}' + text + '{{ end }}\nnotes: {{ include "notes" . | toJson }}'
    (chart / "templates" / "notes.yaml").write_text(as_object, "utf-8")

    def notes(**dotted: Any) -> str:
        only = ("--show-only", "templates/notes.yaml")
        made = helm(
            "template",
            "billing",
            str(chart),
            *only,
            "--kube-version",
            NEWEST,
            values=minimal(**dotted),
        )
        return str(yaml.safe_load(made)["notes"])

    blocked, hanging, memory = "blocks its key", "restarts nothing that hangs", "resources is empty"
    said = notes(config__http_port=None)
    assert "1 × keyshared run app:handle\ngroup billing, topics orders, image" in said
    assert blocked in said
    assert hanging in said
    assert memory in said
    said = notes(config__dlq=True, resources={"limits": {"memory": "1Gi"}})
    assert blocked not in said
    assert hanging not in said
    assert memory not in said
