"""What a call costs: the store in mapped memory beside redis-py with a server at a Unix socket, in turns; medians of rounds.

    python compare.py [--redis SOCKET] [--rounds N]

Needs numpy; and redis-py for the second column.
"""

import argparse
import mmap
import os
import statistics
import tempfile
import time

import numpy as np

import farside

KEYS = [f"key:{number}" for number in range(10_000)]
VALUE = b"x" * 100
BLOCK = np.arange(1 << 20, dtype=np.uint8)
TARGET = np.zeros_like(BLOCK)
MANY = 500


def mapped_block(path):
    """The block in a file that is mapped, as a store's values are: in pages of the same size."""
    with open(path, "w+b") as file:
        file.truncate(BLOCK.nbytes)
        block = np.frombuffer(mmap.mmap(file.fileno(), BLOCK.nbytes), dtype=np.uint8)
    np.copyto(block, BLOCK)
    return block


def calls(store, mapped):
    """A name, what is done, and how many keys that has."""
    items = dict.fromkeys(KEYS[:MANY], VALUE)
    many = KEYS[:MANY]
    is_ours = isinstance(store, farside.Store)
    get_many, set_many = (store.get_many, store.set_many) if is_ours else (store.mget, store.mset)
    get, set_ = store.get, store.set
    yield "get", lambda: [get(key) for key in KEYS], len(KEYS)
    yield "set", lambda: [set_(key, VALUE) for key in KEYS], len(KEYS)
    yield f"get_many, {MANY} keys", lambda: get_many(many), MANY
    yield f"set_many, {MANY} keys", lambda: set_many(items), MANY
    if is_ours:
        yield "get_into, 1 MiB", lambda: store.get_into("block", TARGET), 1
        yield "set, 1 MiB", lambda: store.set("block", BLOCK), 1
        yield "numpy.copyto, 1 MiB", lambda: np.copyto(TARGET, BLOCK), 1
        yield "numpy.copyto, 1 MiB, mapped", lambda: np.copyto(TARGET, mapped), 1
    else:
        block = BLOCK.tobytes()
        yield "get_into, 1 MiB", lambda: np.copyto(TARGET, np.frombuffer(get("block"), dtype=np.uint8)), 1
        yield "set, 1 MiB", lambda: set_("block", block), 1


def timed(call, keys):
    """Nanoseconds for a key, of a call that is made for a fiftieth of a second at least."""
    times, start = 0, time.perf_counter_ns()
    while True:
        call()
        times += 1
        passed = time.perf_counter_ns() - start
        if passed > 20_000_000:
            return passed / times / keys


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--redis", metavar="SOCKET", help="the Unix socket of a server that speaks Redis's protocol")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments = arguments.parse_args()
    folder = tempfile.TemporaryDirectory(prefix="farside-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    with folder, farside.Store(f"{folder.name}/segment", memory=256 << 20) as store:
        mapped = mapped_block(f"{folder.name}/block")
        stores = [store]
        if arguments.redis:
            import redis

            stores.append(redis.Redis(unix_socket_path=arguments.redis))
        for one in stores:
            one.set("block", BLOCK.tobytes())
            for key in KEYS:
                one.set(key, VALUE)
        measured = {}
        for _ in range(arguments.rounds):
            for number, one in enumerate(stores):
                for name, call, keys in calls(one, mapped):
                    measured.setdefault(name, [[], []])[number].append(timed(call, keys))
    print(f"{'values of 100 B, ns for a key':32} {'farside':>10} {'redis-py':>10} {'ratio':>7}")
    medians = {name: [statistics.median(times) if times else None for times in both] for name, both in measured.items()}
    for name, (ours, theirs) in medians.items():
        others = f"{theirs:10.0f} {theirs / ours:6.1f}x" if theirs else ""
        print(f"{name:32} {ours:10.0f} {others}")
    read = medians["get_into, 1 MiB"][0]
    copies = medians["numpy.copyto, 1 MiB"][0] / read, medians["numpy.copyto, 1 MiB, mapped"][0] / read
    print("a block of 1 MiB is read at %.2f of the speed of a copy within numpy," % copies[0])
    print("and at %.2f of that of the same copy from a mapping of shared memory" % copies[1])


if __name__ == "__main__":
    main()
