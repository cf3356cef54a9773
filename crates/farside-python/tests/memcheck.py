"""What the unsafe blocks of the extension do, to be run under valgrind's memcheck: keys and values of every kind, and buffers to be filled.

    PYTHONMALLOC=malloc valgrind --undef-value-errors=no python memcheck.py

Each object has memory of its own then, and memcheck sees who leaves it. Values that were never set are left to the interpreter, whose
optimised builds have some.
"""

import farside


class Text(str):
    pass


with farside.Store(memory=64 << 20) as store:
    keys = ["kéy" * 20, Text("text"), b"bytes" * 7, bytearray(b"array"), memoryview(b"lent"), ""]
    for number, key in enumerate(keys):
        store[key] = str(number)
    assert store.get_many(keys) == [str(number).encode() for number in range(len(keys))]
    for length in (0, 1, 100, 5000, 70_001, 1 << 20):
        value = bytearray(length)
        store["block"] = value
        # Behind it is memory of others.
        target = bytearray(length)
        assert store.get_into("block", target) == length and target == value
        assert store["block"] == value
        assert store.transaction(lambda transaction: transaction["block"]) == value
    for call in (store.get, lambda key: store.get_many([key])):
        try:
            call("\ud800")
        except UnicodeEncodeError:
            continue
        raise AssertionError("this text has no UTF-8")
