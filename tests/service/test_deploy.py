"""The files by which the service is deployed, as far as they can be tested without containers or a
cluster: compose, images, the release, Kubernetes, Prometheus and Grafana. tests/containers/run
builds the images and starts them."""

import json
import os
import re
import subprocess
from functools import reduce

import kubernetes_validate
import pytest
import yaml
from packaging.utils import canonicalize_name

from forecaster.config.run_config import load
from forecaster_service.app import create_app
from forecaster_service.settings import Settings
from tests.service.containers import ROOT
from tests.test_house import PINS, closure

BASE, GPU, TLS = (f"docker-compose{each}.yml" for each in ("", ".gpu", ".tls"))
DOCKERFILE = (ROOT / "service/Dockerfile").read_text()


def loaded(file):
    return yaml.safe_load((ROOT / file).read_text())


def merged(one, other):
    """Two files, or parts of them, merged as compose merges them."""
    if isinstance(one, dict):
        return {**one, **{k: merged(one[k], v) if k in one else v for k, v in other.items()}}
    return one + other if isinstance(one, list) else other


SERVICES = loaded(BASE)["services"]


class TestCompose:
    @pytest.mark.parametrize("files", [(BASE,), (GPU,), (BASE, GPU), (BASE, TLS)], ids=" and ".join)
    def test_the_files_follow_the_specification(self, files, tmp_path):
        (tmp_path / "compose.yml").write_text(yaml.safe_dump(reduce(merged, map(loaded, files))))
        command = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
        command.append(str(tmp_path / "compose.yml"))
        subprocess.run(command, check=True)

    def test_what_they_name_exists(self):
        everything = reduce(merged, map(loaded, (BASE, GPU, TLS)))
        for service in everything["services"].values():
            assert set(service["networks"]) <= set(everything["networks"])
            assert set(service.get("depends_on", ())) <= set(everything["services"])
            for volume in service.get("volumes", ()):
                source = re.sub(r"\$\{\w+:[-?](.*?)\}", r"\1", volume).split(":")[0]
                if not source.startswith("set it to"):  # it has no default
                    assert source in everything["volumes"] or (ROOT / source).exists()

    def test_every_setting_of_theirs_is_explained(self):
        texts = [(ROOT / file).read_text() for file in (BASE, GPU, TLS)]
        used = set(re.findall(r"\$\{(\w+)", "".join(texts)))
        told = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
        assert used == set(told)
        check_settings(SERVICES["forecaster"]["environment"])

    @pytest.mark.parametrize("file", [BASE, GPU])
    def test_what_training_is_told_is_an_option(self, file, monkeypatch):
        environment = loaded(file)["services"]["train"].get("environment", {})
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        load("default", [], {})

    def test_every_service_has_its_limits_and_no_rights(self):
        for service in SERVICES.values():
            assert {"mem_limit", "cpus", "pids_limit", "logging"} <= set(service)
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert "build" in service or re.fullmatch("([1-9][0-9]*):\\1", service["user"])
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
            for name, value in service.get("environment", {}).items():
                if re.search("PASS|SECRET|TOKEN", name):
                    assert re.fullmatch(r"\$\{\w+:\?set .*\}", value)
                elif "KEY" in name:
                    assert value == f"${{{name}:-}}"

    @pytest.mark.parametrize(("name", "target"), [("train", "train"), ("forecaster", "serve")])
    def test_a_gpu_has_what_is_promised(self, name, target):
        service = merged(loaded(BASE), loaded(GPU))["services"][name]
        (said,) = re.findall(r"(?ms)^- \*\*A GPU\*\*.*?^- ", (ROOT / "docs/operate.md").read_text())
        assert re.sub(r"\$\{\w+_MEMORY:-(\d+)g\}", r"\1 GiB each", service["mem_limit"]) in said
        assert f"{service['pids_limit']} processes" in said
        assert service["build"]["args"]["TORCH_INDEX"] == "${TORCH_CUDA_INDEX:-}"
        assert service["build"]["target"] == target
        usual = re.sub(r"\$\{\w+:-(.*)\}", r"\1", SERVICES[name]["image"])
        assert service["image"] == f"{usual}:cuda", "no image of another torch takes its place"

    def test_who_can_talk_to_whom(self):
        def company(of):
            own = set(SERVICES[of]["networks"])
            return {name for name, each in SERVICES.items() if own & set(each["networks"])}

        assert company("postgres") == {"postgres", "mlflow"}
        assert company("nginx") == {"nginx", "forecaster"}
        assert company("forecaster") == {"forecaster", "nginx", "mlflow"}
        inward = {name for name, each in loaded(BASE)["networks"].items() if each}
        for name, service in SERVICES.items():
            outward = bool(set(service["networks"]) - inward)
            assert outward == ("ports" in service or name == "train")

    def test_they_end_when_they_have_answered_and_training_waits_to_be_asked(self):
        settings, grace = Settings(), int(SERVICES["forecaster"]["stop_grace_period"].strip("s"))
        assert grace > settings.drain_seconds + 60 > settings.deadline_seconds
        assert SERVICES["nginx"]["stop_signal"] == "SIGQUIT"
        assert [n for n, each in SERVICES.items() if each.get("profiles")] == ["train"]


def check_settings(variables):
    """Check that variables of a container that look like settings of the service are."""
    for name in variables:
        if name.startswith("FORECASTER_"):
            assert name.removeprefix("FORECASTER_").lower() in Settings.model_fields


EXTRAS = {
    "serve": {"serve", "registry", "excel"},
    "train": {"all", "excel", "postgresql", "sample"},
}


def locked(name):
    """The version of each package of a file that has its hash."""
    text = (ROOT / f"service/lock/{name}.txt").read_text()
    pins = re.findall(r"(?m)^([^\s=]+)==(\S+) \\\n +--hash=sha256:", text)
    return {canonicalize_name(package): version for package, version in pins}


class TestImages:
    @pytest.mark.parametrize("name", [*EXTRAS, "build"])
    def test_the_locks_hold_what_is_wanted_with_its_constraints(self, name):
        found = locked(name)
        assert found.pop("setuptools", True)
        assert found.items() <= PINS.items()
        assert (ROOT / "service/lock/torch.txt").read_text() == f"torch=={PINS['torch']}\n"
        if name != "build":
            of_torch = r"nvidia-|cuda-|triton$"  # of its builds for CUDA
            wanted = {each for each in closure(*EXTRAS[name]) if not re.match(of_torch, each)}
            assert set(found) == wanted - {"torch", "setuptools"}
            making = (ROOT / "service/lock/make").read_text()
            (line,) = re.findall(rf"(?m)^compile (.*) pyproject.toml .*/{name}\.txt$", making)
            assert set(line.replace("--extra", "").split()) == EXTRAS[name]

    def test_what_is_copied_exists_and_is_not_ignored(self):
        lines = re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)
        copied = {name for line in lines for name in line.split()}
        ignore = (ROOT / ".dockerignore").read_text().split()
        assert {f"!{name}" for name in copied} == {line for line in ignore if line.startswith("!")}
        assert all((ROOT / name).exists() for name in copied)

    def test_the_release_pins_every_image_of_compose(self, tmp_path):
        """It was never run: its scripts are bash, and this one runs with a stand-in for docker."""
        release = ROOT / ".github/workflows/release.yml"
        assert not re.search(r"sha256:[0-9a-f]{8}", release.read_text() + DOCKERFILE)
        steps = loaded(release)["jobs"]["images"]["steps"]
        for script in [step["run"] for step in steps if "run" in step]:
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        (script,) = [step["run"] for step in steps if step.get("name", "").startswith("pin")]
        (tmp_path / "docker").write_text("#!/bin/sh\necho sha256:a-digest\n")
        (tmp_path / "docker").chmod(0o755)
        compose = (ROOT / BASE).read_text()
        (tmp_path / BASE).write_text(compose)
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(["bash", "-c", script], cwd=tmp_path, env={"PATH": path}, check=True)
        images = dict(re.findall(r"\$\{(\w+_IMAGE):-(\S+?)\}", compose))
        assert images["PYTHON_IMAGE"] in DOCKERFILE
        pinned = (tmp_path / "images.env").read_text().splitlines()
        others = {name: image for name, image in images.items() if "forecaster" not in image}
        assert pinned == [f"{name}={image}@sha256:a-digest" for name, image in others.items()]

    def test_who_runs_it_is_a_number_and_all_is_checked(self):
        assert re.findall("(?m)^USER (.*)$", DOCKERFILE) == ["10001:10001"] * len(EXTRAS)
        for each in re.findall("(?m)pip install (.*)$", DOCKERFILE):
            assert "--require-hashes" in each or "torch.txt" in each or "/wheel/" in each
        assert "--extra-index-url" not in DOCKERFILE


FILES = {file.name: loaded(file) for file in (ROOT / "service/kubernetes").glob("*.yaml")}
LIST = FILES.pop("kustomization.yaml")
KINDS = {each["kind"]: each for each in FILES.values()}
POD = KINDS["Deployment"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]


class TestKubernetes:
    def test_each_follows_its_schema_and_the_list_names_them_all(self):
        for file in FILES.values():
            kubernetes_validate.validate(file, kubernetes_validate.latest_version(), strict=True)
        assert sorted(LIST["resources"]) == sorted(FILES)
        assert LIST["namespace"] == KINDS["Namespace"]["metadata"]["name"]
        assert [each["name"] for each in LIST["images"]] == [CONTAINER["image"]]

    def test_the_pod_is_restricted(self):
        """What the profile "restricted" of the Pod Security Standards wants, and no more rights."""
        labels = KINDS["Namespace"]["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        spec = POD["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        own = CONTAINER["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert not {"privileged", "runAsUser", "procMount"} & set(own)
        kinds = {key for each in spec["volumes"] for key in each} - {"name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}

    def test_they_find_each_other(self):
        name = {"app.kubernetes.io/name": "forecaster"}
        specs = {kind: each.get("spec") for kind, each in KINDS.items()}
        assert POD["metadata"]["labels"] == specs["Service"]["selector"] == name
        for kind in ("Deployment", "PodDisruptionBudget"):
            assert specs[kind]["selector"]["matchLabels"] == name
        assert specs["NetworkPolicy"]["podSelector"]["matchLabels"] == name
        (port,) = CONTAINER["ports"]
        assert specs["Service"]["ports"][0]["targetPort"] == port["name"]
        assert specs["NetworkPolicy"]["ingress"][0]["ports"] == [{"port": port["name"]}]
        assert specs["Deployment"]["replicas"] > specs["PodDisruptionBudget"]["minAvailable"]

    def test_they_ask_what_the_service_answers_in_its_words(self):
        paths = create_app(Settings()).openapi()["paths"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = CONTAINER[name]["httpGet"]
            assert get["path"] in paths
            # the service does not answer to a pod's address
            assert get["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
        own = {each["name"]: each["value"] for each in CONTAINER["env"]}
        named = CONTAINER["envFrom"][0]["configMapRef"]["name"]
        assert named == KINDS["ConfigMap"]["metadata"]["name"]
        check_settings({**KINDS["ConfigMap"]["data"], **own})
        settings = Settings(drain_seconds=own["FORECASTER_DRAIN_SECONDS"])
        assert POD["spec"]["terminationGracePeriodSeconds"] > settings.drain_seconds + 60


MONITORING = ROOT / "service/monitoring"
RULES = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
PANELS = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
DRAWN = [
    target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
    for panel in PANELS
    for target in panel.get("targets", ())
]
SEVERAL = {"forecaster_workers", "forecaster_workers_wanted", "forecaster_worker_deaths_total"}
"""Metrics that only the parent of several processes has."""


def given(client):
    """The names of the service's metrics, with or without samples."""
    names = set()
    for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", client.get("/metrics").text):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + end for end in ends}
    return names


class TestMonitoring:
    def test_what_the_service_gives_is_asked_drawn_and_documented(self, client):
        names, said = given(client), (ROOT / "docs/operate.md").read_text()
        shown, asked = " ".join(DRAWN), " ".join(rule["expr"] for rule in RULES)
        for text in (shown, asked):
            found = set(re.findall(r"\b(?:forecaster|process)_\w+", text))
            assert found
            assert found - names <= SEVERAL
        for name in names:
            plain = re.sub(r"_(bucket|sum|count)$", "", name)
            if name.startswith("forecaster_") and not name.endswith("_created"):
                assert f"`{plain}`" in said, name
                assert plain in shown or plain == "forecaster_build_info", name

    def test_each_alert_is_tried(self):
        tried = (MONITORING / "alerts_test.yml").read_text()
        assert all(f'alertname="{rule["alert"]}"' in tried for rule in RULES)

    @pytest.mark.slow
    def test_promtool_finds_nothing(self, tmp_path):
        rules = [{"record": f"drawn:{i}", "expr": each} for i, each in enumerate(DRAWN)]
        drawn = tmp_path / "drawn.yml"
        drawn.write_text(yaml.safe_dump({"groups": [{"name": "drawn", "rules": rules}]}))
        for command in (
            "check rules alerts.yml", "check config prometheus.yml",
            "test rules alerts_test.yml", f"check rules {drawn}",
        ):  # fmt: skip
            subprocess.run(["promtool", *command.split()], cwd=MONITORING, timeout=240, check=True)
