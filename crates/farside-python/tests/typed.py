"""What a type checker must accept of a user's program; it is not run."""

import asyncio
from datetime import timedelta

import farside
from farside import aio


def plain(store: farside.Store) -> None:
    value: bytes | None = store.get("key")
    known: bytes | str = store.get("key", "nothing")
    many: list[bytes | None] = store.get_many(["a", b"b", bytearray(b"c")])
    is_stored: bool = store.set(b"key", memoryview(b"value"), ttl=timedelta(hours=1), if_absent=True)
    count: int = store.set_many({"a": b"1"}) + store.set_many([("a", "1")]) + len(store)
    length: int | None = store.get_into("key", bytearray(10))
    for key, item in store.items("user:"):
        print(key.decode(), item[:1])
    total: int = store.transaction(lambda transaction: int(transaction["a"]))
    with store.lock("turn", timeout=1.5) as lock, store.begin() as transaction:
        transaction["token"] = str(lock.token)
    try:
        del store["key"]
    except farside.TimeoutError as error:
        print(error, value, known, many, is_stored, count, length, total)


async def concurrent() -> None:
    async with aio.Store("tcp:10.0.0.7:7380") as store:
        print(await store.get("key"))


if __name__ == "__main__":
    with farside.Store("/dev/shm/example", memory=1 << 30, index="chime") as store:
        plain(store)
    asyncio.run(concurrent())
