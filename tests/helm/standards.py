"""Kubernetes' Pod Security Standard "restricted", which includes "baseline", as a check of a pod.

Written from the published standard, control by control; those about Windows aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP = {"RuntimeDefault", "Localhost"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SELINUX_TYPES = {
    None,
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
}


def violations(spec: dict[str, Any]) -> Iterator[str]:
    """What of a pod's spec the standard forbids."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes", []):
        if not volume.keys() - {"name"} <= VOLUMES:
            yield f"volumes: {volume['name']}"
    pod = spec.get("securityContext", {})
    for sysctl in pod.get("sysctls", []):
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctls: {sysctl['name']}"
    yield from _either(pod, "the pod")
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind, []):
            yield from _container(container, pod)


def _either(context: dict[str, Any], where: str) -> Iterator[str]:
    """What is forbidden in the context of a pod and of a container alike."""
    if context.get("runAsUser") == 0:
        yield f"runAsUser of {where}"
    if context.get("seccompProfile", {}).get("type", "RuntimeDefault") not in SECCOMP:
        yield f"seccompProfile of {where}"
    if context.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in SECCOMP:
        yield f"appArmorProfile of {where}"
    selinux = context.get("seLinuxOptions", {})
    if selinux.get("type") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"seLinuxOptions of {where}"


def _container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    where, own = container["name"], container.get("securityContext", {})
    yield from _either(own, where)
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"runAsNonRoot of {where}"
    if "seccompProfile" not in own and "seccompProfile" not in pod:
        yield f"seccompProfile of {where}"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"allowPrivilegeEscalation of {where}"
    if own.get("privileged"):
        yield f"privileged of {where}"
    if own.get("procMount", "Default") != "Default":
        yield f"procMount of {where}"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"capabilities.drop of {where}"
    if not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield f"capabilities.add of {where}"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield f"hostPort of {where}"
