"""A feature store: one process computes vectors of features, others read them by the batch, straight from shared memory.

    python feature_store.py [SEGMENT]
"""

import multiprocessing
import sys
import tempfile
from pathlib import Path

import numpy as np

import farside

USERS = 10_000
FEATURES = 32


def key(user):
    return f"features:{user}"


def features_of(user):
    return np.full(FEATURES, user, dtype=np.float32)


def serve(store, batches):
    """Reads batches of users and scores them: the vectors of a batch stand one behind the other in one array."""
    weights = np.ones(FEATURES, dtype=np.float32) / FEATURES
    random = np.random.default_rng(7)
    for _ in range(batches):
        users = random.integers(0, USERS, 256)
        found = store.get_many([key(user) for user in users])
        batch = np.frombuffer(b"".join(found), dtype=np.float32).reshape(len(users), FEATURES)
        scores = batch @ weights
        assert np.allclose(scores, users), "each user's features are that user's"


def main():
    with tempfile.TemporaryDirectory(prefix="farside-") as folder:
        segment = sys.argv[1] if len(sys.argv) > 1 else Path(folder) / "features.segment"
        with farside.Store(segment, memory=256 << 20) as store:
            written = store.set_many((key(user), features_of(user)) for user in range(USERS))
            spawn = multiprocessing.get_context("spawn")
            servers = [spawn.Process(target=serve, args=(store, 50)) for _ in range(2)]
            for server in servers:
                server.start()
            for server in servers:
                server.join()
            if any(server.exitcode for server in servers):
                sys.exit("a server failed")
            print(f"{written} users, {len(servers)} servers, 50 batches of 256 users each: all features were right")


if __name__ == "__main__":
    main()
