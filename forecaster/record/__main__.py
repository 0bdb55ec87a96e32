"""`python -m forecaster.record LEDGER ROWS < PROMISE`: what a ledger says of a model, as JSON.

A process that must not wait, such as a service, asks another one.
"""

import json
import sys
from pathlib import Path

from forecaster.record.look import whole

if __name__ == "__main__":
    folder, most = sys.argv[1:]
    print(json.dumps(whole(Path(folder), json.load(sys.stdin), int(most)), allow_nan=False))
