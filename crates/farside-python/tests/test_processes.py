"""What happens when programs fork, are killed, and end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import farside


def wait_for(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def in_child(body):
    """Forks, and returns what the child ends with."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(code)
    return wait_for(child)


# Python warns of forks with threads: that it is safe is what is tested.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("where", ["segment", "tcp"])
def test_a_child_joins_for_itself(request, path, where):
    location = path if where == "segment" else request.getfixturevalue("node")
    options = {"memory": 64 << 20} if where == "segment" else {}
    with farside.Store(location, **options) as store:
        store["parent"] = b"before"
        lock = store.lock("turn")
        lock.acquire()

        def body():
            assert store["parent"] == b"before"
            store["child"] = b"was here"
            assert not store.lock("turn").acquire(blocking=False)
            with store.lock("other"):
                assert store.increment("sum") == 1
            with pytest.raises(ValueError, match="forked"):
                lock.release()
            # And its children for themselves.
            assert in_child(lambda: store.increment("sum")) == 0
            store.close()

        assert in_child(body) == 0
        assert store["child"] == b"was here" and store["sum"] == b"2"
        assert lock.is_held
        lock.release()
        assert store.increment("sum") == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_anonymous_memory_is_not_the_childs(store):
    store["key"] = b"value"

    def body():
        with pytest.raises(ValueError, match="segment file"):
            store.get("key")
        with pytest.raises(ValueError, match="segment file"):
            store.lock("lock").acquire()

    assert in_child(body) == 0
    assert store["key"] == b"value"


def count(store, times):
    for _ in range(times):
        store.increment("sum")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(path, method):
    context = multiprocessing.get_context(method)
    with farside.Store(path, memory=64 << 20) as store:
        workers = [context.Process(target=count, args=(store, 100)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        assert store["sum"] == b"300"


HOLDER = """
    import sys, farside
    store = farside.Store(sys.argv[1])
    lock = store.lock("turn")
    lock.acquire()
    store["block"] = bytes(1 << 20)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_held_is_taken_over(path):
    with farside.Store(path, memory=64 << 20) as store:
        command = [sys.executable, "-c", textwrap.dedent(HOLDER), path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout.readline() == "held\n"
            assert not store.lock("turn").acquire(blocking=False)
            holder.send_signal(signal.SIGKILL)
        with store.lock("turn", timeout=60):
            assert len(store["block"]) == 1 << 20


ENDS = """
    import sys, threading, farside
    store = farside.Store(sys.argv[1])
    def work():
        store["key"] = b"value"
        with store.lock("lock"):
            store.transaction(lambda transaction: transaction.set("other", "value"))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    if sys.argv[2] == "error":
        raise SystemExit(7)
    if sys.argv[2] == "close":
        store.close()
"""


@pytest.mark.parametrize("end", ["close", "leave", "error"])
@pytest.mark.parametrize("where", ["segment", "tcp"])
def test_a_program_ends_quietly(request, path, where, end):
    location = str(path) if where == "segment" else request.getfixturevalue("node")
    if where == "segment":
        farside.Store(path, memory=64 << 20).close()
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(ENDS), location, end]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7 if end == "error" else 0, "", "")


def test_threads_that_end_leave_no_client_behind(opened):
    def work():
        opened["key"] = b"value"

    # More than a memory has places for clients.
    for _ in range(300):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert opened["key"] == b"value"


def test_waits_hear_signals(store):
    lock = store.lock("lock")
    lock.acquire()
    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError("rung")))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(InterruptedError):
            store.lock("lock").acquire()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
