from pathlib import Path

import yaml


class TestLists:
    def test_data(self, run, tmp_path):
        _, out, _ = run("data", "list")
        assert out.splitlines()[0].startswith("ETTh1 ")
        assert "\ntraffic-sensor0         Part of traffic: its first sensor alone" in out
        assert "\ntraffic                 Road occupancy at 862 sensors" in out
        _, wide, _ = run("data", "show", "traffic")
        assert yaml.safe_load(wide)["columns"] == ["0..860", "OT"]
        _, shown, _ = run("data", "show", "vic_elec")
        assert yaml.safe_load(shown)["target"] == "Demand"
        status, file, _ = run("data", "fetch", "vic_elec")
        assert status == 0
        assert Path(file.strip()).name == "vic_elec.csv"
