"""The schema knows every value of the chart and every setting of the package, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from kafka_keyshared.config import FileConfig, RetryOptions
from kafka_keyshared.config.renamed_settings import RENAMED
from tests.helm.chart import (
    CASES,
    CHART,
    DEFAULTS,
    NEWEST,
    RefusedError,
    Values,
    case,
    changed,
    merged,
    minimal,
    render,
)
from tests.helm.generate import described

UNKNOWN = "unknownKey"
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))


def objects(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all objects in these values, from the top."""
    if isinstance(value, dict):
        yield path
        for name, inner in value.items():
            yield from objects(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, (*path, index))


def is_open(path: tuple[str | int, ...]) -> bool:
    # A parent chart shares with all its charts what it likes; a volume is of one of thirty kinds,
    # and the terms of an affinity nest. Of the last two Kubernetes knows more than a schema here.
    terms = any(str(part).endswith("IgnoredDuringExecution") for part in path)
    return path[:1] in (("global",), ("extraVolumes",)) or terms


def with_typo(values: Values, path: tuple[str | int, ...]) -> Values:
    # An object and no text, because a map of labels takes any name, but only texts.
    made = json.loads(json.dumps(values))
    place = made
    for part in path:
        place = place[part]
    place[UNKNOWN] = {"a": {"b": 1}}
    return dict(made)


def complaints(values: Values) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(merged(DEFAULTS, values))]


PLACES = sorted(
    {
        (name, path)
        for name in (*CASES, "defaults")
        for path in objects(DEFAULTS if name == "defaults" else case(name))
        if not is_open(path)
    },
    key=str,
)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert [complaints(case(name)) for name in CASES] == [[]] * len(CASES)


@pytest.mark.parametrize(
    ("name", "path"), PLACES, ids=[f"{n}-{'.'.join(map(str, p))}" for n, p in PLACES]
)
def test_a_typo_is_refused_at_every_level(name: str, path: tuple[str | int, ...]) -> None:
    values = DEFAULTS if name == "defaults" else case(name)
    assert complaints(with_typo(values, path)), f"nobody minds a typo at {path}"


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("image",),
        ("config",),
        ("config", "retry"),
        ("probes", "startup"),
        ("existingSecrets", 0),
        ("extraEnv", 1, "valueFrom", "secretKeyRef"),
        ("podMonitor", "relabelings", 0),
    ],
    ids=str,
)
def test_helm_itself_refuses_a_typo(path: tuple[str | int, ...]) -> None:
    with pytest.raises(RefusedError, match=UNKNOWN):
        render(with_typo(case("full"), path))


def test_what_a_parent_chart_shares_is_let_through() -> None:
    assert render(minimal(**{"global": {"anything": {"at": "all"}}}))


def test_every_object_of_the_schema_is_closed() -> None:
    def walk(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, dict):
            if schema.get("type") == "object" and not (
                schema.get("additionalProperties") is False
                or isinstance(schema.get("additionalProperties"), dict)
            ):
                yield path
            for name, inner in schema.items():
                yield from walk(inner, f"{path}/{name}")
        elif isinstance(schema, list):
            for index, inner in enumerate(schema):
                yield from walk(inner, f"{path}/{index}")

    assert list(walk(SCHEMA, "")) == ["/properties/global", "/properties/extraVolumes/items"]


def test_every_setting_of_the_package_may_stand_under_config_and_nothing_else() -> None:
    config = SCHEMA["properties"]["config"]
    assert config["properties"].keys() - RENAMED.keys() == set(FileConfig.__struct_fields__)
    assert config["additionalProperties"] is False
    retry = config["properties"]["retry"]
    while "$ref" not in retry:
        (retry,) = retry["allOf"] if "allOf" in retry else retry["anyOf"]
    retry = SCHEMA["$defs"][retry["$ref"].removeprefix("#/$defs/")]
    assert retry["properties"].keys() == set(RetryOptions.__struct_fields__)
    assert retry["additionalProperties"] is False


KUBERNETES = {
    "podSecurityContext": "PodSecurityContext",
    "securityContext": "SecurityContext",
    "resources": "ResourceRequirements",
    "tolerations": "Toleration",
    "affinity": "Affinity",
    "topologySpreadConstraints": "TopologySpreadConstraint",
    "extraEnv": "EnvVar",
    "extraVolumeMounts": "VolumeMount",
    "imagePullSecrets": "LocalObjectReference",
    "strategy": "DeploymentStrategy",
}


def test_what_is_passed_on_is_called_as_kubernetes_calls_it() -> None:
    path = f"kubernetes-json-schema/v{NEWEST}.0-local-strict/_definitions.json"
    known = json.loads(files("kubernetes_validate").joinpath(path).read_text("utf-8"))
    known = {name.rpartition(".")[2]: part for name, part in known["$defs"].items()}

    def compare(ours: Any, theirs: Any, where: str) -> Iterator[str]:
        while "$ref" in ours:
            ours = SCHEMA["$defs"][ours["$ref"].removeprefix("#/$defs/")]
        while "$ref" in theirs:
            theirs = known[theirs["$ref"].rpartition(".")[2]]
        if "items" in ours:
            yield from compare(ours["items"], theirs["items"], f"{where}[]")
        for name, part in ours.get("properties", {}).items():
            if name not in theirs.get("properties", {}):
                yield f"{where}.{name}"
            else:
                yield from compare(part, theirs["properties"][name], f"{where}.{name}")
        for name in ours.get("required", []):
            if name not in theirs.get("required", []) and name != "name":
                yield f"{where} need not have {name}"

    for name, kind in KUBERNETES.items():
        ours = SCHEMA["properties"][name]
        theirs = {"items": known[kind]} if "items" in ours else known[kind]
        assert list(compare(ours, theirs, name)) == []
    assert list(compare(SCHEMA["$defs"]["probe"], known["Probe"], "probes")) == []
    misspelt: Values = {"properties": {"runAsUsr": {}}}
    assert list(compare(misspelt, known["PodSecurityContext"], "")) == [".runAsUsr"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"config__on_exhausted": "deadletter"},
        {"config__order_scope": "key"},
        {"config__on_stuck": "restart"},
        {"config__topics": "orders"},
        {"config__http_port": 0},
        {"config__http_port": 65_536},
        {"config__workers": True},
        {"config__window_records": 0.5},
        {"config__partition_metrics": "no"},
        {"config__retry": {"attempts": "3"}},
        {"config__kafka": {"Auto Offset": "earliest"}},
        {"config__kafka": {"auto.offset.reset": ["earliest"]}},
        # As TOML it would be sasl.password, which the rule about secrets would not see.
        {"config__kafka": {"sasl": {"password": "hunter2"}}},
        {"replicaCount": 0},
        {"replicaCount": 1.5},
        {"replicaCount": "2"},
        {"handler": "app"},
        {"handler": "app:handle now"},
        {"app__dir": "relative"},
        {"app__files": {"../app.py": ""}},
        {"image__pullPolicy": "Sometimes"},
        {"image__digest": "sha256:short"},
        {"strategy__type": "BlueGreen"},
        {"terminationGracePeriodSeconds": 40.5},
        {"existingSecrets": [{"env": {}}]},
        {"existingSecrets": [{"name": "user", "env": {"SASL_PASSWORD": "password"}}]},
        {"existingSecrets": [{"name": "user", "files": {"ssl.ca.location": "../ca"}}]},
        {"extraEnv": [{"name": "A", "value": 1}]},
        {"extraEnv": [{"name": "A-B", "value": "1"}]},
        {"podLabels": {"a": 1}},
        {"podMonitor__interval": "often"},
        {"podDisruptionBudget__maxUnavailable": "half"},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    assert complaints(changed(case("minimal"), **wrong)) != []


def test_helm_and_the_tests_read_the_schema_alike() -> None:
    for wrong in (
        {"replicaCount": 0},
        {"config__workers": True},
        {"image__digest": "sha256:short"},
    ):
        with pytest.raises(RefusedError, match="don't meet the specifications of the schema"):
            render(minimal(**wrong))


def test_every_value_is_described() -> None:
    told = {key: comment for key, _, comment in described((CHART / "values.yaml").read_text())}
    assert set(leaves(DEFAULTS)) == told.keys()
    assert [key for key, comment in told.items() if not comment] == []


def leaves(value: Any, path: str = "") -> Iterator[str]:
    for name, inner in value.items():
        yield f"{path}{name}"
        if isinstance(inner, dict):
            yield from leaves(inner, f"{path}{name}.")
