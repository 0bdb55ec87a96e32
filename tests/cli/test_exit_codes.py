"""No user input ends as a defect: options, files and bundles are changed at random.

FORECASTER_TRIES (40) sets how many changes of each kind are tried.
"""

import json
import os
import random
import shutil

import pytest
import yaml

from forecaster.attention import CATALOGUE
from forecaster.base import installation
from forecaster.config.run_config import leaves, load
from forecaster.forecast.bundle import JSON_FILES
from tests import small
from tests.bundles import sign

TRIES = int(os.environ.get("FORECASTER_TRIES", "40"))
FORESEEN = {0, 2, 65, 69, 74, 78}
JUNK = [
    None, 0, -1, 1, 3, 0.5, 1e300, 2**70, float("nan"), True, "", "x", "ä", "all", "2020-01-01",
    "\0", [], [1], ["a"], {}, {"a": 1},
]  # fmt: skip
CUTS = [
    "", ",", ";", "\t", '"', "'", "\n", "\r", "\0", "nan", "inf", "-", "1e999", "ä", "\ufeff", "%",
    "2020-02-30", "99:99", "0x10", "1_000", "#", "=1+1", "\u2028", "٣", "[", "{", ": ", "&a ", "*a",
]  # fmt: skip
INFORMER = {"name": "informer", "width": 8, "heads": 2, "feed_forward": 8, "encoder_layers": 1}
SHORT = {"epochs": 1, "batch": 64, "stride": 8, "lr": 0.003}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("seed", [0, 1]),
    pytest.mark.timeout(300 + 2 * TRIES),
]


def replaced(document, chance):
    """The document with one value anywhere in it replaced or removed."""
    if isinstance(document, dict) and document and chance.random() < 0.85:
        key = chance.choice(list(document))
        if chance.random() < 0.1:
            return {name: value for name, value in document.items() if name != key}
        return {**document, key: replaced(document[key], chance)}
    if isinstance(document, list) and document and chance.random() < 0.85:
        at = chance.randrange(len(document))
        return [*document[:at], replaced(document[at], chance), *document[at + 1 :]]
    return chance.choice(JUNK)


def mangled(text, chance):
    """The text with some characters replaced, removed or inserted."""
    for _ in range(chance.choice([1, 1, 2, 5])):
        at, length = chance.randrange(len(text) + 1), chance.choice([0, 1, 1, 5, 50])
        text = text[:at] + chance.choice(CUTS) + text[at + length :]
    return text


@pytest.fixture
def foreseen(run):
    def call(*arguments):
        status, _, err = run(*arguments)
        assert status in FORESEEN, (arguments, err)
        return status

    return call


def test_values_of_a_training(seed, foreseen, tmp_path, monkeypatch):
    chance, file = random.Random(seed), small.install(tmp_path, monkeypatch)
    seen = set()
    for _ in range(TRIES // 2):
        config = {**small.CONFIG, "train": SHORT, "attn": chance.choice(list(CATALOGUE))}
        config["model"] = chance.choice([config["model"], INFORMER])
        file.write_text(yaml.safe_dump(config))
        keys = [key for key, _ in leaves(load(str(file)).config.to_dict())]
        key, value = chance.choice(keys), json.dumps(chance.choice(JUNK))
        limit = () if key.startswith("train.") else ("--set", "train.time_limit=0.1")
        seen.add(foreseen("train", "--config", file, "--no-register", "--force", "--set",
                          f"{key}={value}", *limit))  # fmt: skip
    assert 2 in seen
    assert foreseen("train", "--config", file, "--no-register", "--set", "train.time_limit=1") == 0


def test_values_in_a_bundle(seed, foreseen, tmp_path, folder, csv):
    chance, work, seen = random.Random(seed), tmp_path / "changed", set()
    for _ in range(TRIES):
        shutil.copytree(folder, work)
        file = work / chance.choice(JSON_FILES)
        file.write_text(json.dumps(replaced(json.loads(file.read_text()), chance)))
        sign(work)
        asked = [("predict", "--model", work, "--input", csv, "--levels", "0.1,0.9"),
                 ("report", work), ("evaluate", "--model", work)]  # fmt: skip
        seen.add(foreseen(*chance.choice(asked)))
        shutil.rmtree(work)
    assert 65 in seen


def test_characters_of_a_file(seed, foreseen, tmp_path, folder, csv):
    chance, file, seen = random.Random(seed), tmp_path / "changed.yaml", set()
    default, grid = (installation.configs() / name for name in ("default.yaml", "grids/small.yaml"))
    asked = [
        (csv.read_text(), csv, ("predict", "--model", folder, "--input")),
        (csv.read_text(), csv, ("data", "check", "--data")),
        (default.read_text(), file, ("config", "--config")),
        (grid.read_text(), file, ("compare", "--data", "nothing", "--grid")),
    ]
    for _ in range(2 * TRIES):
        text, file, words = chance.choice(asked)
        encoding = chance.choice(["utf-8", "utf-8", "utf-16", "latin-1", "cp1252"])
        file.write_bytes(mangled(text, chance).encode(encoding, "replace"))
        seen.add(foreseen(*words, file))
    assert {65, 78} <= seen
