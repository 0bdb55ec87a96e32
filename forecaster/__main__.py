"""`python -m forecaster`: the command, for those who start it by a module, such as torchrun."""

from forecaster.cli import main

if __name__ == "__main__":
    main()
