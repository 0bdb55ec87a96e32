import subprocess
from pathlib import Path

import pytest

from forecaster import resources
from forecaster.errors import ForecasterError


class TestFolders:
    def test_a_checkout_has_them_beside_the_package(self):
        assert (resources.configs() / "default.yaml").is_file()
        assert (resources.cards() / "ETTh1.yaml").is_file()

    def test_the_wheel_has_them_inside_and_those_come_first(self, tmp_path, monkeypatch):
        package, checkout = tmp_path / "site" / "forecaster", tmp_path / "checkout"
        (checkout / "configs").mkdir(parents=True)
        monkeypatch.setattr(resources, "PACKAGE", package)
        monkeypatch.setattr(resources, "CHECKOUT", checkout)
        assert resources.configs() == checkout / "configs"
        (package / "_configs").mkdir(parents=True)
        assert resources.configs() == package / "_configs"
        with pytest.raises(ForecasterError, match=r"_cards .*data/cards .*Install forecaster"):
            resources.cards()

    def test_the_cache_is_where_the_system_keeps_caches(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert tmp_path in resources.cache().parents
        assert resources.cache().name == "forecaster"
        assert not resources.cache().exists(), "asking makes no folder"
        assert Path.home() != resources.cache().parent


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:se/cret@host/db", "postgresql://***@host/db"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)
def test_no_password_is_shown(uri: str, shown: str) -> None:
    assert resources.without_password(uri) == shown


def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "CHECKOUT", tmp_path)
    assert resources.commit() == "unknown"

    def git(*arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        command = ["git", "-C", tmp_path, *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    assert resources.commit() == "unknown", "nothing committed yet"
    figure = tmp_path / "benchmarks/results/figure"
    figure.parent.mkdir(parents=True)
    for file in (tmp_path / "file", figure):
        file.write_text("1")
    git("add", ".")
    git("commit", "-qm", "One")
    head = git("rev-parse", "HEAD").strip()
    assert resources.commit() == head
    figure.write_text("2")
    assert resources.commit() == head, "a figure that is measured anew is no code"
    (tmp_path / "file").write_text("2")
    assert resources.commit() == f"{head}-dirty"
