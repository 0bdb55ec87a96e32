"""What a process that does not import mlflow asks this one:

python -m forecaster.tracking download MODEL FOLDER    copy the bundle of MODEL to FOLDER and
                                                       print its origin as JSON
python -m forecaster.tracking watch FOLDER SECONDS MODEL...
                                                       keep in FOLDER what names resolve to
"""

import json
import logging
import os
import sys
from pathlib import Path

from forecaster.base.errors import ForecasterError, UsageError
from forecaster.tracking import SETTINGS
from forecaster.tracking.registry import download
from forecaster.tracking.watch import watch


def main(arguments: list[str]) -> int:
    """The command `python -m forecaster.tracking`; returns the exit status."""
    try:
        match arguments:
            case ["download", reference, folder]:
                print(json.dumps(download(reference, Path(folder))))
            case ["watch", folder, seconds, *names]:
                watch(Path(folder), float(seconds), names)
            case _:
                raise UsageError(
                    "usage: python -m forecaster.tracking download MODEL FOLDER | "
                    "watch FOLDER SECONDS MODEL..."
                )
    except ForecasterError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)
    sys.exit(main(sys.argv[1:]))
