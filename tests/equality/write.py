"""Write the records from the code that is imported. They were written with release 0.2.0, commit
837bd50, on one thread, with a checkout of it in OLD and the versions of constraints.txt:

    export PYTHONPATH=OLD:OLD/service:.
    python tests/equality/write.py bundles trainings attentions commands
    PYTHONPATH=.:service python tests/equality/write.py routes
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

import forecaster
from tests.equality import cases
from tests.equality.cases import KINDS, LEVELS, RECORDS


def put(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    file.write_text(content if isinstance(content, str) else text)


def pack(tensors: dict[str, torch.Tensor], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(save({key: tensor.contiguous() for key, tensor in tensors.items()}))


def bundles() -> None:
    """Train each kind; keep the bundle, a question and the answers to it."""
    from tests.service.toy import start

    written: dict[str, Any] = {"machine": cases.machine(), "models": {}, "std": {}}
    home = Path(tempfile.gettempdir(), "equality")  # a bundle keeps the path of its data
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    with cases.at(home):
        for name in KINDS:
            train(name, home)
            about = json.loads((home / name / "about.json").read_text())
            written["models"][name] = about["name"]
    with cases.at(home, theirs=True):
        models = ",".join(str(home / name) for name in KINDS)
        with start(model=models, device="cpu", poll_seconds=0, parts=("repeated",)) as service:
            for name in KINDS:
                written["std"][name] = ask(name, home, service, written["models"][name])
        written["champion"] = tags(written["models"]["alone"])
    put(RECORDS / "bundles.json", written)


def train(name: str, home: Path) -> None:
    """Train a kind in a process of its own, and pack its bundle."""
    work, kind = home / "work" / name, KINDS[name]
    work.mkdir(parents=True)
    kind.write(work, name)
    register = () if name == "alone" else ("--no-register",)
    command = [sys.executable, "-m", "forecaster", *kind.command(name), *register]
    theirs = f"{cases.THEIRS}:" if name == "plugin" else ""
    paths = {"PYTHONPATH": theirs + os.environ["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=work, env={**os.environ, **paths})
    (bundle,) = (work / "runs").iterdir()
    bundle.rename(home / name)
    place = RECORDS / "bundles" / name
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place / "bundle.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted((home / name).iterdir()):
            packed.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED)


def ask(name: str, home: Path, service: Any, model: str) -> dict[str, float]:
    """Keep a question and the answers to it; returns the deviation of each target."""
    place, file = RECORDS / "bundles" / name, home / f"{name}.csv"
    file.write_text(KINDS[name].question())
    put(place / "input.csv", file.read_text())
    loaded = forecaster.Forecaster.load(home / name, device="cpu")
    put(place / "forecast.csv", loaded.predict(file, levels=LEVELS).to_csv(index=False))
    _, request = cases.told(service, model, file)
    put(place / "request.json", request)
    answer = cases.answer(service, request)
    put(place / "answer.json", answer)
    frame = KINDS[name].data(cases.ROWS).replace(cases.MARK, float("nan"))
    return {each: float(frame[each].std()) for each in answer["predictions"][0]["columns"]}


def tags(model: str) -> dict[str, Any]:
    """What the registry knows of the first version of a model, by which it is compared."""
    from forecaster.tracking.store import MlflowClient

    made = MlflowClient(os.environ["MLFLOW_TRACKING_URI"]).get_model_version(model, "1")
    return {"name": model, "aliases": made.aliases, "tags": made.tags}


def trainings() -> None:
    """Add the digests of this machine to those of others; replace the weights."""
    from tests.equality import test_trainings

    for name in test_trainings.TRAININGS:
        with tempfile.TemporaryDirectory() as folder:
            found = test_trainings.train(name, Path(folder))
        file = test_trainings.FOLDER / f"{name}.json"
        digests = {key: test_trainings.digest(tensor) for key, tensor in found.items()}
        known = json.loads(file.read_text()) if file.exists() else []
        others = [each for each in known if each["machine"] != cases.machine()]
        put(file, [*others, {"machine": cases.machine(), "digests": digests}])
        small = {key: tensor for key, tensor in found.items() if tensor.numel() < 1000}
        pack(small, file.with_suffix(".safetensors"))


def attentions() -> None:
    from tests.equality import test_attentions

    found = [test_attentions.results(name) for name in test_attentions.ATTENTIONS]
    pack({key: tensor for each in found for key, tensor in each.items()}, test_attentions.FILE)


def commands() -> None:
    from tests.equality import test_faces

    put(RECORDS / "commands.json", test_faces.commands())
    with tempfile.TemporaryDirectory() as folder:
        put(RECORDS / "statuses.json", test_faces.statuses(Path(folder)))


def routes() -> None:
    from tests.equality import test_faces

    put(RECORDS / "routes.json", test_faces.routes())


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{forecaster.__file__}, {forecaster.__version__}")
    for wanted in sys.argv[1:]:
        globals()[wanted]()
