"""A cache of a language model's attention blocks, by the prefix of the prompt that they belong to, which processes share.

Each block of 16 tokens has 256 KiB here. A prompt is looked up block by block: a block's key is a hash of all tokens up to its end,
so prompts that begin alike share blocks. What is not there is computed, and stored for everybody; when memory is short, what was
not used lately goes.

    python prefix_cache.py [SEGMENT]
"""

import hashlib
import multiprocessing
import sys
import tempfile
from pathlib import Path

import numpy as np

import farside

BLOCK_TOKENS = 16
BLOCK_BYTES = 256 << 10
OPTIONS = {"memory": 256 << 20, "memory_max": 160 << 20, "eviction": "allkeys-lru"}


def keys_of(tokens):
    """The keys of a prompt's whole blocks."""
    prefix = hashlib.blake2b(digest_size=16)
    for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        prefix.update(tokens[start : start + BLOCK_TOKENS].tobytes())
        yield b"block:" + prefix.digest()


def compute(key):
    """Stands for the model: what it computes depends on the prefix alone."""
    return np.full(BLOCK_BYTES // 8, int.from_bytes(key[-8:], "little"), dtype=np.uint64)


class PrefixCache:
    def __init__(self, store):
        self.store = store
        self.hits = self.misses = 0

    def attend(self, tokens, blocks):
        """Fills `blocks`, one row for each block of the prompt; what nobody has computed yet is computed and stored."""
        for row, key in enumerate(keys_of(tokens)):
            if self.store.get_into(key, blocks[row]) is not None:
                self.hits += 1
                continue
            self.misses += 1
            blocks[row] = compute(key)
            self.store.set(key, blocks[row], ttl=3600)
        return row + 1


def work(store, number, counts):
    random = np.random.default_rng(number)
    # Thirty system prompts, of which some are popular, each with questions of its own behind it.
    system = [np.random.default_rng(1000 + prompt).integers(0, 50_000, 256, dtype=np.uint32) for prompt in range(30)]
    cache = PrefixCache(store)
    blocks = np.empty((32, BLOCK_BYTES // 8), dtype=np.uint64)
    for _ in range(100):
        popular = min(int(random.zipf(1.4)), len(system)) - 1
        question = random.integers(0, 50_000, 64, dtype=np.uint32)
        prompt = np.concatenate([system[popular], question])
        count = cache.attend(prompt, blocks)
        for row, key in zip(blocks[:count], keys_of(prompt)):
            assert (row == compute(key)[0]).all(), "a block is its prefix's"
    counts.put((cache.hits, cache.misses, store.evicted))


def main():
    with tempfile.TemporaryDirectory(prefix="farside-") as folder:
        segment = sys.argv[1] if len(sys.argv) > 1 else Path(folder) / "blocks.segment"
        with farside.Store(segment, **OPTIONS) as store:
            spawn = multiprocessing.get_context("spawn")
            counts = spawn.Queue()
            workers = [spawn.Process(target=work, args=(store, number, counts)) for number in range(3)]
            for worker in workers:
                worker.start()
            hits, misses, evicted = (sum(column) for column in zip(*(counts.get() for _ in workers)))
            for worker in workers:
                worker.join()
            if any(worker.exitcode for worker in workers):
                sys.exit("a worker failed")
            print(f"{hits + misses} blocks of 256 KiB looked up, {hits / (hits + misses):.0%} hits, {evicted} evicted by the workers")


if __name__ == "__main__":
    main()
