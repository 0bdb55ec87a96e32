"""Several processes that train one model: rank 0 does all that a single process does, and the
others take their share of each training step.

They communicate through torch.distributed: gloo for tensors on the processor, NCCL for those on a
GPU. `launch` and torchrun start them.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from forecaster.base import signals
from forecaster.base.errors import DivergedError, ForecasterError, Stopped, UnavailableError
from forecaster.train.launch import MEETING

SECONDS = 120.0
"""How long a rank waits for the others in a step."""
PATIENCE = timedelta(days=7)
"""How long the others wait for rank 0 while it works alone."""


class LostError(UnavailableError):
    """Another rank has ended, or does not answer."""


@dataclass(frozen=True)
class Team:
    """The ranks, seen from one of them: `rank` of `count`, `local` of the `here` on its machine.

    Every rank must call the same methods in the same order; a single rank's calls change nothing.
    """

    rank: int = 0
    count: int = 1
    local: int = 0
    here: int = 1
    patient: Any = field(default=None, repr=False)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def least(self, values: Tensor) -> Tensor:
        """The smallest value over all ranks, in place."""
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.MIN)
        return values

    def as_first(self, values: Iterable[Tensor]) -> None:
        """Take the values of rank 0, in place."""
        if self.count > 1:
            for each in values:
                dist.broadcast(each, 0)

    def share(self, data: bytes = b"") -> bytes:
        """The data that rank 0 gives, on every rank; it may come days later."""
        if self.count == 1:
            return data
        size = torch.tensor(len(data))
        with talking():
            dist.broadcast(size, 0, group=self.patient)
            given = torch.zeros(int(size), dtype=torch.uint8)
            if size:
                if not self.rank:
                    given = torch.frombuffer(bytearray(data), dtype=torch.uint8)
                dist.broadcast(given, 0, group=self.patient)
        return given.numpy().tobytes()

    def gather(self) -> None:
        """Wait until every rank has called this."""
        if self.count > 1:
            with talking():
                dist.barrier(group=self.patient)


ALONE = Team()

_LOST = ("gloo", "NCCL", "pair closure", "Connection closed", "Connection reset")
"""Words in torch's messages, besides its own error class, when another process does not answer."""


@contextmanager
def talking() -> Iterator[None]:
    """Raise LostError if another rank does not answer inside the block."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(w in str(error) for w in _LOST):
            raise
        raise LostError(
            f"another process of this training has ended, or has not answered for {SECONDS:.0f} s"
        ) from error


@contextmanager
def joined(device: str, seconds: float = SECONDS) -> Iterator[Team]:
    """Join the ranks of which this process is one; `device` is "cpu" or "cuda".

    At the end of the block, if there was no error, rank 0 signals the others that nothing follows.
    Raises UnavailableError if there is no GPU for each.
    """
    rank, count, local, here = (
        int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    if count == 1:
        yield ALONE
        return
    if device == "cuda":
        if here > (found := torch.cuda.device_count()):
            raise UnavailableError(
                f"{here} processes on a machine that shows {found} GPUs, but each needs its own: "
                "lower --devices, or use --device cpu"
            )
        torch.cuda.set_device(local)
    if sys.platform == "linux":  # SIGTERM when the starting process has ended
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    meeting: dict[str, Any] = {"init_method": "env://"}
    if MEETING in os.environ:
        meeting = {"store": dist.FileStore(os.environ[MEETING], count)}  # type: ignore[attr-defined]
    with talking():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            rank=rank, world_size=count, timeout=timedelta(seconds=seconds), **meeting,
        )  # fmt: skip
        team = Team(rank, count, local, here, dist.new_group(backend="gloo", timeout=PATIENCE))
    with nullcontext() if rank == 0 else _beside(team):
        yield team
    if not rank:
        team.share()
    dist.destroy_process_group()


@contextmanager
def _beside(team: Team) -> Iterator[None]:
    """Let rank 0 report why the training ended; for the other ranks.

    They report only their own errors, and once on each machine that another rank has ended.
    """
    try:
        with signals.orderly():  # rank 0 takes a checkpoint first
            yield
    except (Stopped, LostError, DivergedError) as error:
        if isinstance(error, LostError) and not team.local and not signals.waiting():
            raise
        raise SystemExit(error.exit_code) from None
    except ForecasterError as error:
        raise type(error)(f"process {team.rank} of {team.count}: {error}") from error
