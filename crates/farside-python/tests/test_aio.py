import asyncio

import pytest

import farside
from farside import aio


def run(body):
    asyncio.run(body)


@pytest.fixture(params=["memory", "tcp"])
def location(request):
    if request.param == "memory":
        return {"memory": 64 << 20}
    return {"location": request.getfixturevalue("node")}


def test_operations(location):
    async def main():
        async with aio.Store(**location) as store:
            assert await store.set("key", "value")
            assert not await store.set("key", "other", if_absent=True)
            assert await store.get("key") == b"value"
            assert await store.get("nothing", 7) == 7
            assert await store.contains("key")
            assert await store.set_many({"a": "1", "b": "2"}) == 2
            assert await store.get_many(["a", "b", "c"]) == [b"1", b"2", None]
            assert await store.increment("sum", 5) == 5
            assert await store.compare_and_set("sum", "5", "6")
            assert await store.expire("a", 60) and await store.ttl("a") > 50
            assert await store.persist("a")
            assert await store.pop("a") == b"1"
            assert await store.delete("b") and await store.delete_many(["b", "sum"]) == 1
            target = bytearray(5)
            assert await store.get_into("key", target) == 5 and target == b"value"
            await store.set("large", bytes(1 << 20))
            large = bytearray(1 << 20)
            assert await store.get_into("large", large) == 1 << 20
            assert sorted([key async for key in store.keys()]) == [b"key", b"large"]
            assert dict([item async for item in store.items()])[b"key"] == b"value"
            assert len([value async for value in store.values()]) == 2
            assert await store.count() == 2
            assert await store.transaction(lambda transaction: transaction["key"]) == b"value"
            assert await store.clear() == 2

    run(main())


def test_tasks_take_turns(location):
    async def main():
        async with aio.Store(**location) as store:
            inside = 0

            async def work():
                nonlocal inside
                for _ in range(5):
                    async with store.lock("turn") as lock:
                        assert lock.is_held and inside == 0
                        inside += 1
                        await asyncio.sleep(0)
                        inside -= 1
                        await store.increment("sum")

            await asyncio.gather(*(work() for _ in range(20)))
            assert await store.get("sum") == b"100"
            assert await store.lock_holder("turn") is None

    run(main())


def test_who_gives_up_a_wait_does_not_hold_the_lock():
    async def main():
        async with aio.Store(memory=64 << 20) as store:
            lock = store.lock("lock")
            assert await lock.acquire()
            waits = asyncio.create_task(store.lock("lock").acquire())
            await asyncio.sleep(0.01)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            with pytest.raises(farside.TimeoutError):
                async with store.lock("lock", timeout=0.01):
                    pass
            assert not await store.lock("lock").acquire(blocking=False)
            await lock.release()
            # The thread that waited gives it back as soon as it has it.
            assert await store.lock("lock").acquire()

    run(main())


def test_one_store_may_be_used_both_ways(store):
    async def main():
        both = aio.Store(store)
        await both.set("key", "value")
        await both.close()

    run(main())
    assert store["key"] == b"value"
