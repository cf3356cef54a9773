"""A work queue between processes: tasks are keys in order, and a lock makes each task one worker's. A worker that is killed loses
nothing: its task is found again.

    python work_queue.py [SEGMENT]
"""

import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path

import farside

TASKS = 60


class WorkQueue:
    def __init__(self, store, name):
        self.store = store
        self.tasks = f"{name}:task:"
        self.next = f"{name}:next"

    def put(self, task):
        # The number is in the key with as many digits each, so the keys are in the order of the tasks.
        self.store[f"{self.tasks}{self.store.increment(self.next):012}"] = task

    def take(self):
        """The first task that is nobody's, with its lock; None if none is left. It is done when `finish` removes it."""
        for key, task in self.store.items(self.tasks):
            lock = self.store.lock(key)
            if not lock.acquire(blocking=False):
                continue
            if key in self.store:
                return key, task, lock
            # Somebody has finished it meanwhile.
            lock.release()
        return None

    def finish(self, key, lock):
        """Removes a task, if this worker had it all the time."""
        if lock.is_held:
            del self.store[key]
        lock.release()

    def is_empty(self):
        return next(self.store.keys(self.tasks), None) is None


def work(store, has_an_accident):
    queue = WorkQueue(store, "sums")
    while not queue.is_empty():
        taken = queue.take()
        if taken is None:
            continue
        key, task, lock = taken
        if has_an_accident:
            os.kill(os.getpid(), signal.SIGKILL)
        store.set(f"done:{task.decode()}", str(int(task) ** 2))
        queue.finish(key, lock)


def main():
    with tempfile.TemporaryDirectory(prefix="farside-") as folder:
        segment = sys.argv[1] if len(sys.argv) > 1 else Path(folder) / "queue.segment"
        with farside.Store(segment, memory=64 << 20, index="chime") as store:
            queue = WorkQueue(store, "sums")
            for number in range(TASKS):
                queue.put(str(number))
            spawn = multiprocessing.get_context("spawn")
            workers = [spawn.Process(target=work, args=(store, number == 0)) for number in range(3)]
            # The first one has its accident before the others come.
            workers[0].start()
            workers[0].join()
            for worker in workers[1:]:
                worker.start()
            for worker in workers[1:]:
                worker.join()
            squares = [int(store[f"done:{number}"]) for number in range(TASKS)]
            assert squares == [number**2 for number in range(TASKS)]
            killed = sum(worker.exitcode == -signal.SIGKILL for worker in workers)
            print(f"{TASKS} tasks done by {len(workers)} workers, of which {killed} was killed with a task in its hands")


if __name__ == "__main__":
    main()
