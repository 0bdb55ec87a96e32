"""`python -m forecaster`: the command, for callers that start a module, such as torchrun."""

from forecaster.cli import main

if __name__ == "__main__":
    main()
