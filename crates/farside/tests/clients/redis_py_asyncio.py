"""redis-py's asyncio client against a gateway, with each of its parsers: what programs do with it.

usage: redis_py_asyncio.py URL [CA-FILE]
"""

import asyncio
import sys
import warnings

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.asyncio.connection import Connection, SSLConnection
from redis.backoff import NoBackoff
from redis._parsers import _AsyncHiredisParser, _AsyncRESP2Parser, _AsyncRESP3Parser
from redis.exceptions import LockError, ResponseError, WatchError

warnings.simplefilter("error")

URL = sys.argv[1]
OPTIONS = {"ssl_ca_certs": sys.argv[2]} if len(sys.argv) > 2 else {}


async def strings(client):
    await client.flushall()
    binary = bytes(range(256))
    assert await client.set(b"\x00key\r\n", binary) is True
    assert await client.get(b"\x00key\r\n") == binary
    assert await client.get("none") is None
    assert await client.mset({"a": 1, "b": 2}) is True
    assert await client.mget("a", "none", "b") == [b"1", None, b"2"]
    assert await client.incrbyfloat("f", 0.5) == 0.5
    large = b"v" * 3_000_000
    await client.set("large", large)
    assert await client.getdel("large") == large
    await client.set("e", "v", px=60_000)
    assert 0 < await client.pttl("e") <= 60_000 and await client.persist("e") is True
    try:
        await client.xlen("l")
    except ResponseError as error:
        assert "unknown command" in str(error), error
    else:
        raise AssertionError("XLEN was not refused")


async def pipelines(client):
    await client.flushall()
    async with client.pipeline(transaction=False) as pipeline:
        for number in range(1000):
            pipeline.set(f"key:{number}", number)
        assert await pipeline.execute() == [True] * 1000
    found = {key async for key in client.scan_iter(match="key:*", count=100)}
    assert len(found) == 1000 and await client.dbsize() == 1000
    async with client.pipeline() as pipeline:
        assert await pipeline.set("t", 1).incr("t").execute() == [True, 2]
        await pipeline.watch("t")
        await client.set("t", "another")
        pipeline.multi()
        pipeline.set("t", "ours")
        try:
            await pipeline.execute()
        except WatchError:
            pass
        else:
            raise AssertionError("another was quicker")
    assert await client.get("t") == b"another"


async def locks(client):
    await client.set("count", 0)

    async def count():
        for _ in range(10):
            async with client.lock("lock", timeout=60, sleep=0.001) as lock:
                await client.set("count", int(await client.get("count")) + 1)
                assert await lock.extend(10) is True

    await asyncio.gather(*(count() for _ in range(4)))
    assert await client.get("count") == b"40"
    lost = client.lock("lock", timeout=60)
    assert await lost.acquire() is True
    await client.delete("lock")
    try:
        await lost.release()
    except LockError:
        pass
    else:
        raise AssertionError("the lock was lost")


async def pool(client):
    await asyncio.gather(*(client.incr("pool") for _ in range(50)))
    assert await client.get("pool") == b"50"


async def restart(client):
    """The server is killed and started again on the same segment; the client has to connect anew."""
    await client.set("kept", "v")
    print("restart", flush=True)
    assert sys.stdin.readline() == "\n"
    assert await client.get("kept") == b"v"


async def main():
    parsers = [(2, _AsyncRESP2Parser), (3, _AsyncRESP3Parser), (2, _AsyncHiredisParser), (3, _AsyncHiredisParser)]
    for protocol, parser in parsers:
        options = {"protocol": protocol, "parser_class": parser, "client_name": "tests", **OPTIONS}
        # After the restart each of the pool's fifty connections is broken, which is noticed when it is used.
        client = redis.Redis.from_url(URL, retry=Retry(NoBackoff(), 60), **options)
        for part in (strings, pipelines, locks, pool, restart):
            await part(client)
        connection = await client.connection_pool.get_connection()
        assert isinstance(connection, SSLConnection if OPTIONS else Connection)
        assert isinstance(connection._parser, parser), connection._parser
        await client.connection_pool.release(connection)
        await client.aclose()
    print("done")


asyncio.run(main())
