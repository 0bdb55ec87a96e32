"""Simulates another system for our code alone: FORECASTER_SIMULATES=darwin or win32.

Put this folder first in PYTHONPATH; child processes inherit it. Modules of forecaster then see
neither what that system lacks nor Linux's `/proc`, and must name the encoding of each text file. On
Windows, moreover, open files can be neither replaced nor deleted, `select` takes only sockets, and
a folder cannot be opened. Libraries see the real system. Not simulated: paths with `\\`, drives,
letter case, the speed of spawned processes.
"""

import builtins
import io
import os
import sys
import types
import warnings
from itertools import chain
from pathlib import Path

SYSTEM = os.environ.get("FORECASTER_SIMULATES", "")
WINDOWS = SYSTEM == "win32"
OURS = ("forecaster", "forecaster_service")
LACKS = {
    "os": ["sched_getaffinity", "sched_setaffinity", "posix_fadvise", "memfd_create"],
    "signal": ["SIGPWR", "SIGPOLL", "sigwaitinfo"],
    "socket": ["SO_PEERCRED", "AF_NETLINK"],
}
if WINDOWS:
    LACKS["os"] += [
        "fork", "getuid", "geteuid", "getgid", "getpgid", "setpgid", "setsid", "killpg", "kill",
        "mkfifo", "sysconf", "statvfs", "getloadavg", "set_blocking", "nice", "sync", "chown",
    ]  # fmt: skip
    LACKS["signal"] += [
        "SIGHUP", "SIGKILL", "SIGALRM", "SIGCHLD", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE",
        "alarm", "setitimer", "pause", "pthread_kill", "pthread_sigmask", "sigwait",
    ]  # fmt: skip
    LACKS["socket"] += ["AF_UNIX", "SO_REUSEPORT"]
    LACKS["time"] = ["tzset"]
MISSING = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty") if WINDOWS else ()


class Seen(types.ModuleType):
    """A module as that system has it."""

    def __init__(self, real, **other):
        self.__dict__.update(other, _real=real)

    def __getattr__(self, name):
        if name in LACKS.get(self._real.__name__, ()):
            raise AttributeError(f"module {self._real.__name__!r} has no attribute {name!r}")
        return getattr(self._real, name)

    def __setattr__(self, name, value):
        setattr(self._real, name, value)


def _open_file(path, *arguments, **options):
    if Path(path).is_dir():
        raise PermissionError(13, "Permission denied", str(path))
    return os.open(path, *arguments, **options)


def _select(*ready):
    import select
    import socket

    if any(not isinstance(each, socket.socket) for each in chain(*ready[:3])):
        raise OSError(10038, "An operation was attempted on something that is not a socket")
    return select.select(*ready)


def _hidden(call):
    """The function of a path, which our code finds nothing with in Linux's own folders."""

    def look(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys/")):
            frame = sys._getframe(1)
            while frame.f_globals["__name__"] in ("pathlib", "pathlib._local", "genericpath"):
                frame = frame.f_back
            if frame.f_globals.get("__name__", "").split(".")[0] in OURS:
                raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *arguments, **options)

    return look


def _used(path, folder):
    """Whether this process has the file open or mapped, or a file below the folder."""
    where = os.path.realpath(os.path.join(folder, os.fspath(path)))
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    with open("/proc/self/maps") as maps:
        names += [line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")]
    return any(name == where or name.startswith(f"{where}/") for name in names)


def _refused(call):
    """The function that moves or deletes paths, which fails where one is open."""

    def move(*paths, **options):
        number = options.get("dir_fd") or options.get("src_dir_fd")
        folder = "" if number is None else os.readlink(f"/proc/self/fd/{number}")
        for path in paths:
            if _used(path, folder):
                raise PermissionError(13, "another process uses the file", str(path))
        return call(*paths, **options)

    return move


def simulate():
    plain = builtins.__import__
    views = {"sys": Seen(sys, platform=SYSTEM)}

    def imported(name, globals=None, locals=None, fromlist=(), level=0):
        module = plain(name, globals, locals, fromlist, level)
        if level or str((globals or {}).get("__name__")).split(".")[0] not in OURS:
            return module
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name == "select" and WINDOWS:
            return views.setdefault(name, Seen(module, select=_select))
        if name == "os" and WINDOWS:
            return views.setdefault(name, Seen(module, name="nt", open=_open_file))
        if name in LACKS:
            return views.setdefault(name, Seen(module))
        return views.get(name, module)

    builtins.__import__ = imported
    builtins.open = io.open = _hidden(io.open)
    os.stat, os.listdir = _hidden(os.stat), _hidden(os.listdir)
    warnings.filterwarnings("ignore", category=EncodingWarning)
    warnings.filterwarnings("error", category=EncodingWarning, module="forecaster")
    if WINDOWS:
        os.linesep = "\r\n"
        for name in ("replace", "rename", "remove", "unlink"):
            setattr(os, name, _refused(getattr(os, name)))


if SYSTEM:
    simulate()
