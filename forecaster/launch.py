"""Start the processes that train one model together (`ranks`), or detect how they were started.

On one machine, `start` does it with the parts of torchrun; on several machines, torchrun itself
does. The processes of one machine meet in a file and communicate only through its loopback
interface.
"""

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from forecaster.errors import UnavailableError, UsageError

MEETING = "FORECASTER_MEETING"
"""The environment variable with the file in which the ranks that `start` starts meet."""


def started() -> bool:
    """Whether torchrun, or `start`, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "WORLD_SIZE" in os.environ


def is_first() -> bool:
    """Whether this process is the first of all that run the command."""
    return not started() or (os.environ["RANK"] == "0" and MEETING not in os.environ)


def wanted(devices: int | None, nodes: int | None) -> int:
    """The total number of ranks, as started by torchrun or else by the options.

    Raises UsageError if the two differ, and for several machines without torchrun.
    """
    if not started():
        if nodes not in (None, 1):
            raise UsageError(
                f"--nodes {nodes}: start the processes of each machine with torchrun: torchrun "
                f"--nnodes={nodes} --nproc-per-node={devices or 1} --rdzv-backend=c10d "
                "--rdzv-endpoint=HOST:PORT -m forecaster train ... (docs/scale.md)"
            )
        return devices or 1
    count, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    for name, asked, so in (("devices", devices, here), ("nodes", nodes, count // here)):
        if asked not in (None, so):
            raise UsageError(
                f"--{name} {asked}, but torchrun has started {here} of {count} processes on this "
                f"machine: use --{name} {so}, or leave it out"
            )
    return count


def ensure_it_divides(batch: int, count: int) -> None:
    """Raise UsageError if `count` ranks cannot take equal shares of a batch."""
    if batch % count:
        near = [size for size in (batch // count * count, (batch // count + 1) * count) if size]
        raise UsageError(
            f"train.batch={batch} counts the windows of a step in all processes together, but "
            f"{count} processes cannot take equal shares of it; use "
            + " or ".join(f"--set train.batch={size}" for size in near)
        )


def start(count: int, arguments: Sequence[str]) -> int:
    """Run `forecaster ARGUMENTS` in `count` ranks on this machine; returns the exit status.

    If one ends with an error, the others are ended, too. Raises UnavailableError if one was ended
    from outside.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, launch_agent

    from forecaster import machine

    for name in list(logging.root.manager.loggerDict):  # each has its own level
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="forecaster-") as folder:
        config = LaunchConfig(
            1, 1, count, run_id="forecaster", max_restarts=0, local_addr="127.0.0.1",
            rdzv_backend="c10d", rdzv_configs={"store_type": "file"},
            rdzv_endpoint=str(Path(folder, "agent")), logs_specs=DefaultLogsSpecs(log_dir=folder),
        )  # fmt: skip
        loops = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        own = {
            MEETING: str(Path(folder, "ranks")),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else it listens on all interfaces
            **{f"{engine}_SOCKET_IFNAME": name for engine in ("GLOO", "NCCL") for name in loops},
        }
        threads = {"OMP_NUM_THREADS": str(max(1, machine.cores() // count))}
        with _environment({**threads, **os.environ, **own}):
            try:
                launch_agent(config, sys.executable, ["-P", "-m", "forecaster", *arguments])
            except ChildFailedError as error:
                return _status({rank: own.exitcode for rank, own in error.failures.items()}, count)
            except SignalException as error:
                return 128 + int(error.sigval)
    return 0


def _status(codes: Mapping[int, int], count: int) -> int:
    """The exit status for the ranks that failed first; they have reported why."""
    for rank, code in codes.items():
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            raise UnavailableError(
                f"process {rank} of {count} was ended by signal {-code}{hint}, which ended the "
                "training"
            )
    return codes[min(codes)]


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
