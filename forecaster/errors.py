"""What can go wrong, in one tree; every error carries the exit status of the command.

ForecasterError          70  a defect of ours, or a step that could not be finished
├── UsageError            2  the command line asks for something that does not exist
├── ConfigError          78  a configuration file or environment variable does
├── DataError            65  the data (or a bundle's bytes) cannot be used as they are
│   └── BundleError      65  a bundle is damaged, incomplete or of another kind
├── UnavailableError     69  a data set, model or server that was named cannot be had
├── StorageError         74  a file could not be written or read
├── DivergedError        78  training met a loss that is not finite: with another rate it may not
└── DeviceLostError      70  nothing works on the GPU any more

Stopped                 130  interrupted (Ctrl-C), or 143: terminated (SIGTERM)
"""


class ForecasterError(Exception):
    """Base of all errors that a user may meet: expected, got, where and what to do."""

    exit_code = 70


class UsageError(ForecasterError):
    exit_code = 2


class ConfigError(ForecasterError):
    exit_code = 78


class DataError(ForecasterError):
    """Input data cannot be used as it is; the message names file, row, column and value."""

    exit_code = 65


class BundleError(DataError):
    """A bundle is damaged, incomplete or of another kind."""


class UnavailableError(ForecasterError):
    exit_code = 69


class StorageError(ForecasterError):
    exit_code = 74


class DivergedError(ForecasterError):
    """Training met a loss or forecast that is not finite; the message names epoch and step."""

    exit_code = 78


class DeviceLostError(ForecasterError):
    """Nothing works on the GPU any more; only a new process may have it again."""


class Stopped(BaseException):
    """A signal asks the command to end; not an Exception, so nothing swallows it on the way.

    `told` is set where the command has said so already.
    """

    told = False

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.exit_code = 128 + signal


def of_status(status: int) -> type[ForecasterError]:
    """The class for what a command said that ended so; ForecasterError where there is none."""
    kinds = (UsageError, DataError, UnavailableError, StorageError, ConfigError)
    return {kind.exit_code: kind for kind in kinds}.get(status, ForecasterError)
