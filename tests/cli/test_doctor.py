import importlib.metadata
import json

import pytest


class TestDoctor:
    def test_a_healthy_machine(self, run):
        status, out, _ = run("doctor")
        assert status == 0
        assert out.splitlines()[-1] == "no problem found"
        report = json.loads(run("doctor", "--json")[1])
        assert (report["torch"], report["problems"]) == (importlib.metadata.version("torch"), [])

    @pytest.mark.parametrize("version", ["2.6.3", "2.6.2", "2.5.0", "2.6.6rc1"])
    def test_known_bad_versions(self, version, run, monkeypatch):
        real = importlib.metadata.version
        bad = {"lightning": version}
        monkeypatch.setattr(importlib.metadata, "version", lambda name: bad.get(name) or real(name))
        assert "lightning below 2.6.6" in run("doctor")[1]

    def test_what_is_missing(self, run, monkeypatch):
        real = importlib.metadata.version

        def version(name):
            if name in ("lightning", "pandas"):
                raise importlib.metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setenv("FORECASTER_DATA", "/no/where")
        out = run("doctor")[1]
        assert "problem: pandas is not installed" in out
        assert "problem: lightning" not in out, "there may be no need of it"
        (line,) = [each for each in out.splitlines() if each.startswith("lightning ")]
        assert line.endswith("not installed; 'attention-forecaster[train]' brings it")
        assert "problem: FORECASTER_DATA=/no/where: no such folder" in out
