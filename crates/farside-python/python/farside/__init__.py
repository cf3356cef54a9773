"""Farside: a key-value store, indexes and locks in memory that processes and machines share.

There is no server in between: each thread reads and writes the memory itself, and sees at once what other threads,
processes and machines have done on it.

>>> import farside
>>> store = farside.Store(memory=64 << 20)        # memory of this process; or a segment file, or "tcp:HOST:PORT"
>>> store["greeting"] = b"hello from afar"
>>> store["greeting"]
b'hello from afar'
>>> store.get("nothing") is None
True
>>> store.set("ticket", "one ride", ttl=60)
True
>>> 59 < store.ttl("ticket") <= 60
True
>>> store.increment("visits")
1
>>> store.set_many({"a": "1", "b": "2"})
2
>>> store.get_many(["a", "b", "c"])
[b'1', b'2', None]
>>> sorted(store.keys())
[b'a', b'b', b'greeting', b'ticket', b'visits']
>>> with store.lock("accounts/17") as lock:
...     token = lock.token
>>> def move(transaction):
...     amount = int(transaction.get("a"))
...     transaction["a"] = str(amount - 1)
...     transaction["b"] = str(int(transaction["b"]) + 1)
>>> store.transaction(move)
>>> store.get_many(["a", "b"])
[b'0', b'3']
>>> store.close()

asyncio has :class:`farside.aio.Store`.
"""

from typing import Any

from . import errors
from ._farside import KEY_BYTES_MAX, VALUE_BYTES_MAX, VERSION, Lock, LockHolder, Scan, Store, Transaction
from .errors import (
    ConflictError,
    CutOffError,
    Error,
    LockLostError,
    OutOfMemoryError,
    TimeoutError,
    UnreachableError,
)

__version__ = VERSION

__all__ = [
    "KEY_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "ConflictError",
    "CutOffError",
    "Error",
    "Lock",
    "LockHolder",
    "LockLostError",
    "OutOfMemoryError",
    "Scan",
    "Store",
    "TimeoutError",
    "Transaction",
    "UnreachableError",
    "__version__",
    "errors",
]


def _reopen(cls: type[Store], location: str, options: dict[str, Any]) -> Store:
    """Opens a store in a process that was given one."""
    return cls(location, **options)
