"""Write records from the code that is imported; the bundles and the commands are never rewritten.

    PYTHONPATH=.:service python tests/equality/write.py routes attentions

Trainings were written with release 0.2.0, commit 837bd50, on one thread. With a checkout of it in
OLD and the versions of constraints.txt, this adds the digests of another machine:

    PYTHONPATH=OLD:OLD/service:. python tests/equality/write.py trainings
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save

import forecaster
from tests.equality import cases


def put(file, content):
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def pack(tensors, file):
    file.write_bytes(save({key: tensor.contiguous() for key, tensor in tensors.items()}))


def trainings():
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


def attentions():
    from tests.equality import test_attentions

    found = [test_attentions.results(name) for name in test_attentions.ATTENTIONS]
    pack({key: tensor for each in found for key, tensor in each.items()}, test_attentions.FILE)


def routes():
    from tests.equality import test_faces

    put(cases.RECORDS / "routes.json", test_faces.routes())


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{forecaster.__file__}, {forecaster.__version__}")
    for wanted in sys.argv[1:]:
        globals()[wanted]()
