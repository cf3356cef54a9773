import array
import datetime
import math
import pickle
import threading

import pytest

import farside


def test_a_key_is_stored_read_and_removed(opened):
    assert opened.get("key") is None
    assert opened.get("key", 7) == 7
    assert opened.set("key", b"value")
    assert opened.get(b"key") == b"value"
    assert opened["key"] == b"value"
    assert "key" in opened
    assert opened.delete("key")
    assert not opened.delete("key")
    assert "key" not in opened


def test_it_has_the_manners_of_a_dictionary(opened):
    opened["one"] = b"1"
    opened["two"] = "2"
    assert len(opened) == 2 and opened
    assert sorted(opened) == [b"one", b"two"]
    assert dict(opened.items()) == {b"one": b"1", b"two": b"2"}
    assert sorted(opened.values()) == [b"1", b"2"]
    assert opened.pop("one") == b"1"
    assert opened.pop("one", "none") == "none"
    del opened["two"]
    with pytest.raises(KeyError, match="two"):
        opened["two"]
    with pytest.raises(KeyError, match="two"):
        del opened["two"]
    assert len(opened) == 0


def test_many_are_stored_and_read_together(opened):
    items = {f"key:{number}": str(number) for number in range(2000)}
    assert opened.set_many(items) == 2000
    assert opened.set_many((key, value) for key, value in items.items()) == 2000
    keys = list(items)
    assert opened.get_many(keys) == [value.encode() for value in items.values()]
    assert opened.get_many(["key:7", "nothing"]) == [b"7", None]
    assert opened.get_many(key for key in keys[:3]) == [b"0", b"1", b"2"]
    assert opened.delete_many(keys[:5] + ["nothing"]) == 5
    assert opened.clear() == 1995


def test_keys_are_what_holds_bytes(opened):
    class Text(str):
        pass

    class Raw(bytes):
        pass

    kinds = ["kéy", Text("text"), b"bytes", Raw(b"raw"), bytearray(b"array"), memoryview(b"lent"), "", b""]
    for number, key in enumerate(kinds[:-1]):
        opened[key] = str(number)
    values = [str(number).encode() for number in (0, 1, 2, 3, 4, 5, 6, 6)]
    assert [opened[key] for key in kinds] == values
    for keys in (kinds, tuple(kinds), iter(kinds)):
        assert opened.get_many(keys) == values
    assert opened.get_many([]) == opened.get_many(()) == []
    assert opened.get_many({"text": 1, "no": 2}) == [b"1", None]
    for wrong in ([1], ["key", None], 7):
        with pytest.raises(TypeError):
            opened.get_many(wrong)
    for call in (opened.get, lambda key: opened.get_many(["key", key])):
        with pytest.raises(UnicodeEncodeError):
            call("\ud800")
    with pytest.raises(BufferError, match="not in one piece"):
        opened.get_many([memoryview(b"a-b-c")[::2]])


def test_conditions(opened):
    assert not opened.set("key", "1", if_present=True)
    assert opened.set("key", "1", if_absent=True)
    assert not opened.set("key", "2", if_absent=True)
    assert opened.set("key", "2", if_present=True)
    assert not opened.compare_and_set("key", "1", "3")
    assert opened.compare_and_set("key", "2", "3")
    assert opened.compare_and_set("other", None, "new")
    assert not opened.compare_and_set("other", None, "newer")
    assert opened["key"] == b"3" and opened["other"] == b"new"
    with pytest.raises(ValueError, match="exclude each other"):
        opened.set("key", "4", if_absent=True, if_present=True)


def test_keys_expire(opened):
    assert opened.set("key", "value", ttl=60)
    assert 59 < opened.ttl("key") <= 60
    assert opened.expire("key", datetime.timedelta(hours=1))
    assert 3599 < opened.ttl("key") <= 3600
    assert opened.persist("key")
    assert opened.ttl("key") == math.inf
    assert opened.ttl("nothing") is None
    assert not opened.expire("nothing", 1)
    opened.expire("key", 0)
    assert opened.get("key") is None
    for wrong in (-1, "soon", math.nan):
        with pytest.raises(ValueError, match="is no time"):
            opened.set("key", "value", ttl=wrong)


def test_numbers_count(opened):
    assert opened.increment("visits") == 1
    assert opened.increment("visits", 41) == 42
    assert opened.increment("visits", -43) == -1
    opened["name"] = "Ada"
    with pytest.raises(ValueError, match="no decimal number"):
        opened.increment("name")
    opened["visits"] = str(2**63 - 1)
    with pytest.raises(ValueError, match="the sum would be none"):
        opened.increment("visits")


@pytest.mark.parametrize("length", [0, 1, 100, 5000, 70_000, 1 << 20])
def test_values_go_in_and_out_of_memory_of_the_caller(opened, length):
    numpy = pytest.importorskip("numpy")
    block = numpy.arange(length, dtype=numpy.uint8)
    for value in (block, bytearray(block), memoryview(block), bytes(block)):
        opened["block"] = value
        assert opened["block"] == bytes(block)
        target = numpy.full(length + 3, 9, dtype=numpy.uint8)
        assert opened.get_into("block", target) == length
        assert (target[:length] == block).all() and (target[length:] == 9).all()
        exact = bytearray(length)
        assert opened.get_into(b"block", exact) == length and exact == bytes(block)


def test_arrays_keep_their_bytes(store):
    numpy = pytest.importorskip("numpy")
    matrix = numpy.arange(12.0).reshape(3, 4)
    store["matrix"] = matrix
    found = numpy.empty_like(matrix)
    assert store.get_into("matrix", found) == matrix.nbytes
    assert (found == matrix).all()
    store[array.array("i", [1, 2])] = "an array as a key"
    assert store[array.array("i", [1, 2]).tobytes()] == b"an array as a key"
    with pytest.raises(BufferError, match="one piece"):
        store["columns"] = matrix[:, ::2]
    with pytest.raises(BufferError, match="one piece"):
        store.get_into("matrix", matrix[:, ::2])


def test_a_buffer_that_does_not_fit_is_left_alone(opened):
    opened["key"] = b"x" * 9000
    for room in (10, 8999):
        target = bytearray(room)
        with pytest.raises(ValueError, match=f"9000 bytes, and the buffer room for {room}"):
            opened.get_into("key", target)
        assert target == bytes(room)
    assert opened.get_into("nothing", bytearray(10_000)) is None
    with pytest.raises(BufferError, match="cannot be written"):
        opened.get_into("key", b"fixed")


def test_what_is_no_bytes_is_refused(store):
    for wrong in (7, None, 1.5, ["key"]):
        with pytest.raises(TypeError, match="keys and values are bytes, str"):
            store.get(wrong)
        with pytest.raises(TypeError, match="keys and values are bytes, str"):
            store["key"] = wrong
    with pytest.raises(ValueError, match="bytes"):
        store["x" * (farside.KEY_BYTES_MAX + 1)] = b""


def test_ranges_are_in_order():
    with farside.Store(memory=64 << 20, index="chime") as store:
        assert store.index == "chime"
        store.set_many((f"user:{number:04}", str(number)) for number in range(500))
        store["visit"] = b""
        assert list(store.keys("user:"))[:2] == [b"user:0000", b"user:0001"]
        assert len(list(store.keys("user:"))) == 500
        assert list(store.items(start="user:0498")) == [(b"user:0498", b"498"), (b"user:0499", b"499"), (b"visit", b"")]
        assert list(store.values(start="user:0007", end="user:0009")) == [b"7", b"8"]
        assert list(store.keys("nobody")) == []
        with pytest.raises(ValueError, match="not both"):
            store.keys("user:", end="x")


def test_an_index_without_order_has_no_ranges(store):
    with pytest.raises(ValueError, match="order"):
        list(store.keys("user:"))


def test_transactions_move_all_or_nothing(opened):
    opened.set_many({"alice": "100", "bob": "0"})

    def move(transaction):
        alice, bob = int(transaction["alice"]), int(transaction.get("bob", b"0"))
        transaction["alice"] = str(alice - 30)
        transaction["bob"] = str(bob + 30)
        return alice - 30

    assert opened.transaction(move) == 70
    assert opened.get_many(["alice", "bob"]) == [b"70", b"30"]

    def refuse(transaction):
        transaction["alice"] = b"0"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opened.transaction(refuse)
    assert opened["alice"] == b"70"

    def every_operation(transaction):
        assert "carol" not in transaction
        assert transaction.set("carol", "5", ttl=60)
        assert not transaction.set("carol", "6", if_absent=True)
        assert transaction["carol"] == b"5"
        assert transaction.expire("carol", 120)
        assert transaction.delete("bob") and not transaction.delete("bob")
        del transaction["alice"]
        with pytest.raises(KeyError):
            transaction["alice"]

    opened.transaction(every_operation)
    assert sorted(opened) == [b"carol"] and opened.ttl("carol") > 60


def test_a_transaction_that_others_overtake_is_made_again(opened):
    opened["number"] = b"1"
    seen = []

    def add(transaction):
        seen.append(transaction["number"])
        if len(seen) == 1:
            opened["number"] = b"10"
        transaction["number"] = str(int(seen[-1]) + 1)

    opened.transaction(add)
    assert seen == [b"1", b"10"] and opened["number"] == b"11"

    with pytest.raises(farside.ConflictError, match="try again"):
        with opened.begin() as transaction:
            number = transaction["number"]
            opened["number"] = b"20"
            transaction["number"] = number
    assert opened["number"] == b"20"
    with pytest.raises(RuntimeError, match="has ended"):
        transaction["number"]


def test_a_transaction_is_its_threads(store):
    transaction = store.begin()
    errors = []

    def use():
        try:
            transaction.get("key")
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "another thread" in errors[0]
    transaction["key"] = b"mine"
    assert transaction.commit()
    assert store["key"] == b"mine"


def test_many_threads_lose_nothing(opened):
    def work():
        for _ in range(200):
            opened.increment("sum")
            opened.transaction(lambda transaction: transaction.set("twice", str(int(transaction.get("twice", b"0")) + 2)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened.get_many(["sum", "twice"]) == [b"800", b"1600"]


def test_full_memory_changes_nothing():
    with farside.Store(memory=16 << 20) as store:
        store["key"] = b"before"
        with pytest.raises(farside.OutOfMemoryError) as caught:
            for number in range(40):
                store[f"block:{number}"] = bytes(1 << 20)
        assert isinstance(caught.value, MemoryError)
        assert store["key"] == b"before"


def test_a_cache_evicts():
    with farside.Store(memory=64 << 20, memory_max=4 << 20, eviction="allkeys-lru") as store:
        for page in range(10_000):
            store[f"page:{page}"] = bytes(1000)
        assert store.evicted > 5000
        assert "page:9999" in store
        assert 0 < store.memory_held <= store.memory_used


def test_processes_share_a_segment(path):
    with farside.Store(path, memory=64 << 20) as first, farside.Store(f"shm:{path}") as second:
        first["key"] = b"value"
        assert second["key"] == b"value"
        copy = pickle.loads(pickle.dumps(first))
        assert copy["key"] == b"value"
        copy.close()
        assert repr(first) == f'farside.Store("{path}")'


def test_wrong_options_say_what_is_right(path):
    for wrong, error, text in [
        ((), TypeError, "where is the memory"),
        (("/nowhere/segment",), farside.UnreachableError, "/nowhere/segment"),
        (("udp:1.2.3.4:5",), farside.UnreachableError, "udp"),
        (("tcp:nowhere",), ValueError, "tcp:HOST:PORT"),
        (("shm:/x",), farside.UnreachableError, "/x"),
    ]:
        with pytest.raises(error, match=text):
            farside.Store(*wrong)
    for options, error, text in [
        ({"memory": "1GiB"}, TypeError, "such as 1 << 30, not `1GiB`"),
        ({"memory": 64 << 20, "index": "hash"}, ValueError, "there are: .*race"),
        ({"memory": 64 << 20, "eviction": "lru"}, ValueError, "allkeys-lru"),
        ({"memory": 64 << 20, "memmory_max": 1}, TypeError, "memory_max"),
        ({"memory": 64 << 20, "timeout": -1}, ValueError, "is no time"),
        ({"memory": 64 << 20, "secret_file": "/nowhere"}, ValueError, "/nowhere"),
    ]:
        with pytest.raises(error, match=text):
            farside.Store(**options)
    with pytest.raises(ValueError, match="new memory"):
        farside.Store(f"shm:{path}", memory=64 << 20)
    with pytest.raises(TypeError, match="segment file"):
        pickle.dumps(farside.Store(memory=16 << 20))


def test_a_store_that_is_closed_says_so():
    store = farside.Store(memory=16 << 20)
    scan = store.keys()
    store.close()
    store.close()
    for use in (lambda: store.get("key"), lambda: len(store), lambda: next(scan), store.begin):
        with pytest.raises(ValueError, match="was closed"):
            use()
