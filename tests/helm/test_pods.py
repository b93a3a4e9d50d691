"""What a pod may do, what it is given, and when it is made anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.chart import CASES, Values, case, changed, container, minimal, one, pod, render
from tests.helm.standards import violations

SECRETS = "/etc/keyshared/secrets"


def specs(objects: list[Values]) -> list[Values]:
    """The specs of the Deployment's pods and of the one of ``helm test``."""
    return [pod(objects), one(objects, "Pod")["spec"]]


@pytest.mark.parametrize("name", CASES)
def test_pods_are_restricted_and_more(name: str) -> None:
    for spec in specs(render(case(name))):
        assert list(violations(spec)) == []
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsUser"] > 0
        for each in spec["containers"]:
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            # Python wants a directory for its temporary files.
            assert {"name": "tmp", "mountPath": "/tmp"} in each["volumeMounts"]


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("securityContext.runAsNonRoot", False, "runAsNonRoot of keyshared"),
        ("securityContext.runAsNonRoot", None, "runAsNonRoot of keyshared"),
        ("securityContext.runAsUser", 0, "runAsUser of the pod"),
        ("securityContext.seccompProfile", None, "seccompProfile of keyshared"),
        ("securityContext.seccompProfile.type", "Unconfined", "seccompProfile of the pod"),
        ("securityContext.sysctls", [{"name": "kernel.msgmax"}], "sysctls: kernel.msgmax"),
        ("securityContext.seLinuxOptions", {"type": "spc_t"}, "seLinuxOptions of the pod"),
        ("containers.0.securityContext", None, "allowPrivilegeEscalation of keyshared"),
        ("containers.0.securityContext.runAsUser", 0, "runAsUser of keyshared"),
        ("containers.0.securityContext.runAsNonRoot", False, "runAsNonRoot of keyshared"),
        *(
            ("containers.0.securityContext.allowPrivilegeEscalation", value, "allowPrivilege")
            for value in (None, True)
        ),
        ("containers.0.securityContext.privileged", True, "privileged of keyshared"),
        ("containers.0.securityContext.procMount", "Unmasked", "procMount of keyshared"),
        ("containers.0.securityContext.capabilities", None, "capabilities.drop of keyshared"),
        ("containers.0.securityContext.capabilities.drop", ["NET_RAW"], "capabilities.drop of"),
        ("containers.0.securityContext.capabilities.add", ["SYS_PTRACE"], "capabilities.add of"),
        ("containers.0.ports.0.hostPort", 8787, "hostPort of keyshared"),
        ("volumes.0.hostPath", {"path": "/"}, "volumes: config"),
    ],
)
def test_the_check_finds_each_field_that_is_loosened(field: str, value: Any, found: str) -> None:
    spec = pod(render(minimal()))
    *above, last = field.split(".")
    place: Any = spec
    for name in above:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    if value is None:
        del place[last]
    loosened = list(violations(spec))
    assert [each for each in loosened if found in each], loosened


@pytest.mark.parametrize("name", ["hostNetwork", "hostPID", "hostIPC"])
def test_the_check_finds_the_node_shared(name: str) -> None:
    assert list(violations({**pod(render(minimal())), name: True})) == [name]


def test_no_service_of_the_namespace_writes_into_the_environment() -> None:
    # A Service called keyshared would become KEYSHARED_PORT, KEYSHARED_SERVICE_HOST and more.
    for spec in specs(render(minimal())):
        assert spec["enableServiceLinks"] is False


def test_the_package_is_not_the_first_process_which_would_not_hear_an_early_sigterm() -> None:
    for spec in specs(render(minimal())):
        assert spec["shareProcessNamespace"] is True
    assert pod(render(minimal(shareProcessNamespace=False)))["shareProcessNamespace"] is False


def test_secrets_come_as_references_and_as_files() -> None:
    objects = render(case("sasl-tls"))
    for spec in specs(objects):
        (made,) = spec["containers"]
        references = {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in made["env"]
            if "valueFrom" in each
        }
        assert references == {
            "KEYSHARED_KAFKA_SASL_USERNAME": {"name": "billing-user", "key": "username"},
            "KEYSHARED_KAFKA_SASL_PASSWORD": {"name": "billing-user", "key": "password"},
            "KEYSHARED_KAFKA_SSL_KEY_PASSWORD": {
                "name": "billing-certificate",
                "key": "key-password",
            },
        }
        volumes = {each["name"]: each["secret"] for each in spec["volumes"] if "secret" in each}
        mounted = {
            f"{mount['mountPath']}/{item['path']}": (secret["secretName"], item["key"])
            for mount in made["volumeMounts"]
            for secret in [volumes.get(mount["name"], {"items": []})]
            for item in secret["items"]
        }
        assert mounted == {
            f"{SECRETS}/kafka-cluster-ca/ca.crt": ("kafka-cluster-ca", "ca.crt"),
            f"{SECRETS}/billing-certificate/tls.crt": ("billing-certificate", "tls.crt"),
            f"{SECRETS}/billing-certificate/tls.key": ("billing-certificate", "tls.key"),
        }
        # The group of mounted files may read them, and nobody else.
        assert {secret["defaultMode"] for secret in volumes.values()} == {0o440}
        assert spec["securityContext"]["fsGroup"] == 10001


def test_one_file_of_a_secret_may_serve_two_settings() -> None:
    files = {"ssl.ca.location": "both.pem", "https.ca.location": "both.pem"}
    spec = pod(render(minimal(existingSecrets=[{"name": "ca", "files": files}])))
    (volume,) = [each for each in spec["volumes"] if "secret" in each]
    assert volume["secret"]["items"] == [{"key": "both.pem", "path": "both.pem"}]


def test_a_handler_given_in_the_values_is_mounted_and_run_from_there() -> None:
    objects = render(case("sasl-tls"))
    assert "def handle(record):" in one(objects, "ConfigMap", "-app")["data"]["app.py"]
    made = container(objects)
    (mount,) = [each for each in made["volumeMounts"] if each["name"] == "app"]
    assert made["args"][-2:] == ["--app-dir", mount["mountPath"]]
    assert made["workingDir"] == mount["mountPath"]
    in_image = container(render(case("full")))
    assert in_image["args"][-2:] == ["--app-dir", "/srv/billing"]
    assert in_image["workingDir"] == "/srv/billing"


def checksum(values: Values, **more: Any) -> str:
    template = one(render(values, **more), "Deployment")["spec"]["template"]
    found: str = template["metadata"]["annotations"]["checksum/config"]
    return found


def test_the_checksum_follows_what_pods_read_at_their_start_and_nothing_else() -> None:
    before = checksum(minimal())
    for change in (
        {"config__workers": 32},
        {"config__kafka": {"client.id": "a"}},
        {"config__retry": {"attempts": 3}},
        {"existingSecrets": [{"name": "ca", "files": {"ssl.ca.location": "ca.crt"}}]},
        {"app__files": {"app.py": "handle = print"}},
    ):
        assert checksum(minimal(**change)) != before, change
    assert checksum(minimal(app__files={"app.py": "handle = repr"})) != checksum(
        minimal(app__files={"app.py": "handle = print"})
    )
    for harmless in (
        {"replicaCount": 3},
        {"image__tag": "8"},
        {"podLabels": {"team": "billing"}},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"podMonitor__enabled": True},
    ):
        assert checksum(minimal(**harmless)) == before, harmless
    assert checksum(minimal(), release="another") == before


def test_what_is_only_counted_makes_no_new_pods() -> None:
    before = one(render(minimal()), "Deployment")["spec"]["template"]
    after = one(render(minimal(replicaCount=5, podMonitor__enabled=True)), "Deployment")
    assert after["spec"]["template"] == before


def test_what_users_add_comes_through() -> None:
    objects = render(case("full"))
    spec, made = pod(objects), container(objects)
    values = case("full")
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert spec[name] == values[name]
    assert spec["imagePullSecrets"] == values["imagePullSecrets"]
    assert made["resources"] == values["resources"]
    assert made["env"][-3:] == values["extraEnv"]
    assert values["extraVolumes"][0] in spec["volumes"]
    assert values["extraVolumeMounts"][0] in made["volumeMounts"]
    assert made["livenessProbe"]["periodSeconds"] == 20
    assert made["livenessProbe"]["failureThreshold"] == 3
    template = one(objects, "Deployment")["spec"]["template"]["metadata"]
    assert template["labels"]["team"] == template["annotations"]["team"] == "billing"
    account = one(objects, "ServiceAccount")["metadata"]["annotations"]
    assert account == values["serviceAccount"]["annotations"]
    monitor = one(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == (made["ports"][0]["name"], "/metrics")


def test_a_label_of_the_user_cannot_take_the_place_of_the_selectors() -> None:
    labels = {"app.kubernetes.io/instance": "another", "team": "billing"}
    made = one(render(changed(case("minimal"), podLabels=labels)), "Deployment")
    found = made["spec"]["template"]["metadata"]["labels"]
    assert found["app.kubernetes.io/instance"] == "billing"
    assert found["team"] == "billing"
