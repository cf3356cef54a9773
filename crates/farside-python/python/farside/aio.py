"""The store for asyncio.

Over mapped memory an operation on one key takes less than a microsecond, less than any hand-over to another thread, and is done
where it is called. What may take longer (many keys, a walk, a lock that somebody else holds, everything over a connection) is done by
threads of its own while the event loop goes on.

>>> import asyncio
>>> from farside import aio
>>> async def main():
...     async with aio.Store(memory=64 << 20) as store:
...         await store.set("greeting", b"hello")
...         async with store.lock("turn") as lock:
...             print(await store.get("greeting"), lock.token > 0)
...         print([key async for key in store.keys()])
>>> asyncio.run(main())
b'hello' True
[b'greeting']
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar

from . import Lock as _Lock
from . import LockHolder, Transaction
from . import Store as _Store
from .errors import TimeoutError

if TYPE_CHECKING:
    from ._farside import Buffer, Bytes, Time

T = TypeVar("T")

__all__ = ["Lock", "Store"]

# How many keys of a walk are handed over together.
_KEYS_AT_ONCE = 256
# A longer value is copied by another thread.
_SHORT_BYTES = 64 << 10


class Store:
    """An open store. It takes what :class:`farside.Store` takes, or an open one, which it does not close then."""

    def __init__(
        self, location: str | PathLike[str] | _Store | None = None, *, threads: int = 8, **options: Any
    ) -> None:
        self._is_own = not isinstance(location, _Store)
        self._store = location if isinstance(location, _Store) else _Store(location, **options)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="farside")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"aio.{self._store!r}"

    @property
    def store(self) -> _Store:
        """The store underneath, for calls that wait."""
        return self._store

    async def close(self) -> None:
        """Leaves the store, when what its threads do is done."""
        if self._is_own:
            await self._elsewhere(self._store.close)
        self._threads.shutdown(wait=False)

    async def _elsewhere(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(call, *arguments, **options))

    async def _short(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if self._store.is_mapped:
            return call(*arguments, **options)
        return await self._elsewhere(call, *arguments, **options)

    async def get(self, key: Bytes, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return await self._short(self._store.get, key, default)

    async def get_into(self, key: Bytes, buffer: Buffer) -> int | None:
        """Reads a value into memory of the caller; see :meth:`farside.Store.get_into`."""
        with memoryview(buffer) as view:
            call = self._short if view.nbytes <= _SHORT_BYTES else self._elsewhere
            return await call(self._store.get_into, key, view)

    async def get_many(self, keys: Iterable[Bytes]) -> list[bytes | None]:
        """The values of many keys, in their order."""
        return await self._elsewhere(self._store.get_many, list(keys))

    async def set(
        self, key: Bytes, value: Any, *, ttl: Time | None = None, if_absent: bool = False, if_present: bool = False
    ) -> bool:
        """Stores a value; returns whether it was stored."""
        call = self._short if getattr(value, "nbytes", len(value)) <= _SHORT_BYTES else self._elsewhere
        return await call(self._store.set, key, value, ttl=ttl, if_absent=if_absent, if_present=if_present)

    async def set_many(self, items: Mapping[Any, Bytes] | Iterable[tuple[Bytes, Bytes]]) -> int:
        """Stores many items, of a mapping or of pairs; returns how many."""
        items = items if isinstance(items, Mapping) else list(items)
        return await self._elsewhere(self._store.set_many, items)

    async def delete(self, key: Bytes) -> bool:
        """Removes a key; returns whether it was there."""
        return await self._short(self._store.delete, key)

    async def delete_many(self, keys: Iterable[Bytes]) -> int:
        """Removes many keys; returns how many were there."""
        return await self._elsewhere(self._store.delete_many, list(keys))

    async def pop(self, key: Bytes, default: Any = None) -> Any:
        """Removes a key; returns the value it had, or `default`."""
        return await self._short(self._store.pop, key, default)

    async def contains(self, key: Bytes) -> bool:
        """Whether a key is there."""
        return await self._short(self._store.__contains__, key)

    async def increment(self, key: Bytes, by: int = 1) -> int:
        """Adds to a number; returns the sum."""
        return await self._short(self._store.increment, key, by)

    async def compare_and_set(self, key: Bytes, expected: Bytes | None, value: Bytes) -> bool:
        """Stores a value if the key has the one that is expected; returns whether it had."""
        return await self._short(self._store.compare_and_set, key, expected, value)

    async def expire(self, key: Bytes, ttl: Time) -> bool:
        """Changes when a key expires; returns whether it is there."""
        return await self._short(self._store.expire, key, ttl)

    async def persist(self, key: Bytes) -> bool:
        """Lets a key stay for good; returns whether it is there."""
        return await self._short(self._store.persist, key)

    async def ttl(self, key: Bytes) -> float | None:
        """How many seconds a key stays; see :meth:`farside.Store.ttl`."""
        return await self._short(self._store.ttl, key)

    async def count(self) -> int:
        """How many keys there are."""
        return await self._elsewhere(self._store.__len__)

    async def clear(self) -> int:
        """Removes every key; returns how many there were."""
        return await self._elsewhere(self._store.clear)

    async def transaction(self, body: Callable[[Transaction], T]) -> T:
        """Calls `body`, a plain function, with a transaction; see :meth:`farside.Store.transaction`."""
        return await self._elsewhere(self._store.transaction, body)

    def keys(
        self, prefix: Bytes | None = None, *, start: Bytes | None = None, end: Bytes | None = None
    ) -> AsyncIterator[bytes]:
        """The keys, for `async for`; see :meth:`farside.Store.keys`."""
        return self._walk(self._store.keys(prefix, start=start, end=end))

    def values(
        self, prefix: Bytes | None = None, *, start: Bytes | None = None, end: Bytes | None = None
    ) -> AsyncIterator[bytes]:
        """Their values, likewise."""
        return self._walk(self._store.values(prefix, start=start, end=end))

    def items(
        self, prefix: Bytes | None = None, *, start: Bytes | None = None, end: Bytes | None = None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Keys with their values, likewise."""
        return self._walk(self._store.items(prefix, start=start, end=end))

    async def _walk(self, scan: Iterator[T]) -> AsyncIterator[T]:
        def page() -> list[T]:
            return [found for found, _ in zip(scan, range(_KEYS_AT_ONCE))]

        while found := await self._elsewhere(page):
            for one in found:
                yield one

    def lock(self, name: Bytes, *, shared: bool = False, timeout: Time | None = None) -> Lock:
        """A lock with this name, for `async with`."""
        return Lock(self._store.lock(name, shared=shared, timeout=timeout))

    async def lock_holder(self, name: Bytes) -> LockHolder | None:
        """Who holds the lock with this name; None if nobody does."""
        return await self._elsewhere(self._store.lock_holder, name)


class Lock:
    """A lock with a name; see :class:`farside.Lock`. Each wait that is not over at once has a thread of its own, so that none waits
    for the end of another."""

    def __init__(self, lock: _Lock) -> None:
        self._lock = lock

    @property
    def token(self) -> int | None:
        """The fencing token of the grant."""
        return self._lock.token

    @property
    def is_held(self) -> bool:
        """Whether the lock is held, and was all the time since it was acquired."""
        return self._lock.is_held

    async def acquire(self, blocking: bool = True, timeout: Time | None = None) -> bool:
        """Waits for the lock; returns whether it was acquired. A task that is cancelled does not hold it."""
        if self._lock.acquire(blocking=False):
            return True
        if not blocking:
            return False
        loop = asyncio.get_running_loop()
        acquired: asyncio.Future[bool] = loop.create_future()

        def settle(result: bool, error: Exception | None) -> None:
            if acquired.cancelled():
                if result:
                    threading.Thread(target=self._lock.release).start()
            elif error is not None:
                acquired.set_exception(error)
            else:
                acquired.set_result(result)

        def wait() -> None:
            result = False
            error: Exception | None = None
            try:
                result = self._lock.acquire(timeout=timeout)
            except Exception as caught:
                error = caught
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                # The loop was closed meanwhile.
                if result:
                    self._lock.release()

        threading.Thread(target=wait, name="farside-lock-wait", daemon=True).start()
        return await acquired

    async def release(self) -> None:
        """Gives the lock back."""
        self._lock.release()

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            raise TimeoutError(f"{self._lock!r} was not to be had in time")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
