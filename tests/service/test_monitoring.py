"""The files of service/monitoring for Prometheus and Grafana."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from tests.service.processes import free_port, running, wait_for

FOLDER = Path(__file__).resolve().parents[2] / "service" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
SEVERAL = {"forecaster_workers", "forecaster_workers_wanted", "forecaster_worker_deaths_total"}
"""Metrics that only the parent of several processes has (test_workers.py)."""
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())


def drawn() -> list[str]:
    """The queries of the dashboard."""
    asked = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "5m").replace("$instance", ".*") for each in asked]


def given(client: TestClient) -> set[str]:
    """The names of the service's metrics, with or without samples."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", client.get("/metrics").text, re.M):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + end for end in ends}
    return names


@pytest.mark.parametrize("asked", ["alerts", "dashboard"])
def test_the_service_gives_what_is_asked(client: TestClient, asked: str) -> None:
    texts = drawn() if asked == "dashboard" else [rule["expr"] for rule in RULES]
    names = set(re.findall(r"\b(?:forecaster|process)_\w+", " ".join(texts)))
    assert len(names) > 15
    assert names - given(client) <= SEVERAL


def test_what_the_service_gives_is_drawn_and_documented(client: TestClient) -> None:
    said = (FOLDER.parents[1] / "docs" / "operate.md").read_text()
    shown = " ".join(drawn())
    for name in given(client):
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        if name.startswith("forecaster_") and not name.endswith("_created"):
            assert f"`{plain}`" in said, name
            assert plain in shown or plain == "forecaster_build_info", name


def test_each_alert_is_told_and_tried() -> None:
    tried = (FOLDER / "alerts_test.yml").read_text()
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 12
    for rule in RULES:
        assert f'alertname="{rule["alert"]}"' in tried
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["check rules alerts.yml", "check config prometheus.yml", "test rules alerts_test.yml"],
)
def test_promtool_finds_nothing(command: str) -> None:
    done = subprocess.run(
        ["promtool", *command.split()], cwd=FOLDER, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_the_dashboard_asks_can_be_answered(tmp_path: Path) -> None:
    rules = [{"record": f"drawn:{i}", "expr": each} for i, each in enumerate(drawn())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "drawn", "rules": rules}]}))
    command = ["promtool", "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def ask(url: str, query: str = "") -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{query}", timeout=30) as answer:
        return json.load(answer)["data"]


def wait_until(what: Iterator[bool]) -> None:
    end = time.monotonic() + 120
    while not next(what):
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.slow
def test_a_prometheus_sees_the_service_end(folder: Path, tmp_path: Path) -> None:
    """With the rules of service/monitoring, but with seconds instead of minutes."""
    text = (FOLDER / "alerts.yml").read_text()
    text = re.sub(r"\[\d+[mh]\]", "[10s]", re.sub(r"\bfor: \w+", "for: 1s", text))
    (tmp_path / "alerts.yml").write_text(text)
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    port, theirs = free_port(), free_port()
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    prometheus = [
        "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{theirs}",
    ]  # fmt: skip
    service = ["forecaster", "serve", "--model", str(folder), "--port", str(port)]
    url = f"http://127.0.0.1:{theirs}"

    def sees(query: str) -> Iterator[bool]:
        while True:
            yield bool(ask(url, "query?query=" + urllib.parse.quote(query))["result"])

    def firing() -> set[str]:
        alerts = ask(url, "alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    with running(prometheus, {}, tmp_path, tmp_path / "theirs") as watching:
        wait_for(f"{url}/-/ready", watching, tmp_path / "theirs")
        with running(service, {}, tmp_path, tmp_path / "log") as process:
            wait_for(f"http://127.0.0.1:{port}/readyz", process, tmp_path / "log")
            wait_until(sees("forecaster_ready == 1"))
            assert "ForecasterModelMissing" not in firing()
        wait_until("ForecasterDown" in firing() for _ in iter(int, 1))
        (group,) = ask(url, "rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} == {rule["alert"] for rule in RULES}
    assert all(rule["health"] == "ok" for rule in group["rules"])
