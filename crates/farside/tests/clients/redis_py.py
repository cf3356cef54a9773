"""redis-py against a gateway: what programs do with it, with every warning an error.

usage: redis_py.py URL [CA-FILE]
"""

import sys
import threading
import warnings

import redis
from redis.exceptions import LockNotOwnedError, NoScriptError, ResponseError

warnings.simplefilter("error")

URL = sys.argv[1]
OPTIONS = {"ssl_ca_certs": sys.argv[2]} if len(sys.argv) > 2 else {}


def connect(**options):
    return redis.Redis.from_url(URL, **OPTIONS, **options)


def refuses(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
    else:
        raise AssertionError(f"nothing was refused: {words}")


def strings(client):
    client.flushall()
    binary = bytes(range(256))
    assert client.set(b"\x00key\r\n", binary) is True
    assert client.get(b"\x00key\r\n") == binary
    assert client.get("none") is None
    assert client.set("a", 1, nx=True) is True
    assert client.set("a", 2, nx=True) is None
    assert client.set("a", 3, xx=True, get=True) == b"1"
    assert client.incr("a") == 4 and client.decrby("a", 10) == -6
    assert client.incrbyfloat("f", 0.5) == 0.5
    assert client.mset({"b": "2", "c": "3"}) is True
    assert client.mget(["b", "none", "c"]) == [b"2", None, b"3"]
    assert client.append("b", "x" * 100) == 101 and client.strlen("b") == 101
    assert client.getrange("b", 0, 1) == b"2x"
    assert client.exists("a", "b", "none") == 2
    assert client.type("a") == b"string"
    large = b"v" * 3_000_000
    client.set("large", large)
    assert client.get("large") == large
    assert client.getdel("large") == large
    assert client.unlink("a", "b", "none") == 2


def expiry(client):
    client.set("e", "v", px=100_000)
    assert 0 < client.pttl("e") <= 100_000
    assert client.persist("e") is True and client.ttl("e") == -1
    assert client.expire("e", 100, nx=True) is True
    assert client.expire("e", 200, nx=True) is False
    assert client.expire("e", 0) is True and client.exists("e") == 0


def keys(client):
    client.flushall()
    expected = {f"key:{number}".encode() for number in range(1000)}
    pipeline = client.pipeline(transaction=False)
    for key in expected:
        pipeline.set(key, "v", ex=1000)
    assert pipeline.execute() == [True] * 1000
    assert client.dbsize() == 1000
    assert set(client.scan_iter(match="key:*", count=100)) == expected
    assert set(client.keys("key:99?")) == {f"key:99{digit}".encode() for digit in range(10)}
    assert client.copy("key:1", "copied") is True and client.copy("key:2", "copied") is False
    assert client.rename("copied", "renamed") is True
    assert client.exists("copied") == 0 and 0 < client.ttl("renamed") <= 1000
    refuses(ResponseError, lambda: client.rename("none", "x"), "no such key")


def server(client):
    assert client.ping() is True
    assert client.info()["role"] == "master"
    assert client.info("replication")["connected_slaves"] == 0
    assert client.config_get("max*")["maxmemory-policy"] == "noeviction"
    assert client.config_set("slowlog-max-len", 64) is True
    assert client.config_get("slowlog-max-len") == {"slowlog-max-len": "64"}
    assert client.client_setname("tester") is True
    assert client.client_getname() in ("tester", b"tester")
    mine = client.client_info()
    assert mine["name"] == "tester" and mine["lib-name"] == "redis-py"
    assert [each["id"] for each in client.client_list(client_id=[str(mine["id"])])] == [str(mine["id"])]
    assert client.memory_usage("none") is None
    assert client.command_count() == len(client.command_list())
    assert client.command_getkeys("MSET", "a", 1, "b", 2) in ([b"a", b"b"], ["a", "b"])
    assert client.slowlog_len() == len(client.slowlog_get(-1))
    assert client.wait(1, 10) == 0
    assert client.time()[0] > 1_600_000_000
    refuses(ResponseError, lambda: client.execute_command("XLEN", "l"), "unknown command")


def transactions(client):
    client.flushall()
    assert client.pipeline().set("a", 1).incr("a").get("a").ping().execute() == [True, 2, b"2", True]
    refuses(ResponseError, lambda: client.pipeline().set("b", "x").incr("b").execute(), "not an integer")
    assert client.get("b") == b"x"
    refuses(ResponseError, lambda: client.pipeline().set("b", 1).execute_command("XLEN").execute(), "unknown command")
    assert client.get("b") == b"x"
    assert client.msetnx({"c": 1, "d": 1}) is True and client.msetnx({"d": 2, "e": 2}) is False
    assert client.renamenx("c", "d") is False and client.renamenx("c", "e") is True

    # Transfers with WATCH, again when somebody was quicker.
    client.mset({"left": 100, "right": 0})

    def transfer():
        own = connect()

        def move(pipeline):
            left = int(pipeline.get("left"))
            pipeline.multi()
            pipeline.set("left", left - 1).incr("right")

        for _ in range(20):
            own.transaction(move, "left")

    threads = [threading.Thread(target=transfer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.mget("left", "right") == [b"20", b"80"]


def killing(client):
    victim = connect(single_connection_client=True)
    number = victim.client_id()
    assert client.client_kill_filter(_id=number) == 1
    while client.client_list(client_id=[str(number)]):
        pass
    refuses(redis.ConnectionError, victim.ping, "closed")
    # The next command connects anew.
    assert victim.client_id() != number


def locks(client):
    client.flushall()
    lock = client.lock("lock", timeout=100)
    assert lock.acquire(blocking=False) is True
    other = client.lock("lock", timeout=100)
    assert other.acquire(blocking=False) is False
    assert lock.owned() and not other.owned()
    assert lock.extend(50) is True and client.pttl("lock") > 140_000
    assert lock.extend(30, replace_ttl=True) is True and client.pttl("lock") <= 30_000
    assert lock.reacquire() is True and client.pttl("lock") > 90_000
    token = lock.local.token
    lock.release()
    assert client.exists("lock") == 0
    client.set("lock", "somebody else")
    lock.local.token = token
    refuses(LockNotOwnedError, lock.release)
    assert client.get("lock") == b"somebody else"
    client.delete("lock")

    # A counter without atomic increments, kept right by the lock alone.
    client.set("count", 0)

    def count():
        own = connect()
        for _ in range(10):
            with own.lock("lock", timeout=60, sleep=0.001):
                own.set("count", int(own.get("count")) + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("count") == b"40", client.get("count")


def scripts(client):
    release = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end"
    client.script_flush()
    refuses(NoScriptError, lambda: client.evalsha("f" * 40, 0))
    registered = client.register_script(release)
    client.set("s", "token")
    assert registered(keys=["s"], args=["other"]) == 0
    assert registered(keys=["s"], args=["token"]) == 1
    assert client.script_exists(registered.sha) == [True]
    refuses(ResponseError, lambda: client.eval("return 1", 0), "not supported")


def monitor(client):
    refuses(ResponseError, lambda: client.execute_command("MONITOR"), "enable-monitor-command")
    client.config_set("enable-monitor-command", "yes")
    with client.monitor() as monitor:
        client.set("watched", "va\"lue")
        while True:
            seen = monitor.next_command()
            if seen["command"].startswith("SET"):
                break
        assert seen["command"] == 'SET watched va"lue', seen
    client.config_set("enable-monitor-command", "no")


for protocol in (2, 3):
    client = connect(protocol=protocol, client_name="tests", health_check_interval=30)
    for part in (strings, expiry, keys, server, transactions, killing, locks, scripts):
        part(client)
    if protocol == 2:
        # redis-py reads the lines of a monitor only in the older protocol.
        monitor(client)
    client.close()
decoding = connect(decode_responses=True)
assert decoding.set("text", "\u00e4\u00f6\u00fc") is True and decoding.get("text") == "\u00e4\u00f6\u00fc"
print(f"redis-py {redis.__version__}: done")
