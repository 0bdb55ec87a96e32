"""`python -m forecaster.cli` is the command `forecaster`."""

from forecaster.cli import main

main()
