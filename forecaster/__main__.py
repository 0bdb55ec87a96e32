"""`python -m forecaster`: the command."""

from forecaster.cli import main

if __name__ == "__main__":
    main()
