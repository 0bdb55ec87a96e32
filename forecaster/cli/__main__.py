"""`python -m forecaster.cli` runs the command `forecaster`."""

from forecaster.cli import main

main()
