"""Rate limits for clients: token buckets, in memory that the processes of a service can share.

A lookup takes microseconds and involves no other process; the system frees the lock of a process
that dies.
"""

import mmap
import os
import struct
from fcntl import LOCK_EX, LOCK_UN, lockf
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from time import monotonic

SETS, ENTRIES = 2**11, 8
"""A client has an entry in one of the sets; a full set forgets the client that asked least
recently."""
ENTRY = struct.Struct("8sdd")  # the client, the tokens that were left, and when
SET = ENTRIES * ENTRY.size


class Buckets:
    """A token bucket for each client: it holds `per_minute` tokens and refills in a minute.

    Processes that give the same `path` share their buckets. The name of its folder must be random,
    so that no client can choose its set.
    """

    def __init__(self, per_minute: float, path: Path | None = None) -> None:
        self.full, self.per_second = max(per_minute, 1.0), per_minute / 60
        self._secret = str(path or token_hex())
        self._file = os.open(path, os.O_RDWR | os.O_CREAT) if path else os.memfd_create("buckets")
        os.truncate(self._file, SETS * SET)
        self._table = mmap.mmap(self._file, SETS * SET)

    def take(self, client: str, tokens: float = 1, *, owe: bool = False) -> float:
        """Take tokens and return 0; the bucket must have one token, or none with `owe`, and may go
        into debt for the others. Else take nothing, and return the seconds until it has one."""
        name = blake2b(f"{self._secret} {client}".encode(), digest_size=8).digest()
        start = int.from_bytes(name[:2]) % SETS * SET
        lockf(self._file, LOCK_EX, SET, start)
        try:
            entries = list(ENTRY.iter_unpack(self._table[start : start + SET]))
            now = monotonic()
            place, (known, left, at) = min(
                enumerate(entries), key=lambda each: (each[1][0] != name, each[1][2])
            )
            if known != name:  # then it is the one that was used least recently
                left, at = self.full, now
            left = min(self.full, left + (now - at) * self.per_second)
            taken = owe or left >= 1
            entry = name, left - taken * tokens, now
            ENTRY.pack_into(self._table, start + place * ENTRY.size, *entry)
        finally:
            lockf(self._file, LOCK_UN, SET, start)
        return 0.0 if taken else (1 - left) / self.per_second
