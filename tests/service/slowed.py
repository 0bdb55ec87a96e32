"""`forecaster` with a device that needs SECONDS for each series: python tests/service/slowed.py
SECONDS serve --model ..."""

import sys
from time import sleep

from forecaster.cli import main
from forecaster_service import forecasting

if __name__ == "__main__":
    seconds, plain = float(sys.argv.pop(1)), forecasting.run

    def slow(inputs, *rest):
        sleep(seconds * len(inputs))
        return plain(inputs, *rest)

    forecasting.run = slow
    main()
