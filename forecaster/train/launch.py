"""Start the processes that train one model together (`ranks`), or detect how they were started.

On one machine, `start` does it; on several machines, torchrun does. The processes of one machine
meet in a file and communicate only through its loopback interface.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from forecaster.base.errors import Stopped, UnavailableError, UsageError

MEETING = "FORECASTER_MEETING"
"""The environment variable with the file in which the ranks that `start` starts meet."""
PATIENT = 30.0
"""The seconds in which a rank must end when another one has ended."""


def started() -> bool:
    """Whether torchrun, or `start`, has started this process."""
    by = {"TORCHELASTIC_RUN_ID", MEETING} & {*os.environ}
    return bool(by) and "WORLD_SIZE" in os.environ


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
                "--rdzv-endpoint=HOST:PORT -m forecaster train ... (docs/operate.md)"
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


def start(count: int, arguments: Sequence[str]) -> int:
    """Run `forecaster ARGUMENTS` in `count` ranks on this machine; returns the exit status.

    If one ends with an error, or a signal comes, the others are ended, too. Raises UnavailableError
    if one was ended from outside.
    """
    from forecaster.base import machine

    command = [sys.executable, "-P", "-m", "forecaster", *arguments]
    loops = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    with tempfile.TemporaryDirectory(prefix="forecaster-") as folder:
        shared = {
            "OMP_NUM_THREADS": str(max(1, machine.cores() // count)),
            **os.environ,
            **{f"{engine}_SOCKET_IFNAME": name for engine in ("GLOO", "NCCL") for name in loops},
            MEETING: str(Path(folder, "ranks")),
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
        }
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(count):
                own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                # in a session of its own, so that a signal reaches it once, through this process
                ranks.append(subprocess.Popen(command, env=own, start_new_session=True))
            while None in (codes := [each.poll() for each in ranks]) and not any(codes):
                time.sleep(0.1)
        except Stopped as error:
            return error.exit_code
        finally:
            _end(ranks)
    return _status({rank: code for rank, code in enumerate(codes) if code}, count)


def _end(ranks: "Sequence[subprocess.Popen[bytes]]") -> None:
    for each in ranks:
        each.terminate()
    for each in ranks:
        try:
            each.wait(PATIENT)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


def _status(codes: Mapping[int, int], count: int) -> int:
    """The exit status for the ranks that failed first; they have reported why."""
    for rank, code in codes.items():
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            raise UnavailableError(
                f"process {rank} of {count} was ended by signal {-code}{hint}, which ended the "
                "training"
            )
    return codes[min(codes)] if codes else 0
