import threading

import pytest

import farside


def test_a_lock_excludes_others_until_it_is_released(opened):
    lock, other = opened.lock("accounts/17"), opened.lock("accounts/17")
    assert lock.token is None and not lock.is_held
    with lock:
        assert lock.is_held
        assert not other.acquire(blocking=False)
        assert not other.acquire(timeout=0.01)
        holder = opened.lock_holder("accounts/17")
        assert holder.owner and holder.since > 0 and not holder.is_shared
        first = lock.token
    # The wait that was given up may be about to give it back.
    assert other.acquire()
    assert other.token > first
    other.release()
    assert opened.lock_holder("accounts/17") is None
    assert (other.name, other.is_shared) == (b"accounts/17", False)


def test_readers_share(store):
    readers = [store.lock("report", shared=True) for _ in range(2)]
    writer = store.lock("report")
    assert all(reader.acquire() for reader in readers)
    assert not writer.acquire(blocking=False)
    for reader in readers:
        reader.release()
    assert writer.acquire()
    writer.release()


def test_misuse_is_an_error(store):
    lock = store.lock("lock", timeout=0.01)
    with pytest.raises(RuntimeError, match="not held"):
        lock.release()
    with lock:
        with pytest.raises(RuntimeError, match="another one"):
            lock.acquire()
        with pytest.raises(farside.TimeoutError, match="lock"):
            with store.lock("lock", timeout=0.01):
                pass
        with pytest.raises(TimeoutError):
            with store.lock("lock", timeout=0):
                pass
    with pytest.raises(ValueError, match="1 to 128 bytes"):
        store.lock("").acquire()


def test_threads_take_turns(opened):
    inside, sums = [], []

    def work():
        for _ in range(25):
            with opened.lock("turn"):
                inside.append(1)
                assert len(inside) == 1
                sums.append(int(opened.get("sum", b"0")))
                opened["sum"] = str(sums[-1] + 1)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened["sum"] == b"100" and sums == list(range(100))
