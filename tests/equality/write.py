"""Write records from the code that is imported; the commands are never rewritten.

PYTHONPATH=.:service python tests/equality/write.py routes attentions trainings
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
    """Record the ten trainings on this machine."""
    from tests.equality import test_trainings

    for name in test_trainings.TRAININGS:
        with tempfile.TemporaryDirectory() as folder:
            found, test = test_trainings.train(name, Path(folder))
        file = test_trainings.FOLDER / f"{name}.json"
        put(file, {"machine": cases.machine(), "said": test_trainings.said(test)})
        pack(found, file.with_suffix(".safetensors"))


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
