"""Token buckets for the clients of several processes, in memory that the processes share.

A lookup takes microseconds and involves no other process; the system frees the lock of a process
that dies.
"""

import mmap
import os
import struct
from fcntl import LOCK_EX, LOCK_UN, lockf
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from time import monotonic

SETS, ENTRIES = 2**11, 8
"""A client has an entry in one of the sets; a full set forgets the client that asked least
recently."""
ENTRY = struct.Struct("8sdd")  # the client, the tokens that were left, and when
SET, TABLE, SECRET = ENTRIES * ENTRY.size, SETS * ENTRIES * ENTRY.size, 16
TABLES = 2


def new_table(path: Path) -> None:
    """Make a file for an empty `Table`."""
    with path.open("wb") as file:
        file.write(token_bytes(SECRET))  # so that no client can choose its set
        file.truncate(SECRET + TABLES * TABLE)


class Table:
    """The memory of a file."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDWR)
        self.memory = mmap.mmap(self.file, SECRET + TABLES * TABLE)
        self.secret = self.memory[:SECRET]


class SharedBuckets:
    """`Buckets` for all processes with the same table; `number` identifies the use of the table."""

    def __init__(self, table: Table, number: int, per_minute: float) -> None:
        self.full, self.per_second = max(per_minute, 1.0), per_minute / 60
        self._table, self._start = table, SECRET + number * TABLE

    def take(self, client: str, tokens: float = 1, *, owe: bool = False) -> float:
        """See `Buckets.take`."""
        table = self._table
        name = blake2b(client.encode(), digest_size=8, key=table.secret).digest()
        start = self._start + int.from_bytes(name[:2]) % SETS * SET
        lockf(table.file, LOCK_EX, SET, start)
        try:
            entries = list(ENTRY.iter_unpack(table.memory[start : start + SET]))
            now = monotonic()
            found = [place for place, (known, _, _) in enumerate(entries) if known == name]
            if found:
                place, (_, left, at) = found[0], entries[found[0]]
            else:
                place = min(range(ENTRIES), key=lambda each: entries[each][2])
                left, at = self.full, now
            left = min(self.full, left + (now - at) * self.per_second)
            taken = owe or left >= 1
            entry = name, left - taken * tokens, now
            ENTRY.pack_into(table.memory, start + place * ENTRY.size, *entry)
        finally:
            lockf(table.file, LOCK_UN, SET, start)
        return 0.0 if taken else (1 - left) / self.per_second
