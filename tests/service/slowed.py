"""`forecaster` with a device that needs SECONDS for each series: python tests/service/slowed.py
SECONDS serve --model ..."""

import sys
from time import sleep

from forecaster.cli import main
from forecaster.forecast.predictor import Predictor

if __name__ == "__main__":
    seconds, plain = float(sys.argv.pop(1)), Predictor.answer

    def slow(self, question, *rest):
        sleep(seconds * len(question))
        return plain(self, question, *rest)

    Predictor.answer = slow
    main()
