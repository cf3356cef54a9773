"""What can go wrong. The text of each error is one line that says what would be right."""

import builtins


class Error(Exception):
    """The store failed."""


class OutOfMemoryError(Error, MemoryError):
    """Memory is full, and nothing was changed. Reads, deletes and overwrites go on."""


class TimeoutError(Error, builtins.TimeoutError):
    """A node did not answer in time, others were in the way for too long, or a lock was not to be had."""


class UnreachableError(Error, ConnectionError):
    """The memory is not where it was said to be."""


class CutOffError(Error, ConnectionError):
    """This client was cut off from the memory. Whether the operation took effect is not known; the next one comes back."""


class ConflictError(Error):
    """Others were quicker than a transaction, which has changed nothing."""


class LockLostError(Error):
    """The holder of a lock was away for longer than its lease: somebody else may have had the lock meanwhile."""
