import subprocess

import pytest

from forecaster.base import installation
from forecaster.base.errors import ForecasterError


class TestFolders:
    def test_the_wheel_has_them_inside_and_those_come_first(self, tmp_path, monkeypatch):
        package, checkout = tmp_path / "site" / "forecaster", tmp_path / "checkout"
        (checkout / "configs").mkdir(parents=True)
        monkeypatch.setattr(installation, "PACKAGE", package)
        monkeypatch.setattr(installation, "CHECKOUT", checkout)
        assert installation.configs() == checkout / "configs"
        (package / "_configs").mkdir(parents=True)
        assert installation.configs() == package / "_configs"
        with pytest.raises(ForecasterError, match=r"_cards .*data/cards .*Install forecaster"):
            installation.cards()


def test_no_password_is_shown() -> None:
    shown = installation.without_password("postgresql://me:se/cret@host/db")
    assert shown == "postgresql://***@host/db"
    for same in ("sqlite:///a@b.db", "http://127.0.0.1:5000"):
        assert installation.without_password(same) == same


def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "CHECKOUT", tmp_path)
    assert installation.commit() == "unknown"

    def git(*arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.check_output(["git", "-C", tmp_path, *who, *arguments], text=True)

    git("init", "-q")
    assert installation.commit() == "unknown", "nothing committed yet"
    file, figure = tmp_path / "file", tmp_path / "benchmarks/results/figure"
    figure.parent.mkdir(parents=True)
    for each in (file, figure):
        each.write_text("1")
    git("add", ".")
    git("commit", "-qm", "One")
    head = git("rev-parse", "HEAD").strip()
    assert installation.commit() == head
    figure.write_text("2")
    assert installation.commit() == head, "a figure that is measured anew is no code"
    file.write_text("2")
    assert installation.commit() == f"{head}-dirty"


def test_a_folder_with_the_name_of_a_card_is_meant_where_its_path_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("weather", "mine"):
        (tmp_path / name).mkdir()
    names = ("weather", "./weather", "mine", "sales.csv", "ETTh1")
    assert [installation.names_a_file(name) for name in names] == [False, True, True, True, False]


def test_code_without_cards_as_mlflow_serves_it_knows_a_file_from_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / "code" / "forecaster")
    monkeypatch.setattr(installation, "CHECKOUT", tmp_path / "code")
    assert [installation.names_a_file(name) for name in ("ETTh1", "sales.csv")] == [False, True]
