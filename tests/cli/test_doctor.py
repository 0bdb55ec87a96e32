import importlib.metadata
import json


def test_a_healthy_machine(done):
    assert done("doctor")[0].splitlines()[-1] == "no problem found"
    report = json.loads(done("doctor", "--json")[0])
    assert (report["torch"], report["problems"]) == (importlib.metadata.version("torch"), [])


def test_what_is_bad_or_missing(done, monkeypatch):
    real, other = importlib.metadata.version, {}

    def version(name):
        if other.get(name) == "missing":
            raise importlib.metadata.PackageNotFoundError(name)
        return other.get(name) or real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    for other["lightning"] in ("2.6.3", "2.6.2", "2.5.0", "2.6.6rc1"):
        assert "lightning below 2.6.6" in done("doctor")[0]
    other["lightning"] = other["pandas"] = "missing"
    monkeypatch.setenv("FORECASTER_DATA", "/no/where")
    out, _ = done("doctor")
    assert "problem: pandas is not installed" in out
    assert "problem: lightning" not in out, "there may be no need of it"
    (line,) = [each for each in out.splitlines() if each.startswith("lightning ")]
    assert line.endswith("not installed; 'attention-forecaster[train]' brings it")
    assert "problem: FORECASTER_DATA=/no/where: no such folder" in out
