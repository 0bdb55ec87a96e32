"""The manifests, as far as they can be tested without a cluster."""

import copy
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
import yaml

from forecaster_service.app import create_app
from forecaster_service.settings import Settings
from tests.service.containers import ROOT

FOLDER = ROOT / "service/kubernetes"
FOUND = {file.name: yaml.safe_load(file.read_text()) for file in FOLDER.glob("*.yaml")}
LIST = FOUND.pop("kustomization.yaml")
KINDS = {each["kind"]: each for each in FOUND.values()}
POD = KINDS["Deployment"]["spec"]["template"]
NAME = {"app.kubernetes.io/name": "forecaster"}
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip


def broken(pod: dict[str, Any]) -> list[str]:
    """The rules of the profile "restricted" of the Pod Security Standards that a pod breaks."""
    spec, wrong = pod["spec"], []

    def rule(name: str, holds: bool) -> None:
        if not holds:
            wrong.append(name)

    whole = spec.get("securityContext", {})
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        rule(name, not spec.get(name))
    rule("volumes", all(set(each) - {"name"} <= VOLUMES for each in spec.get("volumes", [])))
    rule("sysctls", not whole.get("sysctls"))
    rule("windows", "windowsOptions" not in whole)
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for each in spec.get(kind, []):
            own = each.get("securityContext", {})
            either = {**whole, **own}
            capabilities = own.get("capabilities", {})
            rule("privileged", not own.get("privileged"))
            rule("escalation", own.get("allowPrivilegeEscalation") is False)
            rule("root", either.get("runAsNonRoot") is True)
            rule("user 0", either.get("runAsUser") != 0)
            seccomp = either.get("seccompProfile", {}).get("type")
            rule("seccomp", seccomp in ("RuntimeDefault", "Localhost"))
            rule("capabilities dropped", "ALL" in capabilities.get("drop", []))
            rule("capabilities", set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"})
            rule("proc", own.get("procMount", "Default") == "Default")
            rule("host ports", not any(port.get("hostPort") for port in each.get("ports", [])))
            rule("SELinux", "seLinuxOptions" not in either)
            rule("AppArmor", "appArmorProfile" not in either)
    return wrong


@pytest.mark.parametrize("file", sorted(FOUND))
def test_each_follows_its_schema(file: str) -> None:
    latest = kubernetes_validate.latest_version()
    kubernetes_validate.validate(FOUND[file], latest, strict=True)
    wrong = {**copy.deepcopy(FOUND[file]), "unheard": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, latest, strict=True)


def test_the_list_names_them_all() -> None:
    assert set(LIST) == {"apiVersion", "kind", "namespace", "resources", "images"}
    assert sorted(LIST["resources"]) == sorted(FOUND)
    assert LIST["namespace"] == KINDS["Namespace"]["metadata"]["name"]
    (image,) = LIST["images"]
    assert [image["name"]] == [each["image"] for each in POD["spec"]["containers"]]


def test_every_pod_is_restricted() -> None:
    assert broken(POD) == []
    labels = KINDS["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = pod["spec"]["containers"][0]["securityContext"]
    return own


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        (lambda pod: pod["spec"].update(hostNetwork=True), ["hostNetwork"]),
        (lambda pod: pod["spec"].pop("securityContext"), ["root", "seccomp"]),
        (lambda pod: _container(pod).pop("capabilities"), ["capabilities dropped"]),
        (lambda pod: _container(pod).pop("allowPrivilegeEscalation"), ["escalation"]),
        (lambda pod: _container(pod).update(runAsUser=0), ["user 0"]),
        (lambda pod: pod["spec"]["volumes"].append({"name": "x", "hostPath": {}}), ["volumes"]),
    ],
)
def test_the_rules_can_be_broken(spoil: Callable[[Any], object], rules: list[str]) -> None:
    pod = copy.deepcopy(POD)
    spoil(pod)
    assert broken(pod) == rules


def test_they_find_each_other() -> None:
    assert POD["metadata"]["labels"] == NAME
    assert KINDS["Deployment"]["spec"]["selector"]["matchLabels"] == NAME
    assert KINDS["Service"]["spec"]["selector"] == NAME
    assert KINDS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == NAME
    assert KINDS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == NAME
    (container,) = POD["spec"]["containers"]
    (port,) = container["ports"]
    assert KINDS["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert KINDS["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [{"port": port["name"]}]
    (keys,) = {each["configMapRef"]["name"] for each in container["envFrom"][:1]}
    assert keys == KINDS["ConfigMap"]["metadata"]["name"]
    minimum = KINDS["PodDisruptionBudget"]["spec"]["minAvailable"]
    assert KINDS["Deployment"]["spec"]["replicas"] > minimum


def test_they_ask_what_the_service_answers() -> None:
    (container,) = POD["spec"]["containers"]
    paths = create_app(Settings()).openapi()["paths"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[name]["httpGet"]
        assert get["path"] in paths
        assert get["port"] == container["ports"][0]["name"]
        # the service does not answer to a pod's address
        assert get["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_the_settings_are_the_services() -> None:
    (container,) = POD["spec"]["containers"]
    own = {each["name"]: each["value"] for each in container["env"]}
    given = {**KINDS["ConfigMap"]["data"], **own}
    for name in given:
        if name.startswith("FORECASTER_"):
            assert name.removeprefix("FORECASTER_").lower() in Settings.model_fields
    assert given["FORECASTER_TRUSTED_PROXIES"] == "10.0.0.0/8"  # else all its clients are one
    hosts = given["FORECASTER_ALLOWED_HOSTS"].split(",")
    settings = Settings(allowed_hosts=hosts, drain_seconds=own["FORECASTER_DRAIN_SECONDS"])
    assert settings.allowed_hosts == tuple(hosts)
    assert POD["spec"]["terminationGracePeriodSeconds"] > settings.drain_seconds + 60
    assert container["args"][:2] == ["forecaster", "serve"]
