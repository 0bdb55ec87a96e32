"""What can go wrong, in one tree; every error carries the exit status of the command.

ForecasterError          70  a defect in this package, or a step that could not be finished
├── UsageError            2  the command line asks for something that does not exist
├── ConfigError          78  a configuration file or an environment variable does so
├── DataError            65  the data (or a bundle's bytes) cannot be used as they are
│   └── BundleError      65  a bundle is damaged, incomplete or of another kind
├── UnavailableError     69  a named data set, model or server is not available
├── StorageError         74  a file could not be written or read
├── DivergedError        78  training met a loss that is not finite; another rate may avoid it
└── DeviceLostError      70  the GPU no longer works in this process

Stopped                 130  interrupted (Ctrl-C), or 143: terminated (SIGTERM)
"""


class ForecasterError(Exception):
    """Base of all errors for users: what was expected, what was got, where, and what to do."""

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
    """The GPU no longer works in this process; only a new process can use it."""


class Stopped(BaseException):
    """A signal asks the command to end; not an Exception, so that no handler swallows it.

    `reported` is set if the command has already reported it.
    """

    reported = False

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.exit_code = 128 + signal


def of_status(status: int) -> type[ForecasterError]:
    """The class of the error with which a command ended; ForecasterError for other statuses."""
    kinds = (UsageError, DataError, UnavailableError, StorageError, ConfigError)
    return {kind.exit_code: kind for kind in kinds}.get(status, ForecasterError)
